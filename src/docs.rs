//! Pages that belong to no single item.

#[doc = include_str!("../docs/semantics.md")]
pub mod semantics {}

#[doc = include_str!("../docs/verification.md")]
pub mod verification {}

#[doc = include_str!("../docs/RELIABILITY.md")]
pub mod reliability {}
