//! Behaviour section C: store, indices, snapshots, versions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use delta_fifo::informer::{AddIndexersError, Change, Indexers, Store, StoreError};
use delta_fifo::{BoxError, KnownObjects};

use crate::support::{Obj, labelled, obj};

fn by_label() -> Indexers<Obj> {
    Indexers::new().with("label", |object: &Obj| Ok::<_, BoxError>(object.labels.clone()))
}

fn labelled_store() -> Store<Obj> {
    let store = Store::new();
    store.add_indexers(by_label()).unwrap();
    store
}

fn keys(store: &Store<Obj>, label: &str) -> Vec<String> {
    store.index_keys("label", label).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn add_and_update_are_the_same_and_deleting_nothing_is_fine() {
    let store = Store::<Obj>::new();
    store.update(obj("a", 1)).unwrap();
    store.add(obj("a", 2)).unwrap();
    assert_eq!(store.get(&"a".into()).unwrap().value, 2);
    store.delete(obj("a", 0)).unwrap();
    store.delete(obj("a", 0)).unwrap();
    assert!(store.is_empty());
}

#[test]
fn replace_swaps_everything_and_a_bad_object_changes_nothing() {
    let store = Store::<Obj>::with_key_fn(|o: &Obj| if o.value == 9 { Err("nine") } else { Ok(o.key.clone()) });
    store.add_indexers(by_label()).unwrap();
    store.add(labelled("old", &["x"])).unwrap();
    let refused = store.replace([Arc::new(labelled("a", &["x"])), Arc::new(obj("b", 9))], 5);
    assert!(matches!(refused, Err(StoreError::Key(error)) if &*error.object.key == "b"));
    assert_eq!(keys(&store, "x"), ["old"]);

    store.replace([Arc::new(obj("a", 1)), Arc::new(labelled("a", &["y"]))], 6).unwrap();
    assert_eq!(store.len(), 1, "the last one of a key wins");
    assert!(keys(&store, "x").is_empty());
    assert_eq!(keys(&store, "y"), ["a"]);
    assert_eq!(store.resource_version(), 6.into());
}

#[test]
fn a_transaction_is_visible_at_once_or_not_at_all() {
    let store = labelled_store();
    store.add(labelled("a", &["x"])).unwrap();
    let before = store.snapshot();
    store.transaction([Change::Put(Arc::new(labelled("b", &["x"]))), Change::Delete("a".into())]).unwrap();
    assert_eq!(before.by_index("label", "x").unwrap()[0].key, "a".into());
    assert_eq!(keys(&store, "x"), ["b"]);
    store.transaction([]).unwrap();
}

#[test]
fn the_version_follows_the_last_writer() {
    let store = Store::<Obj>::new();
    let versioned = |key: &str, version| Obj { version, ..obj(key, 0) };
    assert!(store.resource_version().is_unset());
    store.add(versioned("a", 5)).unwrap();
    assert_eq!(store.resource_version(), 5.into());
    store.add(obj("b", 0)).unwrap();
    assert_eq!(store.resource_version(), 5.into(), "an object without a version leaves it");
    store.delete(versioned("a", 4)).unwrap();
    assert_eq!(store.resource_version(), 4.into(), "no check for order");
    store.transaction([Change::Put(Arc::new(versioned("a", 9))), Change::Put(Arc::new(versioned("b", 8)))]).unwrap();
    assert_eq!(store.resource_version(), 8.into(), "that of the last element");
    store.replace([], "").unwrap();
    assert!(store.resource_version().is_unset(), "replace sets even an empty one");
    store.bookmark("x");
    assert_eq!(store.resource_version(), "x".into());
}

#[test]
fn indices_added_to_a_filled_store_see_what_is_there() {
    let store = Store::<Obj>::new();
    for i in 0..1000 {
        store.add(labelled(&format!("k{i}"), &[if i % 2 == 0 { "even" } else { "odd" }])).unwrap();
    }
    store.add_indexers(by_label()).unwrap();
    assert_eq!(store.by_index("label", "even").unwrap().len(), 500);
    store.delete(obj("k0", 0)).unwrap();
    assert_eq!(store.by_index("label", "even").unwrap().len(), 499);
}

#[test]
fn a_name_clash_adds_nothing() {
    let store = labelled_store();
    let indexers = Indexers::new().with("new", |_: &Obj| Ok::<_, BoxError>(vec![]));
    let refused = store.add_indexers(indexers.with("label", |_: &Obj| Ok::<_, BoxError>(vec![])));
    assert!(matches!(refused, Err(AddIndexersError::NameTaken(name)) if &*name == "label"));
    assert!(store.by_index("new", "").is_err());
    store.add_indexer("new", |_: &Obj| Ok::<_, BoxError>(vec!["v".into()])).unwrap();
}

#[test]
fn an_index_function_that_fails_for_a_stored_object_adds_nothing() {
    let store = Store::<Obj>::new();
    for i in 0..200 {
        store.add(obj(&format!("k{i}"), i)).unwrap();
    }
    let refused =
        store.add_indexer("bad", |object: &Obj| if object.value == 150 { Err("no") } else { Ok(vec!["v".into()]) });
    assert!(matches!(refused, Err(AddIndexersError::Index(error)) if &*error.index == "bad"));
    assert!(store.by_index("bad", "v").is_err());
    store.add(obj("k150", 150)).unwrap();
    store.add_indexer("bad", |_: &Obj| Ok::<_, BoxError>(vec!["v".into()])).unwrap();
    assert_eq!(store.by_index("bad", "v").unwrap().len(), 200);
}

#[test]
fn an_index_is_added_while_writers_go_on() {
    let store = Arc::new(Store::<Obj>::new());
    for i in 0..2000 {
        store.add(labelled(&format!("k{i}"), &["start"])).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        move || {
            let mut writes = 0u64;
            while !stop.load(Ordering::Relaxed) || writes < 4000 {
                let key = format!("k{}", writes % 2500);
                match writes % 3 {
                    0 => store.delete(obj(&key, 0)).unwrap(),
                    _ => store.add(labelled(&key, &["changed", "start"][..1 + (writes % 2) as usize])).unwrap(),
                }
                writes += 1;
            }
        }
    });
    store.add_indexers(by_label()).unwrap();
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_index_is_exact(&store);
}

