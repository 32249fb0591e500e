//! The memory that the processes of a fabric share
//!
//! A header that does not change once it is complete, a log of faults, a slot for each process that a host may have, counters for
//! each port, and a [ring](super::ring) for each ordered pair of slots. A process may be killed between any two instructions: it publishes by
//! one store of a counter, and a record that it has not published does not exist.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use rdma_sim::CableStats;
use rdma_sim::remote::ProcessName;
use rdma_sim::topology::MacModel;
use rustix::fs::{FallocateFlags, fallocate};

use super::ring::{RING_BYTES, RingMemory};
use super::sleep_flag::SleepFlag;

/// Identifies the file and its version: other versions do not share memory with this one
const MAGIC: u64 = {
    let (version, mut hash, mut at) =
        (env!("CARGO_PKG_VERSION").as_bytes(), u64::from_le_bytes(*b"rdmasim8"), 0);
    while at < version.len() {
        hash = (hash ^ version[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
};
const TEXT_BYTES: usize = 64 * 1024;
/// Marks of lines in the log of faults
const FIRED: u8 = 1;
const COPY: u8 = 2;

/// More hosts do not share memory: rings grow with their square
pub(crate) const MAX_HOSTS: usize = 32;
/// The most processes of a host
pub(crate) const MAX_PROCESSES: usize = rdma_sim::remote::MAX_PROCESSES as usize;
const MAX_PORTS: usize = MAX_HOSTS * MacModel::MAX_PORTS;
/// Kinds of objects that are counted
pub(super) const OBJECT_KINDS: usize = 4;

/// The position of a process among those that all hosts may have
pub(crate) const fn index(process: ProcessName) -> usize {
    process.host as usize * MAX_PROCESSES + process.number as usize
}

/// The memory before the rings; zeros are valid for all of it
#[repr(C)]
struct Header {
    /// Stored last.
    magic: AtomicU64,
    /// The start of the fabric, in nanoseconds of the system's monotonic clock.
    epoch_ns: AtomicU64,
    hosts: AtomicU32,
    settings_len: AtomicU32,
    /// The length of the log of faults in bytes; in the upper half, one more than the position of the fault that fires with its last
    /// line, or 0. Both are published by one store, so that no process is killed between them.
    log: AtomicU64,
    settings: [AtomicU8; TEXT_BYTES],
    faults: [AtomicU8; TEXT_BYTES],
    /// By position in the log: [`FIRED`] for a fault that has waited for frames and has fired, of which that of the last line may be
    /// missing; [`COPY`] for the line by which such a fault fires.
    fired: [AtomicU8; TEXT_BYTES],
    /// How many slots of each host were ever claimed.
    claimed: [AtomicU32; MAX_HOSTS],
    /// Whether a process of each host has opened a device.
    opened: [AtomicU8; MAX_HOSTS],
    slots: [Slot; MAX_HOSTS * MAX_PROCESSES],
    /// For each port and process.
    ports: [PortCounters; MAX_PORTS * MAX_PROCESSES],
    /// For each port and kind, how many objects each process has, 16 bits for each.
    objects: [AtomicU64; MAX_PORTS * OBJECT_KINDS],
    /// For each port and kind, the objects that ended processes have leaked, and in the upper half the restart of the host that they
    /// were leaked after.
    leaked: [AtomicU64; MAX_PORTS * OBJECT_KINDS],
}

/// A process of a host
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// 0 if there is no process.
    pub(crate) pid: AtomicU32,
    /// Grows with each process that claims the slot.
    pub(crate) incarnation: AtomicU32,
    pub(crate) sleep_flag: SleepFlag,
    /// How often the host had restarted when the process claimed the slot.
    pub(crate) boots: AtomicU32,
    /// When the process started, in the unit of the system; stored before `pid`.
    pub(crate) started: AtomicU64,
    pub(crate) lateness: LatenessCounters,
}

/// How late a process of a host was; added to by one process after another
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct LatenessCounters {
    total_ns: AtomicU64,
    worst_ns: AtomicU64,
}

impl LatenessCounters {
    /// Notes that the host was behind for `time`, by up to `worst`
    pub(crate) fn add(&self, time: Duration, worst: Duration) {
        self.total_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.worst_ns.fetch_max(worst.as_nanos() as u64, Ordering::Relaxed);
    }

    /// For how long the host was behind, and by how much at most
    pub(crate) fn load(&self) -> (Duration, Duration) {
        let [total, worst] = [&self.total_ns, &self.worst_ns].map(|ns| ns.load(Ordering::Relaxed));
        (Duration::from_nanos(total), Duration::from_nanos(worst))
    }
}

/// What has been sent from a port, by one process after another in the same slot
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    frames: AtomicU64,
    messages: AtomicU64,
    payload_bytes: AtomicU64,
    wire_bytes: AtomicU64,
    stalls: AtomicU64,
}

impl PortCounters {
    pub(crate) fn load(&self) -> CableStats {
        let mut stats = CableStats::default();
        for (counter, count) in self.each(&mut stats) {
            *count = counter.load(Ordering::Relaxed);
        }
        stats
    }

    pub(crate) fn store(&self, mut stats: CableStats) {
        for (counter, count) in self.each(&mut stats) {
            counter.store(*count, Ordering::Relaxed);
        }
    }

    /// Each counter with its field of `stats`
    fn each<'a>(&'a self, stats: &'a mut CableStats) -> [(&'a AtomicU64, &'a mut u64); 5] {
        [
            (&self.frames, &mut stats.frames),
            (&self.messages, &mut stats.messages),
            (&self.payload_bytes, &mut stats.payload_bytes),
            (&self.wire_bytes, &mut stats.wire_bytes),
            (&self.stalls, &mut stats.stalls),
        ]
    }
}

