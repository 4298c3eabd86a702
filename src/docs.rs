//! Pages that belong to no single item.

#[doc = include_str!("../docs/semantics.md")]
pub mod semantics {}
