use std::fmt;
use std::hash::Hasher;

use rdma_core::Time;
use siphasher::sip::SipHasher13;

/// A fingerprint of everything that happened in a simulation
///
/// Equal for equal seeds and programs: on every machine, in debug and release. Prints as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Digest(u64);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The rolling hash behind a [`Digest`]
///
/// Only numbers that the simulation itself made go in: never a pointer, a wall time or the order of a hash table.
#[derive(Debug)]
pub(crate) struct Trace {
    hasher: SipHasher13,
    events: u64,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self { hasher: SipHasher13::new(), events: 0 }
    }

    pub(crate) fn record(&mut self, at: Time, kind: u8, who: u32, what: u64) {
        self.hasher.write_u64((at.as_nanos() << 8) | u64::from(kind));
        self.hasher.write_u64(u64::from(who));
        self.hasher.write_u64(what);
        self.events += 1;
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest(self.hasher.finish())
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}
