//! W8: memory per key beyond the objects, resident and as the allocator was asked for it. The first is what a user
//! sees; of what is freed, the allocator may keep a part (glibc gives back the end of its heap only), so the second
//! tells what the queue keeps.

use super::engine::Engine;
use super::object::objects;
use super::run::Run;
use counting_alloc::live_bytes;

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("W8 reads /proc/self/status and needs Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("there is a VmRSS line");
    let kb = line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("VmRSS is in kB");
    kb * 1024.0
}

/// In the store; in the store and queued; after draining.
pub fn memory<E: Engine>(run: &Run) {
    let objects = objects(run.scaled(1_000_000));
    let bare = (resident_bytes(), live_bytes() as f64);
    let now = || (resident_bytes() - bare.0, live_bytes() as f64 - bare.1);
    let engine = E::new(objects.len());
    engine.know(&objects);
    let store = now();
    for object in &objects {
        engine.update(run.updated(object));
    }
    let queued = now();
    let mut handled = 0;
    while handled < objects.len() {
        engine.pop(|deltas| handled += deltas);
    }
    let drained = now();
    run.check("objects in the store", engine.stored(), objects.len());
    for (name, (resident, live)) in [("store", store), ("queued", queued), ("drained", drained)] {
        run.report(format!("{name}_bytes_per_key"), resident / objects.len() as f64, "B");
        run.report(format!("{name}_live_bytes_per_key"), live / objects.len() as f64, "B");
    }
}
