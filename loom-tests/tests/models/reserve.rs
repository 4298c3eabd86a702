//! The reserve of idle slots: a key that is gone leaves none, or the table grows with every key that ever was.

use loom_tests::*;

/// **A deletion during a Replace leaves no slot.** One idle key may keep its memory, and key 1 does. Thread A deletes
/// it, thread C consumes, main replaces by an empty list. However the deletion meets the Replace, at the end no slot
/// is left, and the reserve is free for key 2.
///
/// Bound 2: 1,155 executions, 0.3 s.
#[test]
fn deleted_key_leaves_no_slot() {
    check("deleted_key_leaves_no_slot", || {
        let w = World::with(Mode::External, |builder| builder.idle_keys(1));
        w.add(1, 1);
        w.consume_queued();
        assert_eq!(w.fifo.slots_len(), 1, "the idle key keeps its slot");
        let a = spawn(&w, |w| w.delete(1));
        let consumer = spawn(&w, World::consume);
        w.replace(&[]);
        a.join().unwrap();
        w.fifo.close();
        consumer.join().unwrap();
        assert_eq!(w.known(1), None);
        assert_eq!(w.fifo.slots_len(), 0, "a slot is left for a key that is gone");
        w.add(2, 1);
        w.consume_queued();
        assert_eq!(w.fifo.slots_len(), 1, "the reserve was not given back");
    });
}

/// **A Resync of a key that is gone leaves no slot.** Key 1 is known. Thread A deletes it, thread C consumes, main
/// resyncs, so that the reservation may come after the deletion was applied.
///
/// Bound 2: 28 executions.
#[test]
fn resync_of_gone_key_leaves_no_slot() {
    check("resync_of_gone_key_leaves_no_slot", || {
        let w = World::with(Mode::External, |builder| builder.idle_keys(1));
        w.add(1, 1);
        w.consume_queued();
        let a = spawn(&w, |w| {
            w.delete(1);
            w.consume_queued();
        });
        w.resync();
        a.join().unwrap();
        w.consume_queued();
        assert_eq!(w.known(1), None, "resurrected");
        assert_eq!(w.fifo.slots_len(), 0, "a slot is left for a key that is gone");
    });
}
