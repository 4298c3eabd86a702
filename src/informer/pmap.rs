//! A persistent hash map: a write makes a new version that shares all but a path of nodes with the old one.
//!
//! The store publishes versions of this map, so a reader that holds one is never disturbed and never disturbs. The tree
//! is a hash trie of eight-way branches: a node that is copied costs one reference count per child, each most likely a
//! cache miss in a large map, so narrow and deep beats wide and flat for writes (a path in a million objects has seven
//! branches). A branch holds only the children it has, told apart by a bitmap. Nodes that no published version shares,
//! those a running transaction made, are changed in place.

use std::sync::Arc;

const BITS: u32 = 3;
const MASK: u64 = (1 << BITS) - 1;

pub(super) struct Entry<K, V> {
    hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

type Children<K, V> = Arc<[Node<K, V>]>;
type Clashing<K, V> = Arc<[Arc<Entry<K, V>>]>;

enum Node<K, V> {
    Leaf(Arc<Entry<K, V>>),
    /// The children that exist, in the order of their bits; never empty.
    Branch(u8, Children<K, V>),
    /// Keys that share all 64 bits of the hash; at least two.
    Clash(Clashing<K, V>),
}

impl<K, V> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(entry) => Node::Leaf(entry.clone()),
            Node::Branch(bitmap, children) => Node::Branch(*bitmap, children.clone()),
            Node::Clash(entries) => Node::Clash(entries.clone()),
        }
    }
}

/// See the module's page. Hashes are the caller's to compute, always with the same hasher.
pub(super) struct PMap<K, V> {
    root: Option<Node<K, V>>,
    len: usize,
}

impl<K, V> Clone for PMap<K, V> {
    fn clone(&self) -> Self {
        PMap { root: self.root.clone(), len: self.len }
    }
}

impl<K, V> PMap<K, V> {
    pub(super) const fn new() -> Self {
        PMap { root: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        Iter { stack: Vec::new(), next: self.root.as_ref(), clash: [].iter() }
    }

    /// Like `iter`, for an iterator that outlives the map: it holds on to this version.
    pub(super) fn into_cursor(self) -> Cursor<K, V> {
        Cursor { stack: Vec::new(), next: self.root, clash: None, remaining: self.len }
    }
}

impl<K: Clone, V: Clone> Clone for Entry<K, V> {
    fn clone(&self) -> Self {
        Entry { hash: self.hash, key: self.key.clone(), value: self.value.clone() }
    }
}

impl<K: Eq, V> PMap<K, V> {
    pub(super) fn get<Q>(&self, hash: u64, key: &Q) -> Option<&Arc<Entry<K, V>>>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let mut node = self.root.as_ref()?;
        let mut rest = hash;
        loop {
            match node {
                Node::Leaf(entry) => return (entry.hash == hash && entry.key.borrow() == key).then_some(entry),
                Node::Clash(entries) => return entries.iter().find(|e| e.hash == hash && e.key.borrow() == key),
                Node::Branch(bitmap, children) => {
                    let bit = 1u8 << (rest & MASK);
                    if bitmap & bit == 0 {
                        return None;
                    }
                    node = &children[position(*bitmap, bit)];
                    rest >>= BITS;
                }
            }
        }
    }

    /// The value of a key, for a change in place; copies the path to it if another version shares it.
    pub(super) fn get_mut<Q>(&mut self, hash: u64, key: &Q) -> Option<&mut V>
    where
        K: std::borrow::Borrow<Q> + Clone,
        Q: Eq + ?Sized,
        V: Clone,
    {
        self.get(hash, key)?;
        let mut node = self.root.as_mut()?;
        let mut shift = 0;
        loop {
            match node {
                Node::Leaf(entry) => return Some(&mut Arc::make_mut(entry).value),
                Node::Clash(entries) => {
                    let at = entries.iter().position(|e| e.key.borrow() == key)?;
                    return Some(&mut Arc::make_mut(&mut Arc::make_mut(entries)[at]).value);
                }
                Node::Branch(bitmap, children) => {
                    let at = position(*bitmap, bit(hash, shift));
                    node = &mut Arc::make_mut(children)[at];
                    shift += BITS;
                }
            }
        }
    }

