//! The events of a simulation: their fingerprint, and records for people

mod chrome;
mod history;
mod lines;
mod mark;
mod page;
mod record;
mod timeline;

pub use self::history::History;
pub(crate) use self::history::{Names, PortName};
pub(crate) use self::mark::{Mark, MarkContent};
pub(crate) use self::record::{Ending, Wait};
pub use self::record::{Record, RecordKind};

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
    pending: Box<[[u8; RECORD]; PENDING]>,
    /// How many of them there are
    filled: usize,
    events: u64,
    mode: Mode,
    kept: Vec<Record>,
    /// How the messages of the posted sends begin, in their order
    beginnings: Vec<Box<[u8]>>,
}

/// How many bytes of each message are kept with the records
pub(crate) const BEGINNING: usize = 32;

/// What becomes of an event beside its hash
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    /// It is forgotten
    Hash,
    /// Its record is kept
    Keep,
    /// It is not even hashed: no program could see the digest
    Off,
    /// Its record is kept, and it is not hashed
    KeepOnly,
}

/// Bytes of a record that are hashed
const RECORD: usize = 24;
/// Most pending records
const PENDING: usize = 128;

impl Trace {
    pub(crate) fn new() -> Self {
        Self {
            hasher: XxHash3_64::new(),
            pending: Box::new([[0; RECORD]; PENDING]),
            filled: 0,
            events: 0,
            mode: Mode::Hash,
            kept: Vec::new(),
            beginnings: Vec::new(),
        }
    }

    /// Keeps records from now on
    pub(crate) fn keep(&mut self) {
        self.mode = Mode::Keep;
    }

    /// Hashes nothing from now on
    pub(crate) fn stop(&mut self) {
        self.mode = if self.keeps() { Mode::KeepOnly } else { Mode::Off };
    }

    /// Whether records are kept
    pub(crate) fn keeps(&self) -> bool {
        matches!(self.mode, Mode::Keep | Mode::KeepOnly)
    }

    /// The records that were kept
    pub(crate) fn records(&self) -> &[Record] {
        &self.kept
    }

    #[inline]
    pub(crate) fn record(&mut self, at: Time, kind: RecordKind, subject: u32, value: u64) {
        self.record_with(at, kind, subject, value, 0);
    }

    /// Records an event with a detail, which is not hashed
    #[inline]
    pub(crate) fn record_with(
        &mut self,
        time: Time,
        kind: RecordKind,
        subject: u32,
        value: u64,
        detail: u64,
    ) {
        self.events += 1;
        if self.mode != Mode::Hash {
            if self.keeps() {
                self.note(time, kind, subject, value, detail);
            }
            if self.mode != Mode::Keep {
                return;
            }
        }
        // Two pieces rather than four fields: that is fast without optimisation, too.
        let head = u128::from(time.as_nanos()) | u128::from(value) << 64;
        let tail = u64::from(subject) | u64::from(kind as u8) << 32;
        let record = &mut self.pending[self.filled];
        record[..16].copy_from_slice(&head.to_le_bytes());
        record[16..].copy_from_slice(&tail.to_le_bytes());
        self.filled += 1;
        if self.filled == PENDING {
            self.hash_pending();
        }
    }

    #[cold]
    #[inline(never)]
    fn hash_pending(&mut self) {
        self.hasher.write(self.pending.as_flattened());
        self.filled = 0;
    }

    /// Keeps a record that is not hashed, if records are kept
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&mut self, time: Time, kind: RecordKind, subject: u32, value: u64, detail: u64) {
        if self.keeps() {
            self.kept.push(Record { time, kind, subject, value, detail });
        }
    }

    /// Notes how the message of the send begins that was recorded last
    pub(crate) fn note_beginning(&mut self, bytes: Box<[u8]>) {
        self.beginnings.push(bytes);
    }

    /// How the messages of the posted sends begin, in their order
    pub(crate) fn beginnings(&self) -> &[Box<[u8]>] {
        &self.beginnings
    }

    /// Notes that queue pairs drop their requests, if records are kept
    pub(crate) fn note_dropped(&mut self, time: Time, qps: impl IntoIterator<Item = u32>, why: Ending) {
        if self.keeps() {
            qps.into_iter().for_each(|qp| self.note(time, RecordKind::Dropped, qp, why as u64, 0));
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        let mut hasher = self.hasher.clone();
        hasher.write(self.pending[..self.filled].as_flattened());
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