fn assert_index_is_exact(store: &Store<Obj>) {
    let snapshot = store.snapshot();
    for label in ["start", "changed"] {
        let mut expected: Vec<_> = snapshot
            .iter()
            .filter(|(_, object)| object.labels.iter().any(|l| l == label))
            .map(|(key, _)| key.clone())
            .collect();
        expected.sort();
        assert_eq!(snapshot.index_keys("label", label).unwrap(), expected);
    }
}

#[test]
fn a_function_that_panics_is_an_error_and_the_store_goes_on() {
    let store = Store::<Obj>::new();
    store
        .add_indexer("touchy", |object: &Obj| {
            assert_ne!(object.value, 7, "seven");
            Ok::<_, BoxError>(vec![])
        })
        .unwrap();
    let Err(StoreError::Index(error)) = store.add(obj("a", 7)) else { panic!("it was accepted") };
    assert!(error.to_string().contains("seven"), "{error}");
    store.add(obj("a", 8)).unwrap();
}

#[test]
fn user_code_may_use_the_store() {
    let store = Arc::new(Store::<Obj>::new());
    let inner = store.clone();
    store
        .add_indexer("seen", move |object: &Obj| Ok::<_, BoxError>(vec![inner.contains_key(&object.key).to_string()]))
        .unwrap();
    store.add(obj("a", 1)).unwrap();
    store.add(obj("a", 2)).unwrap();
    assert_eq!(store.index_keys("seen", "true").unwrap(), ["a".into()]);
}

#[test]
fn index_gives_each_object_once() {
    let store = labelled_store();
    store.add(labelled("a", &["x", "y", "x"])).unwrap();
    store.add(labelled("b", &["y"])).unwrap();
    store.add(labelled("c", &["z"])).unwrap();
    let mut found: Vec<_> =
        store.index("label", &labelled("?", &["x", "y"])).unwrap().iter().map(|o| o.key.to_string()).collect();
    found.sort();
    assert_eq!(found, ["a", "b"]);
}

/// Readers see each transaction whole, indices and all, while writers run.
#[test]
fn snapshots_are_never_half_written() {
    let store = Arc::new(labelled_store());
    store.add(labelled("token-0", &["here"])).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(0u64));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, stop, seen) = (store.reader(), stop.clone(), seen.clone());
            thread::spawn(move || {
                let mut looks = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = store.snapshot();
                    let here = snapshot.by_index("label", "here").unwrap();
                    assert_eq!((snapshot.len(), here.len()), (1, 1), "one token, wherever it is");
                    assert!(snapshot.get(&here[0].key).is_some());
                    looks += 1;
                }
                *seen.lock().unwrap() += looks;
            })
        })
        .collect();
    for i in 0..20_000u64 {
        let put = Change::Put(Arc::new(labelled(&format!("token-{}", (i + 1) % 50), &["here"])));
        store.transaction([Change::Delete(format!("token-{}", i % 50).into()), put]).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert!(*seen.lock().unwrap() > 0);
}

#[test]
fn it_is_the_known_objects_of_a_queue() {
    let store = Arc::new(Store::<Obj>::new());
    store.add(obj("a", 1)).unwrap();
    assert_eq!(KnownObjects::list_keys(&store), ["a".into()]);
    assert_eq!(KnownObjects::get_by_key(&store, &"a".into()).unwrap().unwrap().value, 1);
}

#[tokio::test]
async fn waiting_for_a_version_ends_when_it_is_reached() {
    let store = Arc::new(Store::<Obj>::new());
    let reader = store.reader();
    let waiting = tokio::spawn(async move { reader.wait_for(10).await });
    store.bookmark(9);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    store.bookmark(11);
    waiting.await.unwrap().unwrap();
    store.wait_for("").await.unwrap();
}

#[tokio::test]
async fn an_object_that_was_replaced_is_freed() {
    struct Counted(Arc<()>);
    let alive = Arc::new(());
    let store = Store::<Counted, u64>::with_key_fn(|_: &Counted| Ok::<_, BoxError>(1));
    for _ in 0..100 {
        store.add(Counted(alive.clone())).unwrap();
    }
    assert_eq!(Arc::strong_count(&alive), 2);
    assert!(Arc::ptr_eq(&store.get(&1).unwrap().0, &alive));
    store.replace([], 1).unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
}
