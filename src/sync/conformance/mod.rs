//! The stand-ins behave like the real parts: both are taken through the same random operations, and must answer the
//! same. Here the stand-ins are made of std's primitives; under a checker the same files are made of the checker's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::task::{Context, Waker};

use super::rows::{Keeping, Rows, Visits, walk};
use super::{Published, real};

mod on_std;
use on_std::{standin, standin_event, standin_published};

const SEEDS: u64 = 200;
const STEPS: usize = 300;

/// Runs `body` with many random sources; a failure names the seed.
fn for_each_seed(body: impl Fn(&mut fastrand::Rng)) {
    for seed in 0..SEEDS {
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut fastrand::Rng::with_seed(seed))));
        if let Err(panic) = outcome {
            eprintln!("with seed {seed}:");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn tables_agree() {
    type Hasher = BuildHasherDefault<DefaultHasher>;
    for_each_seed(|rng| {
        let real = real::Table::<u32, u32, Hasher>::new(4, rng.usize(..20), Hasher::default());
        let other = standin::Table::<u32, u32, Hasher>::new(4, 0, Hasher::default());
        // Hints of the past, most of them to rows that have moved or gone since.
        let mut hints = BTreeMap::new();
        for step in 0..STEPS as u32 {
            let key = rng.u32(..40);
            let (hash, other_hash) = (real.hash(&key), other.hash(&key));
            let (mut here, mut there) = (real.lock(hash), other.lock(other_hash));
            let rows = (here.find(hash, &key), there.find(other_hash, &key));
            assert_eq!(rows.0.is_some(), rows.1.is_some());
            if let Some(&(hint, other_hint)) = hints.get(&key) {
                assert_eq!((here.recall(hint, &key), there.recall(other_hint, &key)), rows, "a hint leads to the row");
            }
            match (rng.u32(..5), rows) {
                (0 | 1, (None, None)) => {
                    let rows = (here.insert(hash, key, step), there.insert(other_hash, key, step));
                    hints.insert(key, (here.hint(hash, rows.0), there.hint(other_hash, rows.1)));
                }
                (1, (Some(row), Some(other_row))) => {
                    assert_eq!(here.get_mut(row), there.get_mut(other_row));
                    *here.get_mut(row) += 1;
                    *there.get_mut(other_row) += 1;
                }
                (2, (Some(row), Some(other_row))) => {
                    assert_eq!(here.remove(hash, row), there.remove(other_hash, other_row));
                }
                (3, (Some(row), Some(other_row))) => {
                    here.mark(row, 1);
                    there.mark(other_row, 1);
                }
                (4, _) => {
                    drop((here, there));
                    let (mut all, mut others) = (BTreeMap::new(), BTreeMap::new());
                    let visits = real.scan(|key, value| assert_eq!(all.insert(*key, *value), None, "visited twice"));
                    assert_eq!(visits, Visits::Once);
                    let visits =
                        other.scan(|key, value| assert_eq!(others.insert(*key, *value), None, "visited twice"));
                    assert_eq!(visits, Visits::Once);
                    assert_eq!(all, others);
                    // A key that comes back has no mark.
                    let (mut marked, mut also_marked) = (Vec::new(), Vec::new());
                    let _ = real.scan_shards(|shard, part| {
                        let rows = part.filter(|&row| shard.is_marked(row, 1)).filter_map(|row| shard.entry(row));
                        marked.extend(rows.map(|(key, _)| *key));
                    });
                    let _ = other.scan_shards(|shard, part| {
                        let rows = part.filter(|&row| shard.is_marked(row, 1)).filter_map(|row| shard.entry(row));
                        also_marked.extend(rows.map(|(key, _)| *key));
                    });
                    if step % 8 == 0 {
                        let _ = real.scan_shards(|mut shard, _| shard.clear_marks());
                        let _ = other.scan_shards(|mut shard, _| shard.clear_marks());
                    }
                    marked.sort_unstable();
                    also_marked.sort_unstable();
                    assert_eq!(marked, also_marked);
                }
                _ => {}
            }
        }
    });
}

/// The walk itself, of the file that all builds share, in parts of every length, while rows come and go between the parts.
#[test]
fn a_walk_misses_nothing_that_stays() {
    for_each_seed(|rng| {
        let stride = rng.usize(1..5);
        let divisor = rng.usize(1..4);
        let compacts = [|_, _| true, |rows, left| left < rows / 2, |rows, left| left < rows / 4][divisor - 1];
        let shards = [(); 2].map(|()| RefCell::new(Rows::new(Keeping { room: rng.usize(..9), compacts })));
        let count = rng.u32(1..30);
        for key in 0..count {
            shards[key as usize % 2].borrow_mut().push(key, ());
        }
        let (mut visited, mut gone, mut next) = (vec![0; count as usize], BTreeSet::new(), count);
        let visits = walk(
            shards.iter().map(|shard| || shard.borrow()),
            stride,
            |rows: std::cell::Ref<'_, Rows<u32, ()>>, part| {
                for (&key, ()) in part.filter_map(|row| rows.entry(row)) {
                    if let Some(times) = visited.get_mut(key as usize) {
                        *times += 1;
                    }
                }
                drop(rows);
                for _ in 0..rng.u32(..3) {
                    let mut rows = shards[rng.usize(..2)].borrow_mut();
                    let row = rows.find(&rng.u32(..next));
                    match row.filter(|_| rng.bool()) {
                        Some(row) => {
                            gone.insert(rows.remove(row).0);
                            let _ = rows.compact();
                        }
                        None => {
                            rows.push(next, ());
                            next += 1;
                        }
                    }
                }
            },
        );
        for key in (0..count).filter(|key| !gone.contains(key)) {
            assert!(visited[key as usize] > 0, "key {key} was there all the time, and not visited");
        }
        if visits == Visits::Once {
            assert!(visited.iter().all(|&times| times <= 1), "visited twice, and nobody told");
        }
    });
}

