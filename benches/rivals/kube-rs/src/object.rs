//! The object of the workloads, the same as in the other programs, and the generator that draws keys.

use std::borrow::Cow;
use std::sync::Arc;

use kube_runtime::reflector::Lookup;

/// Key, version and payload. The key is made once; copies share it.
#[derive(Clone)]
pub struct Object {
    key: Arc<str>,
    /// Where the slash is in `key`.
    slash: usize,
    pub index: u32,
    pub rv: u64,
    _payload: [u8; 64],
}

impl Object {
    /// What a watch hands over for the `rv`-th update: kube-rs wants the object itself, not a pointer to it.
    pub fn updated(&self, rv: u64) -> Object {
        Object { rv, ..self.clone() }
    }
}

pub fn objects(n: usize) -> Vec<Object> {
    (0..n)
        .map(|i| {
            let key: Arc<str> = format!("ns-{:02}/pod-{i:07}", i % 50).into();
            let slash = key.find('/').expect("the format above has a slash");
            Object { key, slash, index: i as u32, rv: 0, _payload: [0; 64] }
        })
        .collect()
}

/// kube-rs's view of the object. Version and UID are left out, so that an `ObjectRef` allocates no more than the
/// two strings that it cannot do without.
impl Lookup for Object {
    type DynamicType = ();

    fn kind((): &()) -> Cow<'_, str> {
        "Object".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "bench".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "objects".into()
    }
    fn name(&self) -> Option<Cow<'_, str>> {
        Some(self.key[self.slash + 1..].into())
    }
    fn namespace(&self) -> Option<Cow<'_, str>> {
        Some(self.key[..self.slash].into())
    }
    fn resource_version(&self) -> Option<Cow<'_, str>> {
        None
    }
    fn uid(&self) -> Option<Cow<'_, str>> {
        None
    }
}

/// The generator of all programs here: small enough to be written again in each language, so that all of them draw
/// the same keys.
pub struct SplitMix64(pub u64);

pub const SEED: u64 = 7;

impl SplitMix64 {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform over `0.0..1.0`.
    pub fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform over `0..n`, but for a bias of `n` in 2^53.
    pub fn below(&mut self, n: usize) -> usize {
        (self.float() * n as f64) as usize
    }
}

/// Draws ranks `0..n`, rank `r` with a weight of `1 / (r + 1)^0.99`.
pub struct Zipf(Vec<f64>);

impl Zipf {
    pub fn new(n: usize) -> Zipf {
        let mut sum = 0.0;
        Zipf(
            (1..=n)
                .map(|rank| {
                    sum += (rank as f64).powf(-0.99);
                    sum
                })
                .collect(),
        )
    }

    pub fn draw(&self, rng: &mut SplitMix64) -> usize {
        let last = self.0.len() - 1;
        let x = rng.float() * self.0[last];
        self.0.partition_point(|&sum| sum < x).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those published for SplitMix64; the Go program has the same test.
    #[test]
    fn generator_is_the_same_everywhere() {
        let mut rng = SplitMix64(1_234_567);
        for want in [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423] {
            assert_eq!(rng.next(), want);
        }
    }

    #[test]
    fn zipf_weights() {
        let (mut rng, ranks) = (SplitMix64(SEED), Zipf::new(10_000));
        let mut counts = vec![0_u32; 10_000];
        for _ in 0..200_000 {
            counts[ranks.draw(&mut rng)] += 1;
        }
        for rank in [0, 1, 9] {
            let want = 200_000.0 * ((rank + 1) as f64).powf(-0.99) / ranks.0[9_999];
            let got = f64::from(counts[rank]);
            assert!((got - want).abs() < 0.05 * want, "rank {rank} was drawn {got} times, want about {want:.0}");
        }
    }
}