    /// Puts `value` and returns the entry that was there, for the caller to drop when no lock is held.
    pub(super) fn insert(&mut self, hash: u64, key: K, value: V) -> Option<Arc<Entry<K, V>>> {
        let entry = Arc::new(Entry { hash, key, value });
        let old = match &mut self.root {
            None => {
                self.root = Some(Node::Leaf(entry));
                None
            }
            Some(root) => insert(root, 0, entry),
        };
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes a key and returns its entry.
    pub(super) fn remove<Q>(&mut self, hash: u64, key: &Q) -> Option<Arc<Entry<K, V>>>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + ?Sized,
    {
        // Looked up first: no path is copied for a key that is not there.
        let entry = self.get(hash, key)?.clone();
        if remove(self.root.as_mut()?, 0, &entry) {
            self.root = None;
        }
        self.len -= 1;
        Some(entry)
    }
}

fn position(bitmap: u8, bit: u8) -> usize {
    (bitmap & (bit - 1)).count_ones() as usize
}

fn insert<K: Eq, V>(node: &mut Node<K, V>, shift: u32, entry: Arc<Entry<K, V>>) -> Option<Arc<Entry<K, V>>> {
    let hash_here = match node {
        Node::Branch(bitmap, children) => {
            let bit = bit(entry.hash, shift);
            let at = position(*bitmap, bit);
            if *bitmap & bit != 0 {
                return insert(&mut Arc::make_mut(children)[at], shift + BITS, entry);
            }
            let (before, after) = children.split_at(at);
            let grown: Vec<_> =
                before.iter().cloned().chain([Node::Leaf(entry)]).chain(after.iter().cloned()).collect();
            *children = grown.into();
            *bitmap |= bit;
            return None;
        }
        Node::Leaf(old) if old.hash == entry.hash => {
            if old.key == entry.key {
                return Some(std::mem::replace(old, entry));
            }
            *node = Node::Clash([old.clone(), entry].into());
            return None;
        }
        Node::Clash(entries) if entries[0].hash == entry.hash => {
            if let Some(at) = entries.iter().position(|e| e.key == entry.key) {
                return Some(std::mem::replace(&mut Arc::make_mut(entries)[at], entry));
            }
            *entries = entries.iter().cloned().chain([entry]).collect();
            return None;
        }
        Node::Leaf(old) => old.hash,
        Node::Clash(entries) => entries[0].hash,
    };
    let hash = entry.hash;
    *node = branch_of_two(node.clone(), hash_here, Node::Leaf(entry), hash, shift);
    None
}

/// The branches that tell two nodes with different hashes apart.
fn branch_of_two<K, V>(a: Node<K, V>, hash_a: u64, b: Node<K, V>, hash_b: u64, shift: u32) -> Node<K, V> {
    let (bit_a, bit_b) = (bit(hash_a, shift), bit(hash_b, shift));
    if bit_a == bit_b {
        return Node::Branch(bit_a, [branch_of_two(a, hash_a, b, hash_b, shift + BITS)].into());
    }
    Node::Branch(bit_a | bit_b, if bit_a < bit_b { [a, b] } else { [b, a] }.into())
}

/// Removes an entry that is there. True if the node is now empty and has to go.
fn remove<K: Eq, V>(node: &mut Node<K, V>, shift: u32, entry: &Arc<Entry<K, V>>) -> bool {
    let survivor = match node {
        Node::Leaf(_) => return true,
        Node::Clash(entries) => {
            let rest: Vec<_> = entries.iter().filter(|e| !Arc::ptr_eq(e, entry)).cloned().collect();
            if rest.len() > 1 {
                *entries = rest.into();
                return false;
            }
            rest.into_iter().next().map(Node::Leaf)
        }
        Node::Branch(bitmap, children) => {
            let bit = bit(entry.hash, shift);
            let at = position(*bitmap, bit);
            if remove(&mut Arc::make_mut(children)[at], shift + BITS, entry) {
                *bitmap &= !bit;
                let rest: Vec<_> =
                    children.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, child)| child.clone()).collect();
                *children = rest.into();
            }
            match &**children {
                [] => return true,
                // A branch with one child that is no branch adds nothing.
                [only @ (Node::Leaf(_) | Node::Clash(_))] => Some(only.clone()),
                _ => None,
            }
        }
    };
    if let Some(survivor) = survivor {
        *node = survivor;
    }
    false
}

fn bit(hash: u64, shift: u32) -> u8 {
    1 << ((hash >> shift) & MASK)
}