/// A row that was visited may come back in a gap that the walk has yet to reach, without any row having moved.
#[test]
fn a_walk_says_that_a_row_came_back() {
    type Hasher = BuildHasherDefault<DefaultHasher>;
    let table = real::Table::<u32, (), Hasher>::new(2, 0, Hasher::default());
    let hash = |key: u32| table.hash(&key);
    for key in 0..200 {
        let _ = table.lock(hash(key)).insert(hash(key), key, ());
    }
    let mut visited = BTreeMap::<u32, u32>::new();
    let mut done = false;
    let visits = table.scan_shards(|shard, part| {
        let keys: Vec<u32> = part.filter_map(|row| shard.entry(row)).map(|(key, ())| *key).collect();
        keys.iter().for_each(|&key| *visited.entry(key).or_default() += 1);
        drop(shard);
        if std::mem::replace(&mut done, true) {
            return;
        }
        let seen = keys[0];
        let same_shard = |key: &u32| hash(*key).high(1) == hash(seen).high(1);
        let unseen = (0..200).filter(same_shard).find(|key| !visited.contains_key(key)).unwrap();
        for key in [seen, unseen] {
            let mut shard = table.lock(hash(key));
            let row = shard.find(hash(key), &key).unwrap();
            let _ = shard.remove(hash(key), row);
        }
        table.lock(hash(seen)).insert(hash(seen), seen, ());
    });
    assert!(visited.values().any(|&times| times > 1), "no row came back");
    assert_eq!(visits, Visits::Repeated);
}

#[test]
fn queues_agree() {
    for weak in [false, true] {
        for_each_seed(|rng| {
            let (real, other) = (real::Queue::new(), standin::Queue::with(weak));
            for step in 0..STEPS {
                if rng.bool() {
                    real.push(step);
                    other.push(step);
                } else {
                    assert_eq!(real.pop(), other.pop());
                }
                assert_eq!(real.len(), other.len());
                assert_eq!(real.is_empty(), other.is_empty());
            }
        });
    }
}

/// The stand-in is always empty, which a real one may be too: what is common is that nothing is made up or kept twice.
#[test]
fn pools_agree() {
    for_each_seed(|rng| {
        let (real, other) = (real::Pool::new(3), standin::Pool::new(3));
        let mut stocked = Vec::new();
        for step in 0..STEPS {
            if rng.bool() {
                assert_eq!(other.put(step), Some(step), "what it does not keep it gives back");
                match real.put(step) {
                    None => stocked.push(step),
                    Some(refused) => assert_eq!((refused, stocked.len()), (step, 3)),
                }
            } else {
                assert_eq!(other.take(), None);
                match real.take() {
                    None => assert!(stocked.is_empty()),
                    Some(taken) => stocked.retain(|&step| step != taken),
                }
            }
        }
    });
}

fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A load finds what the last swap published, a swap returns what it replaced, and what was loaded stays as it was.
#[test]
fn published_pointers_agree() {
    use std::sync::Arc;

    for_each_seed(|rng| {
        let (real, other) = (Published::new(Arc::new(0)), standin_published::Published::new(Arc::new(0)));
        let mut kept = Vec::new();
        for step in 1..STEPS {
            match rng.u32(..3) {
                0 => assert_eq!(real.swap(Arc::new(step)), other.swap(Arc::new(step))),
                1 => assert_eq!(**real.load(), **other.load()),
                _ => kept.push((real.load_full(), other.load_full())),
            }
        }
        for (real, other) in &kept {
            assert_eq!(real, other);
        }
    });
}

/// Who is woken by which call, and what a dropped listener passes on.
#[test]
fn events_agree() {
    for_each_seed(|rng| {
        let (real, other) = (real::Event::new(), standin_event::Event::new());
        let mut listeners = Vec::new();
        for _ in 0..STEPS {
            match rng.u32(..8) {
                0..=2 => listeners.push((real::asleep(real.listen()), standin_event::asleep(other.listen()))),
                3 => {
                    let n = if rng.u32(..4) == 0 { usize::MAX } else { rng.usize(1..3) };
                    real.notify(n);
                    other.notify(n);
                }
                4 => {
                    let n = rng.usize(1..3);
                    real.notify_additional(n);
                    other.notify_additional(n);
                }
                5 if !listeners.is_empty() => drop(listeners.swap_remove(rng.usize(..listeners.len()))),
                _ if !listeners.is_empty() => {
                    let at = rng.usize(..listeners.len());
                    let (real, other) = &mut listeners[at];
                    let ready = is_ready(real);
                    assert_eq!(ready, is_ready(other), "one wakes, the other does not");
                    if ready {
                        drop(listeners.swap_remove(at));
                    }
                }
                _ => {}
            }
        }
        // Whom the rest of the notifications went to.
        for (real, other) in &mut listeners {
            assert_eq!(is_ready(real), is_ready(other), "one wakes, the other does not");
        }
    });
}
