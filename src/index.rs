//! From the hash of a key to the number that a list of keys has it under: the index of a table's segment, and of the list
//! of a Replace. The keys themselves are in the list.
//!
//! Linear probing: a number lies at the bucket that its hash belongs to, or at the next free one after it. A bucket is
//! eight bytes, and one look at it nearly always decides, because it holds the whole hash; so a lookup touches one line
//! here and the key. hashbrown's table touches two (tags and buckets), which are misses of their own in a large table: with
//! it in this place, adding 1,000,000 keys took 1.3 to 1.5 times as long (`docs/PERFORMANCE.md`).

use std::hash::{BuildHasher, Hash};

/// The hash of a key: 32 bits are plenty to choose a segment and a bucket, and keep a ticket small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHash(u32);

impl KeyHash {
    #[inline]
    pub(crate) fn of(hasher: &impl BuildHasher, key: &impl Hash) -> Self {
        let hash = hasher.hash_one(key);
        // A hasher may leave either half as good as empty; the multiplication spreads what there is. The factor is
        // 2^64 divided by the golden ratio.
        KeyHash((hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32)
    }

    /// Its highest bits, `bits` of them (at least one): the segment.
    // The stand-ins have two shards, and look at every row.
    #[cfg_attr(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")), allow(dead_code))]
    #[inline]
    pub(crate) fn high(self, bits: u32) -> u32 {
        self.0 >> (32 - bits)
    }

    /// Its lowest bit: the shard of a stand-in.
    #[cfg(any(test, all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
    pub(crate) fn low_bit(self) -> usize {
        self.0 as usize & 1
    }
}

/// The next size of an array that is too small: a quarter more, not twice as much, because these arrays are what an idle
/// key costs. Always the same sizes, so that a table which grows and shrinks again and again ends up where it was.
pub(crate) fn size_above(size: usize) -> usize {
    let mut above = 8;
    while above <= size {
        above += if above < 64 { above } else { above / 4 };
    }
    above
}

#[derive(Clone, Copy)]
struct Bucket {
    hash: KeyHash,
    number: u32,
}

const FREE: Bucket = Bucket { hash: KeyHash(0), number: u32::MAX };

impl Bucket {
    #[inline]
    fn is_free(self) -> bool {
        self.number == u32::MAX
    }
}

/// An index of numbers below `u32::MAX` by the hashes of their keys. At most three of four buckets are taken.
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    len: usize,
}

impl Index {
    pub(crate) const fn new() -> Self {
        Index { buckets: Vec::new(), len: 0 }
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut index = Index::new();
        index.resize(capacity + capacity / 3 + 1);
        index
    }

