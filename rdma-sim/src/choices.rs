use std::fmt;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Something that a simulation does next: it polls a task, or fires an event
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Tells the step from others that are possible at the same time; equal in all runs that were equal so far
    pub id: u64,
    /// The hosts that the step may change or look at, a bit for each; all bits, if they are not known
    pub hosts: u64,
}

impl Step {
    /// Whether both orders of the two steps lead to the same
    pub fn commutes_with(&self, other: &Self) -> bool {
        self.hosts & other.hosts == 0
    }
}

/// The one source of everything that the program under test does not determine
///
/// ```
/// use rdma_sim::{Bytes, Choices, Recorded, Seeded, Sim};
///
/// // By seed, written down, or from the bytes of a fuzzer:
/// let mut sources: [Box<dyn Choices>; 3] =
///     [Box::new(Seeded::new(7)), Box::new(Recorded::new([5, 4])), Box::new(Bytes::new(*b"fuzzer"))];
/// assert!(sources.iter_mut().all(|source| source.pick(6) < 6));
///
/// let run = |choices| Sim::new().choices(choices).run(async |net| net.pick(100)).value;
/// assert_eq!(run(Recorded::new([42])), 42);
/// assert_eq!(run(Recorded::new([])), 0, "zero is the plain case");
/// ```
pub trait Choices: fmt::Debug + Send {
    /// A number below `n`; zero is the plain case, and the answer if `n` is zero
    fn pick(&mut self, n: u32) -> u32;

    /// Which of several steps that may come in any order is next; `None` ends the run, as one that others have shown already
    fn order(&mut self, steps: &[Step]) -> Option<usize> {
        match steps {
            [_] => Some(0),
            steps => Some(self.pick(steps.len() as u32) as usize),
        }
    }

    /// The seed that the choices belong to, if they come from one
    fn seed(&self) -> Option<u64> {
        None
    }
}

/// Choices drawn from a seeded generator
///
/// The generator (xoshiro256++) is portable: a seed means the same on every machine.
#[derive(Clone, Debug)]
pub struct Seeded {
    seed: u64,
    generator: Xoshiro256PlusPlus,
}

impl Seeded {
    /// The choices that belong to `seed`
    pub fn new(seed: u64) -> Self {
        Self { seed, generator: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }
}

impl Choices for Seeded {
    fn pick(&mut self, n: u32) -> u32 {
        let product = u64::from(self.generator.next_u32()) * u64::from(n);
        (product >> 32) as u32
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }
}

/// Choices that were written down, and the plain case after them
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recorded {
    choices: Vec<u32>,
    next: usize,
}

impl Recorded {
    /// These choices, in this order
    pub fn new(choices: impl Into<Vec<u32>>) -> Self {
        Self { choices: choices.into(), next: 0 }
    }
}

impl Choices for Recorded {
    fn pick(&mut self, n: u32) -> u32 {
        if n < 2 {
            return 0;
        }
        let Some(choice) = self.choices.get(self.next) else { return 0 };
        self.next += 1;
        choice % n
    }
}

/// Choices from the bytes of a fuzzer, two for each, and the plain case after them
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bytes {
    bytes: Vec<u8>,
    next: usize,
}

impl Bytes {
    /// These bytes, in this order
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), next: 0 }
    }
}

impl Choices for Bytes {
    fn pick(&mut self, n: u32) -> u32 {
        if n < 2 {
            return 0;
        }
        let Some(&[low, high]) = self.bytes.get(self.next..).and_then(|rest| rest.first_chunk()) else {
            return 0;
        };
        self.next += 2;
        u32::from(u16::from_le_bytes([low, high])) % n
    }
}
