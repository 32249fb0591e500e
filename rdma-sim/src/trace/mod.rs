//! The events of a simulation: their fingerprint, and records for people

mod export;

pub use self::export::chrome_json;

use std::fmt;
use std::hash::Hasher;

use rdma_core::Time;
use twox_hash::XxHash3_64;

/// A fingerprint of every event of a simulation
///
/// Equal for equal seeds and programs: on every machine, in debug and release. Prints as 16 hexadecimal digits.
///
/// ```
/// use rdma_sim::{Digest, Sim};
///
/// let digest = |faults: &str| -> Digest { Sim::new().faults(faults.parse().unwrap()).run(async |_| ()).digest };
/// assert_eq!(digest("at 0s a:rdma_en2 unplug"), digest("at 0s a:rdma_en2 unplug"));
/// assert_eq!(digest("").to_string().len(), 16);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Digest(u64);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The rolling hash behind a [`Digest`], and the records themselves if they are wanted
///
/// XXH3 is specified byte for byte: a digest means the same for ever. Only numbers that the simulation itself made are
/// hashed: never a pointer, a wall time or the order of a hash table.
pub(crate) struct Trace {
    hasher: XxHash3_64,
    /// Records that are not hashed yet: hashing large pieces is faster
    pending: Vec<u8>,
    events: u64,
    kept: Option<Vec<Record>>,
    /// Whether a program could see the digest
    is_on: bool,
}

/// An event of a simulation
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Its time
    pub time: Time,
    /// Its kind
    pub kind: RecordKind,
    /// The queue pair (its number, and in the upper twelve bits the position of its port), the port, or the fault
    pub subject: u32,
    /// A number of bytes, a status, or both, according to the kind
    pub value: u64,
}

/// The kind of a [`Record`]
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[repr(u8)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A send of so many bytes was posted
    PostSend = 1,
    /// A receive of so many bytes was posted
    PostRecv = 2,
    /// A send completed with a status
    Sent = 3,
    /// A receive completed with a number of bytes, times 256, and a status
    Delivered = 4,
    /// A frame of so many bytes left
    Frame = 5,
    /// A queue pair began to wait for a receive of its peer
    Stall = 6,
    /// A transition of a queue pair to ready-to-receive succeeded or failed
    Connect = 7,
    /// A fault of the plan fired
    Fault = 8,
    /// A cable was plugged in or pulled
    Plugged = 9,
    /// An operation on the memory of the peer left
    OneSided = 10,
}

/// Bytes of pending records
const PENDING: usize = 24 * 128;

impl Trace {
    pub(crate) fn new() -> Self {
        Self {
            hasher: XxHash3_64::new(),
            pending: Vec::with_capacity(PENDING),
            events: 0,
            kept: None,
            is_on: true,
        }
    }

    /// Keeps records from now on
    pub(crate) fn keep(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// Records nothing from now on
    pub(crate) fn stop(&mut self) {
        self.is_on = false;
    }

    /// The records that were kept
    pub(crate) fn records(&self) -> &[Record] {
        self.kept.as_deref().unwrap_or_default()
    }

    pub(crate) fn record(&mut self, at: Time, kind: RecordKind, subject: u32, value: u64) {
        if !self.is_on {
            return;
        }
        let mut record = [0; 24];
        record[..8].copy_from_slice(&at.as_nanos().to_le_bytes());
        record[8..16].copy_from_slice(&value.to_le_bytes());
        record[16..20].copy_from_slice(&subject.to_le_bytes());
        record[20] = kind as u8;
        if let Some(kept) = &mut self.kept {
            kept.push(Record { time: at, kind, subject, value });
        }
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
