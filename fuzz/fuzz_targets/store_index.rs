//! The store with its indices against a model that searches everything, every time.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use delta_fifo::informer::{Change, Snapshot, Store};
use libfuzzer_sys::fuzz_target;

/// The labels are the index values; bit 7 makes the index function fail.
#[derive(Arbitrary, Clone, Debug, PartialEq)]
struct Object {
    key: u8,
    labels: u8,
}

const FAILS: u8 = 1 << 7;

impl Object {
    fn key(&self) -> Result<u8, &'static str> {
        if self.key == u8::MAX { Err("no key") } else { Ok(self.key % 32) }
    }

    fn labels(&self) -> Result<Vec<String>, &'static str> {
        if self.labels & FAILS != 0 {
            return Err("no labels");
        }
        // A value may come twice.
        Ok((0..4)
            .filter(|bit| self.labels >> bit & 1 == 1)
            .flat_map(|bit| [bit, bit / 2])
            .map(|n| n.to_string())
            .collect())
    }
}

#[derive(Arbitrary, Debug)]
enum Op {
    Put(Object),
    Delete(Object),
    Transaction(Vec<(Object, bool)>),
    Replace(Vec<Object>),
    AddIndexer,
    Keep,
}

type Model = BTreeMap<u8, Arc<Object>>;

fn put(model: &mut Model, object: &Object, indexed: bool) -> bool {
    let Ok(key) = object.key() else { return false };
    if indexed && object.labels().is_err() {
        return false;
    }
    model.insert(key, Arc::new(object.clone()));
    true
}

/// The model with all changes, or as it was.
fn all_or_nothing(model: &Model, changes: &[(Object, bool)], indexed: bool) -> Option<Model> {
    let mut next = model.clone();
    for (object, is_put) in changes {
        match is_put {
            true => put(&mut next, object, indexed).then_some(())?,
            false => drop(next.remove(&(object.key % 32))),
        }
    }
    Some(next)
}

fn check(snapshot: &Snapshot<Object, u8>, model: &Model, indexed: bool) {
    assert_eq!(snapshot.len(), model.len());
    let content: Model = snapshot.iter().map(|(key, object)| (*key, object.clone())).collect();
    assert_eq!(content, *model);
    for key in 0..32 {
        assert_eq!(snapshot.get(&key), model.get(&key));
    }
    if !indexed {
        assert!(snapshot.by_index("label", "0").is_err(), "there is no such index yet");
        return;
    }
    let mut values = Vec::new();
    for value in 0..4 {
        let value = value.to_string();
        let has = |object: &Object| object.labels().is_ok_and(|labels| labels.contains(&value));
        let wanted: Vec<u8> = model.iter().filter(|(_, object)| has(object)).map(|(key, _)| *key).collect();
        let mut keys = snapshot.index_keys("label", &value).unwrap();
        keys.sort();
        assert_eq!(keys, wanted, "under {value}");
        assert_eq!(snapshot.by_index("label", &value).unwrap().len(), wanted.len());
        if !wanted.is_empty() {
            values.push(value);
        }
    }
    let mut listed: Vec<String> = snapshot.index_values("label").unwrap().iter().map(ToString::to_string).collect();
    listed.sort();
    assert_eq!(listed, values, "a value without an object is not listed");
}

fuzz_target!(|ops: Vec<Op>| {
    let store = Store::<Object, u8>::with_key_fn(Object::key);
    let (mut model, mut indexed, mut kept) = (Model::new(), false, Vec::new());
    for op in ops.iter().take(100) {
        match op {
            Op::Put(object) => {
                let mut next = model.clone();
                let accepted = put(&mut next, object, indexed);
                assert_eq!(store.update(object.clone()).is_ok(), accepted);
                model = if accepted { next } else { model };
            }
            Op::Delete(object) => {
                let deleted = store.delete(object.clone()).is_ok();
                assert_eq!(deleted, object.key().is_ok());
                if let Ok(key) = object.key() {
                    model.remove(&key);
                }
            }
            Op::Transaction(changes) => {
                let ops = changes.iter().map(|(object, is_put)| match is_put {
                    true => Change::Put(Arc::new(object.clone())),
                    false => Change::Delete(object.key % 32),
                });
                let next = all_or_nothing(&model, changes, indexed);
                assert_eq!(store.transaction(ops).is_ok(), next.is_some());
                model = next.unwrap_or(model);
            }
            Op::Replace(list) => {
                let changes: Vec<_> = list.iter().map(|object| (object.clone(), true)).collect();
                let next = all_or_nothing(&Model::new(), &changes, indexed);
                assert_eq!(store.replace(list.iter().cloned().map(Arc::new), 1).is_ok(), next.is_some());
                model = next.unwrap_or(model);
            }
            Op::AddIndexer => {
                let sound = model.values().all(|object| object.labels().is_ok());
                let added = store.add_indexer("label", Object::labels);
                assert_eq!(added.is_ok(), sound && !indexed, "{added:?}");
                indexed |= added.is_ok();
            }
            Op::Keep => kept.push((store.snapshot(), model.clone(), indexed)),
        }
        check(&store.snapshot(), &model, indexed);
    }
    // A snapshot shows what was, whatever came later.
    for (snapshot, model, indexed) in kept {
        check(&snapshot, &model, indexed);
    }
});
