//! The root of this module in the models' build: the files that need neither tokio nor arc-swap.
#![allow(missing_debug_implementations)]

pub mod barrier;
pub mod hand_over;
