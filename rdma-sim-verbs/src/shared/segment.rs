//! The memory that the processes of a fabric share
//!
//! A header that does not change once it is complete, a log of faults, a slot for each host, counters for each port, and a
//! [ring](super::ring) for each ordered pair of hosts. A process may be killed between any two instructions: it publishes by
//! one store of a counter, and a record that it has not published does not exist.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::doorbell::Doorbell;
use super::ring::{RING_BYTES, RingMemory};

/// Identifies the file and its version: other versions do not share memory with this one
const MAGIC: u64 = {
    let (version, mut hash, mut at) =
        (env!("CARGO_PKG_VERSION").as_bytes(), u64::from_le_bytes(*b"rdmasim1"), 0);
    while at < version.len() {
        hash = (hash ^ version[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
};
const SETTINGS_AT: usize = 4096;
const SETTINGS_BYTES: usize = 64 * 1024;
const FAULTS_AT: usize = SETTINGS_AT + SETTINGS_BYTES;
const FAULTS_BYTES: usize = 64 * 1024;
const SLOTS_AT: usize = FAULTS_AT + FAULTS_BYTES;

/// More hosts do not share memory: rings grow with their square
pub(crate) const MAX_HOSTS: usize = 32;
const MAX_PORTS: usize = MAX_HOSTS * MAX_HOSTS;

#[repr(C)]
struct Header {
    /// Stored last.
    magic: AtomicU64,
    /// The start of the fabric, in nanoseconds of the system's monotonic clock.
    epoch_ns: AtomicU64,
    hosts: AtomicU32,
    ports: AtomicU32,
    settings_len: AtomicU32,
    faults_len: AtomicU32,
}

/// The process of a host
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// 0 if there is no process.
    pub(crate) pid: AtomicU32,
    /// Grows with each process that claims the host.
    pub(crate) incarnation: AtomicU32,
    pub(crate) doorbell: Doorbell,
    /// When the process started, in the unit of the system; stored before `pid`.
    pub(crate) started: AtomicU64,
}

/// What has been sent from a port
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) frames: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) payload_bytes: AtomicU64,
    pub(crate) wire_bytes: AtomicU64,
    pub(crate) stalls: AtomicU64,
}

/// Where the parts are
#[derive(Clone, Copy, Debug)]
struct Plan {
    hosts: usize,
    ports: usize,
}

impl Plan {
    const fn ports_at(self) -> usize {
        SLOTS_AT + self.hosts * size_of::<Slot>()
    }

    const fn rings_at(self) -> usize {
        (self.ports_at() + self.ports * size_of::<PortCounters>()).next_multiple_of(4096)
    }

    const fn len(self) -> usize {
        self.rings_at() + self.hosts * self.hosts * RingMemory::BYTES
    }
}

