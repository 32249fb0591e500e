use std::fmt;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The one source of everything that is not determined by the program under test
pub trait Choices: fmt::Debug + Send {
    /// A number below `n`; zero is the plain case, and the answer if `n` is zero
    fn pick(&mut self, n: u32) -> u32;
}

/// Choices drawn from a seeded generator
///
/// The generator is named (xoshiro256++) and portable: a seed means the same on every machine.
#[derive(Clone, Debug)]
pub struct Seeded(Xoshiro256PlusPlus);

impl Seeded {
    /// The choices that belong to `seed`
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }
}

impl Choices for Seeded {
    fn pick(&mut self, n: u32) -> u32 {
        let product = u64::from(self.0.next_u32()) * u64::from(n);
        (product >> 32) as u32
    }
}
