//! The object of the workloads, and the generator that draws keys. The programs in `benches/rivals` have the same.

use std::sync::Arc;

use delta_fifo::Keyed;

/// Key, version and payload. The key is made once; later versions share it.
pub struct Object {
    pub key: Arc<str>,
    pub rv: u64,
    payload: [u8; 64],
}

impl Object {
    /// What a producer makes for an update: a new object under the same key.
    pub fn fresh(&self) -> Arc<Object> {
        Arc::new(Object { key: self.key.clone(), rv: self.rv + 1, payload: self.payload })
    }
}

impl Keyed for Object {
    fn key(&self) -> Arc<str> {
        self.key.clone()
    }
}

pub fn object(key: impl Into<Arc<str>>) -> Arc<Object> {
    Arc::new(Object { key: key.into(), rv: 0, payload: [0; 64] })
}

pub fn objects(n: usize) -> Vec<Arc<Object>> {
    (0..n).map(|i| object(format!("ns-{:02}/pod-{i:07}", i % 50))).collect()
}

pub const SEED: u64 = 7;

/// The generator of all programs here: small enough to be written again in each language, so that all of them draw
/// the same keys.
pub struct SplitMix64(pub u64);

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
        let sums = (1..=n).map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        });
        Zipf(sums.collect())
    }

    pub fn draw(&self, rng: &mut SplitMix64) -> usize {
        let last = self.0.len() - 1;
        let x = rng.float() * self.0[last];
        self.0.partition_point(|&sum| sum < x).min(last)
    }
}

/// How keys are drawn.
#[derive(Clone, Copy, PartialEq)]
pub enum Draw {
    Zipf,
    Uniform,
}

/// One list of object indices per producer, drawn before the clock starts. Producer `p` of `n` has the keys that are
/// `p` modulo `n`.
pub fn draws(draw: Draw, keys: usize, updates: usize, producers: usize) -> Vec<Vec<u32>> {
    let (mut rng, ranks) = (SplitMix64(SEED), Zipf::new(keys));
    let mut next = || match draw {
        Draw::Zipf => ranks.draw(&mut rng),
        Draw::Uniform => rng.below(keys),
    };
    let own = |k: usize, p: usize| (k / producers * producers + p) % keys;
    (0..producers).map(|p| (0..updates / producers).map(|_| own(next(), p) as u32).collect()).collect()
}