/// The mapped memory
pub(crate) struct Segment {
    map: MmapRaw,
    hosts: usize,
}

/// Where the rings begin
const RINGS_AT: usize = size_of::<Header>().next_multiple_of(4096);

/// Bytes of a fabric of so many hosts
const fn len(hosts: usize) -> usize {
    let slots = hosts * MAX_PROCESSES;
    RINGS_AT + slots * slots * RingMemory::BYTES
}

/// Allocates pages, on Linux
fn reserve(file: &File, range: Range<usize>) -> io::Result<()> {
    if cfg!(target_os = "linux") {
        fallocate(file, FallocateFlags::empty(), range.start as u64, range.len() as u64)?;
    }
    Ok(())
}

/// Maps a file; a forked child does not have the memory, so that it cannot write to the rings of its parent
fn map(file: &File, len: usize) -> io::Result<MmapRaw> {
    let map = MmapOptions::new().len(len).map_raw(file)?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::DontFork)?;
    #[cfg(target_os = "macos")]
    // SAFETY: the range is that of the mapping, whose inheritance is the only thing that changes.
    if unsafe { libc::minherit(map.as_mut_ptr().cast(), len, libc::VM_INHERIT_NONE) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(map)
}

impl Segment {
    /// Creates the memory of a fabric in an empty file
    pub(crate) fn create(file: &File, settings: &str, hosts: usize, now_ns: u64) -> io::Result<Self> {
        if settings.len() > TEXT_BYTES || hosts > MAX_HOSTS {
            let why = format!("at most {MAX_HOSTS} hosts, described in 64 KiB, share memory");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        file.set_len(len(hosts) as u64)?;
        reserve(file, 0..RINGS_AT)?;
        let segment = Self { map: map(file, len(hosts))?, hosts };
        let header = segment.header();
        write_text(&header.settings, settings);
        header.epoch_ns.store(now_ns, Ordering::Relaxed);
        header.hosts.store(hosts as u32, Ordering::Relaxed);
        header.settings_len.store(settings.len() as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Whether the memory is complete: its maker stores the version last
    pub(crate) fn is_finished(file: &File) -> bool {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0).is_ok() && magic != [0; 8]
    }

    /// Allocates the pages that `process` writes or reads: rings from and to the processes of `peers`, counters of all others
    ///
    /// A system that runs out of memory later would kill a process at its first access to a page that is not allocated. Of two
    /// processes, the one with the higher number allocates the rings between them: a host with one process needs no more memory
    /// than that.
    pub(crate) fn reserve(&self, file: &File, process: ProcessName, peers: &[usize]) -> io::Result<()> {
        for host in 0..self.hosts {
            for number in 0..MAX_PROCESSES as u32 {
                let other = ProcessName { host: host as u32, number };
                let has_records = peers.contains(&host) && number <= process.number;
                let len = if has_records { RingMemory::BYTES } else { RingMemory::BYTES - RING_BYTES };
                for start in [self.ring_at(process, other), self.ring_at(other, process)] {
                    reserve(file, start..start + len)?;
                }
            }
        }
        Ok(())
    }

    fn ring_at(&self, from: ProcessName, to: ProcessName) -> usize {
        let slots = self.hosts * MAX_PROCESSES;
        RINGS_AT + (index(from) * slots + index(to)) * RingMemory::BYTES
    }

    /// Maps the memory of a fabric; `None` if it was not finished, or is of another version
    pub(crate) fn open(file: &File) -> io::Result<Option<Self>> {
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if bytes < RINGS_AT {
            return Ok(None);
        }
        let mut segment = Self { map: map(file, bytes)?, hosts: 0 };
        let header = segment.header();
        let is_ours = header.magic.load(Ordering::Acquire) == MAGIC;
        let hosts = header.hosts.load(Ordering::Relaxed) as usize;
        if !is_ours || hosts > MAX_HOSTS || len(hosts) != bytes {
            return Ok(None);
        }
        segment.hosts = hosts;
        Ok(Some(segment))
    }

    fn header(&self) -> &Header {
        // SAFETY: the map is at least that long, aligned to a page and lives as long as `self`; the header consists of atomic
        // numbers, for which every bit pattern is valid and which other processes may change at any time.
        unsafe { &*self.map.as_mut_ptr().cast() }
    }

    pub(crate) fn epoch_ns(&self) -> u64 {
        self.header().epoch_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts
    }

    pub(crate) fn slot(&self, process: ProcessName) -> &Slot {
        &self.header().slots[index(process)]
    }

    /// How many slots of a host were ever claimed
    pub(crate) fn claimed(&self, host: usize) -> u32 {
        self.header().claimed[host].load(Ordering::Acquire).min(MAX_PROCESSES as u32)
    }

    /// Notes that a process claims its slot
    pub(crate) fn note_claim(&self, process: ProcessName) {
        self.header().claimed[process.host as usize].fetch_max(process.number + 1, Ordering::AcqRel);
    }

    /// Whether a process of a host has opened a device
    pub(crate) fn has_opened(&self, host: usize) -> bool {
        self.header().opened[host].load(Ordering::Relaxed) != 0
    }

    /// Notes that a process of a host has opened a device
    pub(crate) fn note_opened(&self, host: usize) {
        self.header().opened[host].store(1, Ordering::Relaxed);
    }

    /// The slots that were ever claimed
    pub(crate) fn processes(&self) -> impl Iterator<Item = ProcessName> + '_ {
        (0..self.hosts).flat_map(move |host| self.processes_of(host))
    }

    /// The slots of a host that were ever claimed
    pub(crate) fn processes_of(&self, host: usize) -> impl Iterator<Item = ProcessName> + use<> {
        (0..self.claimed(host)).map(move |number| ProcessName { host: host as u32, number })
    }

    /// What a process has sent from a port
    pub(crate) fn port(&self, port: usize, process: ProcessName) -> &PortCounters {
        &self.header().ports[port * MAX_PROCESSES + process.number as usize]
    }

    /// How many objects of a kind the processes of a host have on one of its ports: 16 bits for each process
    pub(super) fn objects(&self, port: usize, kind: usize) -> &AtomicU64 {
        &self.header().objects[port * OBJECT_KINDS + kind]
    }

    /// The objects of this kind that ended processes of a host have leaked on one of its ports
    pub(super) fn leaked(&self, port: usize, kind: usize) -> &AtomicU64 {
        &self.header().leaked[port * OBJECT_KINDS + kind]
    }

    /// The ring from one process to another
    pub(crate) fn ring(&self, from: ProcessName, to: ProcessName) -> RingMemory {
        let is_inside = |process: ProcessName| index(process) < self.hosts * MAX_PROCESSES;
        assert!(is_inside(from) && is_inside(to));
        // SAFETY: the rings of all slots of so many hosts are inside.
        let start = unsafe { self.map.as_mut_ptr().add(self.ring_at(from, to)) };
        // SAFETY: the memory of the ring is mapped, aligned, and used as a ring only; the holders of rings keep the segment.
        unsafe { RingMemory::new(start) }
    }

    // ─── Texts ───

    pub(crate) fn settings(&self) -> String {
        let len = self.header().settings_len.load(Ordering::Relaxed) as usize;
        read_text(&self.header().settings[..len.min(TEXT_BYTES)])
    }

    /// Bytes of the log of faults
    pub(crate) fn faults_len(&self) -> usize {
        (self.header().log.load(Ordering::Acquire) as u32 as usize).min(TEXT_BYTES)
    }

    /// The log of faults from an offset on
    pub(crate) fn faults_from(&self, start: usize) -> String {
        read_text(self.header().faults[..self.faults_len()].get(start..).unwrap_or_default())
    }

    /// Whether the fault at `position` of the log has waited for frames and has fired
    pub(crate) fn has_fired(&self, position: usize) -> bool {
        // The log is loaded first: what fires after that stores all earlier marks before.
        let is_last = self.fired_last() == Some(position);
        is_last || self.mark(position) == FIRED
    }

    /// Whether a fault that has waited for frames fires by the line at `position` of the log
    pub(crate) fn is_copy(&self, position: usize) -> bool {
        self.mark(position) == COPY
    }

    fn mark(&self, position: usize) -> u8 {
        self.header().fired.get(position).map_or(0, |mark| mark.load(Ordering::Relaxed))
    }

    /// The position of the fault that fires with the last line of the log
    fn fired_last(&self) -> Option<usize> {
        ((self.header().log.load(Ordering::Acquire) >> 32) as usize).checked_sub(1)
    }

    /// Adds to the log of faults; returns false if it is full. The caller holds the lock of the fabric.
    ///
    /// With `fires`, the line is the fault at that position, which has waited for frames and fires now.
    pub(crate) fn add_fault(&self, line: &str, fires: Option<usize>) -> bool {
        let header = self.header();
        if let Some(fired) = self.fired_last().and_then(|position| header.fired.get(position)) {
            fired.store(FIRED, Ordering::Relaxed);
        }
        let (start, end) = (self.faults_len(), self.faults_len() + line.len() + 1);
        let Some(place) = header.faults.get(start..end) else { return false };
        write_text(place, &format!("{line}\n"));
        // A process that was killed here may have left a mark.
        header.fired[start].store(if fires.is_some() { COPY } else { 0 }, Ordering::Relaxed);
        let fires = fires.map_or(0, |position| position as u64 + 1);
        header.log.store(fires << 32 | end as u64, Ordering::Release);
        true
    }
}

fn write_text(place: &[AtomicU8], text: &str) {
    for (place, byte) in place.iter().zip(text.bytes()) {
        place.store(byte, Ordering::Relaxed);
    }
}

fn read_text(text: &[AtomicU8]) -> String {
    let bytes: Vec<_> = text.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