/// The mapped memory
pub(crate) struct Segment {
    map: MmapRaw,
    plan: Plan,
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, range: Range<usize>) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    // SAFETY: the descriptor is open; the call changes no memory that is mapped.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), range.start as i64, range.len() as i64) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _range: Range<usize>) -> io::Result<()> {
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
    pub(crate) fn create(
        file: &File,
        settings: &str,
        hosts: usize,
        ports: usize,
        now_ns: u64,
    ) -> io::Result<Self> {
        if settings.len() > SETTINGS_BYTES || hosts > MAX_HOSTS || ports > MAX_PORTS {
            let why = format!(
                "at most {MAX_HOSTS} hosts with {MAX_PORTS} ports, described in 64 KiB, share memory"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let plan = Plan { hosts, ports };
        file.set_len(plan.len() as u64)?;
        reserve(file, 0..plan.rings_at())?;
        let segment = Self { map: map(file, plan.len())?, plan };
        segment.write_text(SETTINGS_AT, settings);
        let header = segment.header();
        header.epoch_ns.store(now_ns, Ordering::Relaxed);
        header.hosts.store(hosts as u32, Ordering::Relaxed);
        header.ports.store(ports as u32, Ordering::Relaxed);
        header.settings_len.store(settings.len() as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Whether the memory is complete: its maker stores the version last
    pub(crate) fn is_finished(file: &File) -> bool {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0).is_ok() && magic != [0; 8]
    }

    /// Allocates the pages that `host` writes, and those of the counters that it reads
    ///
    /// A system that runs out of memory later would kill a process at its first access to a page that is not allocated.
    pub(crate) fn reserve(&self, file: &File, host: usize, peers: &[usize]) -> io::Result<()> {
        for other in 0..self.plan.hosts {
            let [there, back] = [(host, other), (other, host)].map(|(from, to)| self.ring_at(from, to));
            let len = if peers.contains(&other) { RingMemory::BYTES } else { RingMemory::BYTES - RING_BYTES };
            reserve(file, there..there + len)?;
            reserve(file, back..back + RingMemory::BYTES - RING_BYTES)?;
        }
        Ok(())
    }

    fn ring_at(&self, from: usize, to: usize) -> usize {
        self.plan.rings_at() + (from * self.plan.hosts + to) * RingMemory::BYTES
    }

    /// Maps the memory of a fabric; `None` if it was not finished, or is of another version
    pub(crate) fn open(file: &File) -> io::Result<Option<Self>> {
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if len < SLOTS_AT {
            return Ok(None);
        }
        let mut segment = Self { map: map(file, len)?, plan: Plan { hosts: 0, ports: 0 } };
        let header = segment.header();
        let plan = Plan {
            hosts: header.hosts.load(Ordering::Relaxed) as usize,
            ports: header.ports.load(Ordering::Relaxed) as usize,
        };
        let is_ours = header.magic.load(Ordering::Acquire) == MAGIC;
        if !is_ours || plan.hosts > MAX_HOSTS || plan.ports > MAX_PORTS || plan.len() != len {
            return Ok(None);
        }
        segment.plan = plan;
        Ok(Some(segment))
    }

    fn header(&self) -> &Header {
        self.at(0)
    }

    /// The value at an offset
    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.map.len() && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: the offset was just found to be inside.
        let place = unsafe { self.map.as_mut_ptr().add(offset) };
        // SAFETY: the map is aligned to a page and lives as long as `self`; the types here are atomic numbers, for which every
        // bit pattern is valid and which other processes may change at any time.
        unsafe { &*place.cast::<T>() }
    }

    pub(crate) fn epoch_ns(&self) -> u64 {
        self.header().epoch_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn hosts(&self) -> usize {
        self.plan.hosts
    }

    pub(crate) fn slot(&self, host: usize) -> &Slot {
        assert!(host < self.plan.hosts);
        self.at(SLOTS_AT + host * size_of::<Slot>())
    }

    pub(crate) fn port(&self, port: usize) -> &PortCounters {
        assert!(port < self.plan.ports);
        self.at(self.plan.ports_at() + port * size_of::<PortCounters>())
    }

    /// The ring from one host to another
    pub(crate) fn ring(&self, from: usize, to: usize) -> RingMemory {
        let hosts = self.plan.hosts;
        assert!(from < hosts && to < hosts);
        let offset = self.ring_at(from, to);
        assert!(offset + RingMemory::BYTES <= self.map.len() && RING_BYTES > 0);
        // SAFETY: the whole ring was just found to be inside.
        let start = unsafe { self.map.as_mut_ptr().add(offset) };
        // SAFETY: the memory of the ring is mapped, aligned, and used as a ring only; the holders of rings keep the segment.
        unsafe { RingMemory::new(start) }
    }

    // ─── Texts ───

    pub(crate) fn settings(&self) -> String {
        self.read_text(
            SETTINGS_AT,
            (self.header().settings_len.load(Ordering::Relaxed) as usize).min(SETTINGS_BYTES),
        )
    }

    /// Bytes of the log of faults
    pub(crate) fn faults_len(&self) -> usize {
        (self.header().faults_len.load(Ordering::Acquire) as usize).min(FAULTS_BYTES)
    }

    /// The log of faults from an offset on
    pub(crate) fn faults_from(&self, start: usize) -> String {
        self.read_text(FAULTS_AT + start, self.faults_len().saturating_sub(start))
    }

    /// Adds to the log of faults; returns false if it is full. The caller holds the lock of the fabric.
    pub(crate) fn add_fault(&self, line: &str) -> bool {
        let len = self.faults_len();
        if len + line.len() + 1 > FAULTS_BYTES {
            return false;
        }
        self.write_text(FAULTS_AT + len, line);
        self.write_text(FAULTS_AT + len + line.len(), "\n");
        self.header().faults_len.store((len + line.len() + 1) as u32, Ordering::Release);
        true
    }

    fn write_text(&self, offset: usize, text: &str) {
        assert!(offset + text.len() <= SLOTS_AT);
        for (number, byte) in text.bytes().enumerate() {
            self.at::<std::sync::atomic::AtomicU8>(offset + number).store(byte, Ordering::Relaxed);
        }
    }

    fn read_text(&self, offset: usize, len: usize) -> String {
        assert!(offset + len <= SLOTS_AT);
        let byte = |number| self.at::<std::sync::atomic::AtomicU8>(offset + number).load(Ordering::Relaxed);
        String::from_utf8_lossy(&(0..len).map(byte).collect::<Vec<_>>()).into_owned()
    }
}