pub(super) struct Iter<'a, K, V> {
    stack: Vec<std::slice::Iter<'a, Node<K, V>>>,
    next: Option<&'a Node<K, V>>,
    clash: std::slice::Iter<'a, Arc<Entry<K, V>>>,
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = &'a Arc<Entry<K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.clash.next() {
                return Some(entry);
            }
            let node = match self.next.take() {
                Some(node) => node,
                None => match self.stack.last_mut()?.next() {
                    Some(node) => node,
                    None => {
                        self.stack.pop();
                        continue;
                    }
                },
            };
            match node {
                Node::Leaf(entry) => return Some(entry),
                Node::Clash(entries) => self.clash = entries.iter(),
                Node::Branch(_, children) => self.stack.push(children.iter()),
            }
        }
    }
}

/// An owning iterator over one version of the map.
pub(super) struct Cursor<K, V> {
    stack: Vec<(Children<K, V>, usize)>,
    next: Option<Node<K, V>>,
    clash: Option<(Clashing<K, V>, usize)>,
    remaining: usize,
}

impl<K, V> Cursor<K, V> {
    pub(super) fn remaining(&self) -> usize {
        self.remaining
    }
}

impl<K, V> Iterator for Cursor<K, V> {
    type Item = Arc<Entry<K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((entries, at)) = &mut self.clash {
                if let Some(entry) = entries.get(*at) {
                    *at += 1;
                    self.remaining -= 1;
                    return Some(entry.clone());
                }
                self.clash = None;
            }
            let node = match self.next.take() {
                Some(node) => node,
                None => {
                    let (children, at) = self.stack.last_mut()?;
                    match children.get(*at) {
                        Some(node) => {
                            *at += 1;
                            node.clone()
                        }
                        None => {
                            self.stack.pop();
                            continue;
                        }
                    }
                }
            };
            match node {
                Node::Leaf(entry) => {
                    self.remaining -= 1;
                    return Some(entry);
                }
                Node::Clash(entries) => self.clash = Some((entries, 0)),
                Node::Branch(_, children) => self.stack.push((children, 0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn contents(map: &PMap<u16, u32>) -> BTreeMap<u16, u32> {
        let by_ref: BTreeMap<_, _> = map.iter().map(|e| (e.key, e.value)).collect();
        let owned: BTreeMap<_, _> = map.clone().into_cursor().map(|e| (e.key, e.value)).collect();
        assert_eq!(by_ref, owned);
        assert_eq!(map.iter().count(), map.len());
        by_ref
    }

    /// Hashes that are spread, that share their low bits, and that are all the same.
    fn hash(kind: u8, key: u16) -> u64 {
        match kind % 3 {
            0 => u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            1 => u64::from(key % 5) << 61 | 3,
            _ => 7,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_btree_map_and_leaves_old_versions_alone(
            kind in 0u8..3,
            ops in prop::collection::vec((any::<bool>(), 0u16..40, any::<u32>(), any::<bool>()), 0..200),
        ) {
            let mut map = PMap::<u16, u32>::new();
            let mut model = BTreeMap::new();
            let mut kept = Vec::new();
            for (put, key, value, keep) in ops {
                if put {
                    if let Some(there) = map.get_mut(hash(kind, key), &key) {
                        *there = there.wrapping_add(1);
                        *model.get_mut(&key).unwrap() = *there;
                    }
                    let was = map.insert(hash(kind, key), key, value).map(|e| e.value);
                    prop_assert_eq!(was, model.insert(key, value));
                } else {
                    let was = map.remove(hash(kind, key), &key).map(|e| e.value);
                    prop_assert_eq!(was, model.remove(&key));
                }
                prop_assert_eq!(map.get(hash(kind, key), &key).map(|e| e.value), model.get(&key).copied());
                if keep {
                    kept.push((map.clone(), model.clone()));
                }
            }
            kept.push((map, model));
            for (map, model) in kept {
                prop_assert_eq!(contents(&map), model);
            }
        }
    }

    #[test]
    fn an_emptied_map_holds_no_node() {
        let mut map = PMap::new();
        for key in 0..1000u16 {
            map.insert(hash(0, key), key, 0);
        }
        for key in 0..1000u16 {
            assert!(map.remove(hash(0, key), &key).is_some());
        }
        assert!(map.root.is_none() && map.is_empty());
    }
}
