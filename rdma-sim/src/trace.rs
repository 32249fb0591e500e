use std::fmt;
use std::hash::Hasher;

use rdma_core::Time;
use twox_hash::XxHash3_64;

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
/// XXH3 is specified byte for byte: a digest means the same for ever. Only numbers that the simulation itself made go in: never a pointer, a wall time or the order of a hash table.
pub(crate) struct Trace {
    hasher: XxHash3_64,
    /// Records that are not hashed yet: the hasher prefers to be fed in large pieces.
    pending: Vec<u8>,
    events: u64,
}

/// Bytes of pending records.
const PENDING: usize = 24 * 128;

impl Trace {
    pub(crate) fn new() -> Self {
        Self { hasher: XxHash3_64::new(), pending: Vec::with_capacity(PENDING), events: 0 }
    }

    pub(crate) fn record(&mut self, at: Time, kind: u8, who: u32, what: u64) {
        let mut record = [0; 24];
        record[..8].copy_from_slice(&at.as_nanos().to_le_bytes());
        record[8..16].copy_from_slice(&what.to_le_bytes());
        record[16..20].copy_from_slice(&who.to_le_bytes());
        record[20] = kind;
        self.pending.extend_from_slice(&record);
        if self.pending.len() >= PENDING {
            self.hasher.write(&self.pending);
            self.pending.clear();
        }
        self.events += 1;
    }

    pub(crate) fn digest(&self) -> Digest {
        let mut hasher = self.hasher.clone();
        hasher.write(&self.pending);
        Digest(hasher.finish())
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("events", &self.events).field("digest", &self.digest()).finish()
    }
}
