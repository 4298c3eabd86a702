//! W8: resident memory per key beyond the objects.

use super::engine::Engine;
use super::object::objects;
use super::run::Run;

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("W8 reads /proc/self/status and needs Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("there is a VmRSS line");
    let kb = line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("VmRSS is in kB");
    kb * 1024.0
}

/// In the store; in the store and queued; after draining.
pub fn memory<E: Engine>(run: &Run) {
    let objects = objects(run.scaled(1_000_000));
    let bare = resident_bytes();
    let per_key = |bytes: f64| (bytes - bare) / objects.len() as f64;
    let engine = E::new(objects.len());
    engine.know(&objects);
    let store = resident_bytes();
    for object in &objects {
        engine.update(run.updated(object));
    }
    let queued = resident_bytes();
    let mut handled = 0;
    while handled < objects.len() {
        engine.pop(|deltas| handled += deltas);
    }
    let drained = resident_bytes();
    run.check("objects in the store", engine.stored(), objects.len());
    run.report("store_bytes_per_key", per_key(store), "B");
    run.report("queued_bytes_per_key", per_key(queued), "B");
    run.report("drained_bytes_per_key", per_key(drained), "B");
}