    /// The bucket that a hash belongs to.
    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        // Keys of one segment agree in the high bits of their hashes, so the low ones have to count here.
        let spread = hash.0.wrapping_mul(0x9E37_79B1);
        ((u64::from(spread) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    /// The bucket of the number with this hash that `is` accepts.
    #[inline]
    fn bucket(&self, hash: KeyHash, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        // Ends, because there is always a free bucket.
        loop {
            let bucket = self.buckets[at];
            if bucket.is_free() {
                return None;
            }
            if bucket.hash == hash && is(bucket.number) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// The number with this hash that `is` accepts: the one whose key is equal.
    #[inline]
    pub(crate) fn find(&self, hash: KeyHash, is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.bucket(hash, is).map(|at| self.buckets[at].number)
    }

    pub(crate) fn insert(&mut self, hash: KeyHash, number: u32) {
        debug_assert!(number != u32::MAX, "this one marks free buckets");
        if (self.len + 1) * 4 > self.buckets.len() * 3 {
            self.resize(size_above(self.buckets.len()));
        }
        self.len += 1;
        self.place(Bucket { hash, number });
    }

    fn place(&mut self, bucket: Bucket) {
        let mut at = self.home(bucket.hash);
        while !self.buckets[at].is_free() {
            at = self.after(at);
        }
        self.buckets[at] = bucket;
    }

    fn resize(&mut self, buckets: usize) {
        let old = std::mem::replace(&mut self.buckets, vec![FREE; buckets]);
        for bucket in old {
            if !bucket.is_free() {
                self.place(bucket);
            }
        }
    }

    /// Removes a number that was inserted with this hash.
    // The stand-ins have two shards, and look at every row.
    #[cfg_attr(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")), allow(dead_code))]
    pub(crate) fn remove(&mut self, hash: KeyHash, number: u32) {
        let Some(mut gap) = self.bucket(hash, |other| other == number) else { return };
        self.len -= 1;
        // A lookup ends at a free bucket, so whoever had to go past this one moves up.
        let mut at = self.after(gap);
        while !self.buckets[at].is_free() {
            let home = self.home(self.buckets[at].hash);
            let is_between = if gap <= at { gap < home && home <= at } else { gap < home || home <= at };
            if !is_between {
                self.buckets[gap] = self.buckets[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.buckets[gap] = FREE;
        if self.buckets.len() > 64 && self.len < self.buckets.len() / 8 {
            self.resize(size_above(self.len * 2));
        }
    }

    /// The keys have got other numbers. `u32::MAX`: there is no such key any more, which was removed with another hash
    /// than it was inserted with.
    #[cfg_attr(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")), allow(dead_code))]
    pub(crate) fn renumber(&mut self, now: impl Fn(u32) -> u32) {
        let mut stale = 0;
        for bucket in &mut self.buckets {
            if !bucket.is_free() {
                bucket.number = now(bucket.number);
                stale += usize::from(bucket.is_free());
            }
        }
        if stale > 0 {
            self.len -= stale;
            self.resize(self.buckets.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

    use super::*;

    /// The same operations on a map of std's; few hashes, so that most keys do not lie where they belong.
    #[test]
    fn does_what_a_map_does() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let spread = [1, 5, 100, u32::MAX][seed as usize % 4];
            let hash_of = |number: u32| KeyHash(number.wrapping_mul(0x9E37_79B9) % spread);
            let mut index = if rng.bool() { Index::new() } else { Index::with_capacity(rng.usize(..40)) };
            let mut map = HashMap::new();
            for _ in 0..600 {
                let number = rng.u32(..150);
                match rng.u32(..8) {
                    0..=3 => {
                        if map.insert(number, ()).is_none() {
                            index.insert(hash_of(number), number);
                        }
                    }
                    4..=6 => {
                        map.remove(&number);
                        index.remove(hash_of(number), number);
                    }
                    _ => {
                        index.renumber(|number| number + 1_000);
                        let gone = rng.u32(..150);
                        index.renumber(|number| if number - 1_000 == gone { u32::MAX } else { number - 1_000 });
                        map.remove(&gone);
                    }
                }
                assert_eq!(index.len, map.len(), "seed {seed}");
                assert!(index.len * 4 <= index.buckets.len() * 3, "seed {seed}: no bucket is free");
            }
            for number in 0..150 {
                let found = index.find(hash_of(number), |other| other == number);
                assert_eq!(found.is_some(), map.contains_key(&number), "seed {seed}, number {number}");
            }
        }
    }

    #[test]
    fn gives_its_memory_back() {
        let mut index = Index::new();
        let hash_of = |number: u32| KeyHash::of(&BuildHasherDefault::<DefaultHasher>::default(), &number);
        (0..100_000).for_each(|number| index.insert(hash_of(number), number));
        (0..100_000).for_each(|number| index.remove(hash_of(number), number));
        assert!(index.buckets.len() <= 64, "{} buckets for nothing", index.buckets.len());
    }

    /// A hasher that changes nothing, as users have for numbers, still finds its buckets at once.
    #[test]
    fn a_poor_hasher_does_not_pile_up() {
        #[derive(Default)]
        struct Same(u64);
        impl Hasher for Same {
            fn finish(&self) -> u64 {
                self.0
            }
            fn write(&mut self, _: &[u8]) {
                unreachable!("for numbers")
            }
            fn write_u64(&mut self, number: u64) {
                self.0 = number;
            }
        }
        for step in [1, 64, 1_000, 1 << 32, 1 << 48] {
            let mut index = Index::new();
            let hashes: Vec<_> = (0..10_000u64)
                .map(|n| KeyHash::of(&BuildHasherDefault::<Same>::default(), &n.wrapping_mul(step)))
                // One segment of 64.
                .filter(|hash| hash.high(6) == 7)
                .collect();
            assert!(
                (100..250).contains(&hashes.len()),
                "step {step}: {} of 10,000 in one of 64 segments",
                hashes.len()
            );
            let mut looks = 0;
            hashes.iter().zip(0..).for_each(|(&hash, number)| index.insert(hash, number));
            for (hash, number) in hashes.iter().zip(0..) {
                let home = index.home(*hash);
                let at = index.bucket(*hash, |other| other == number).expect("it is there");
                looks += 1 + (at + index.buckets.len() - home) % index.buckets.len();
            }
            assert!(looks < hashes.len() * 8, "step {step}: {looks} looks for {} keys", hashes.len());
        }
    }
}
