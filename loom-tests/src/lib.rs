//! What the models share: how a model is run ([`check`]), the queue with its known objects ([`World`]), the
//! informer's hand-over and barrier around it ([`Informer`]), and the check that an end state is that of some
//! sequential order of the calls ([`History`]).
//!
//! Empty in a build without `--cfg loom` or `--cfg shuttle`; the aliases `cargo loom` and `cargo shuttle` set them.

// An empty run must not look like a passed one. The aliases set this variable; a `RUSTFLAGS` variable in the
// environment would silently replace the `--cfg` of the alias, and every model would compile away.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    option_env!("DELTA_FIFO_MODELS").is_none(),
    "models were asked for, but neither --cfg loom nor --cfg shuttle is set: unset RUSTFLAGS, or add the --cfg to it"
);

#[cfg(any(loom, shuttle))]
mod check;
#[cfg(any(loom, shuttle))]
mod history;
#[cfg(any(loom, shuttle))]
mod informer;
#[cfg(any(loom, shuttle))]
mod world;
#[cfg(any(loom, shuttle))]
pub use {check::*, history::*, informer::*, world::*};
