//! Fabrics by name: entering and leaving them, their faults and their counters

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_sim::remote::{self, ProcessName};
use rdma_sim::topology::{Host, Port};
use rdma_sim::{CableStats, Fault, FaultKind, FaultPlan, Target, Trigger};
use rustix::process::Signal;

use super::clock;
use super::error::FabricError;
use super::files::{self, MEMORY, is_same, make_directory, open_file};
use super::process::Process;
use super::segment::{self, Segment};
use super::settings::Settings;
use super::wake_pipe::WakePipe;

/// A fabric in shared memory, for as long as the value lives
pub struct SharedFabric {
    name: String,
    directory: PathBuf,
    /// Holds the lock that keeps the fabric.
    file: File,
    /// The process that has entered: a forked child has the lock, too, but no part in the fabric.
    process: u32,
    pub(super) segment: Arc<Segment>,
    settings: Settings,
}

/// The right to be a process of a host
pub(super) struct Claim {
    pub(super) process: ProcessName,
    /// Held for as long as the process is one of the host.
    pub(super) lock: File,
    /// Held while the process becomes one of the host, as no other does meanwhile.
    pub(super) host_lock: File,
}

/// How often a process looks for a free slot: one may be held free for a moment by a process that clears its counts
const CLAIM_ATTEMPTS: u32 = 10;
/// How long a process waits for a lock that others hold for milliseconds
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// How late the latest process of a host was: its events took place, or messages reached it, after the time that the model says
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lateness {
    /// For how long the host was behind
    pub behind: Duration,
    /// By how much it was late at most
    pub worst: Duration,
}

impl Lateness {
    /// A host that is late by no more has kept pace: systems wake processes no sooner
    pub const TOLERANCE: Duration = Duration::from_micros(200);
}

/// That another process holds the lock of `what` for all of `limit`
fn locked(fabric: &str, what: String, limit: Duration) -> FabricError {
    FabricError::Locked { fabric: fabric.to_owned(), what, limit }
}

impl SharedFabric {
    /// The most hosts of a fabric
    pub const MAX_HOSTS: usize = segment::MAX_HOSTS;
    /// The most processes of a host
    pub const MAX_PROCESSES: usize = segment::MAX_PROCESSES;

    /// How often the bytes of a message are copied between two processes: into shared memory, and out of it at the same time
    ///
    /// One copy by the kernel is slower, see the README of this crate.
    pub const COPIES: u32 = 2;

    /// Enters the fabric called `name`, or makes it
    ///
    /// # Errors
    ///
    /// [`FabricError::Name`] if the name is invalid; [`FabricError::Other`] or [`FabricError::Version`] if the fabric exists with
    /// other settings, or was made by another version; [`FabricError::Settings`] if its settings cannot
    /// be read; [`FabricError::Locked`] if a process that makes it hangs; [`FabricError::Foreign`] and [`FabricError::Io`] if the
    /// system refuses.
    pub fn create(name: &str, settings: &Settings) -> Result<Self, FabricError> {
        Self::enter(name, Some(settings))
    }

    /// Enters the fabric called `name`
    ///
    /// # Errors
    ///
    /// [`FabricError::Missing`] if no process is in it; the others as for [`create`](Self::create).
    pub fn open(name: &str) -> Result<Self, FabricError> {
        Self::enter(name, None)
    }

    fn enter(name: &str, wanted: Option<&Settings>) -> Result<Self, FabricError> {
        Self::enter_within(name, wanted, LOCK_LIMIT)
    }

    fn enter_within(name: &str, wanted: Option<&Settings>, limit: Duration) -> Result<Self, FabricError> {
        if !files::is_name(name) {
            return Err(FabricError::Name(name.to_owned()));
        }
        let failed = |what: &str| FabricError::io(format!("fabric {name:?}: {what}"));
        loop {
            let directory = files::base()?.join(name);
            let path = directory.join(MEMORY);
            let share = |file: &File| match files::lock_within(&path, limit, || file.try_lock_shared())? {
                true => Ok(()),
                false => Err(locked(name, "the memory".to_owned(), limit)),
            };
            match wanted.map(|_| make_directory(&directory)) {
                // The last process of another fabric has removed the directory of all fabrics.
                Some(Err(FabricError::Io(_, error))) if error.kind() == io::ErrorKind::NotFound => continue,
                Some(outcome) => outcome?,
                None => (),
            }
            let file = match open_file(&path, wanted.is_some()) {
                Ok(file) => file,
                // The last process has left in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound && wanted.is_some() => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // The directory of a maker that was killed is empty; another is not removed by this.
                    let _ = fs::remove_dir(&directory);
                    // Not removed if there are other fabrics.
                    let _ = directory.parent().map(fs::remove_dir);
                    return Err(FabricError::Missing(name.to_owned()));
                }
                Err(error) => return Err(failed("open")(error)),
            };
            // Exclusive if no other process is in the fabric; else shared with the others.
            let is_alone = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => {
                    share(&file)?;
                    false
                }
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            };
            if !is_same(&file, &path) {
                continue;
            }
            let is_used = file.metadata().map_err(failed("open"))?.len() > 0;
            let segment = match (is_alone, wanted) {
                // A process that was killed has left it behind.
                (true, None) => {
                    files::remove(&directory);
                    return Err(FabricError::Missing(name.to_owned()));
                }
                // Not made anew in place: a process that leaves just now may still access the memory.
                (true, Some(_)) if is_used => {
                    files::remove(&directory);
                    continue;
                }
                (true, Some(settings)) => {
                    let made = files::make(&file, &directory, settings).map_err(failed("make"));
                    // A process that enters between both locks finds a complete fabric.
                    made.inspect_err(|_| files::remove(&directory))?;
                    share(&file)?;
                    if !is_same(&file, &path) {
                        continue;
                    }
                    Segment::open(&file)
                }
                // Its maker was killed: the next process that is alone makes it.
                (false, _) if !Segment::is_finished(&file) => {
                    drop(file);
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                (false, _) => Segment::open(&file),
            };
            let Some(segment) = segment.map_err(failed("map"))? else {
                return Err(FabricError::Version(name.to_owned()));
            };
            let settings = Settings::parse(&segment.settings())?;
            if settings.topology().hosts().len() != segment.hosts() {
                return Err(FabricError::Version(name.to_owned()));
            }
            if let Some(difference) = wanted.and_then(|wanted| wanted.difference(&settings)) {
                return Err(FabricError::Other(name.to_owned(), difference));
            }
            let segment = Arc::new(segment);
            let process = std::process::id();
            return Ok(Self { name: name.to_owned(), directory, file, process, segment, settings });
        }
    }

    /// The names of the fabrics of this user that have processes; removes what is left of others
    ///
    /// # Errors
    ///
    /// [`FabricError::Foreign`] and [`FabricError::Io`] if the system refuses.
    pub fn list() -> Result<Vec<String>, FabricError> {
        let base = files::base()?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&base).map_err(FabricError::io("the fabrics"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match Self::open(&name) {
                // A file that is no directory is no fabric, either.
                Err(FabricError::Missing(_) | FabricError::Name(_) | FabricError::Io(..)) => (),
                _ => names.push(name),
            }
        }
        // Not removed if there are fabrics.
        let _ = fs::remove_dir(&base);
        names.sort();
        Ok(names)
    }

    /// The name
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings that its maker decided
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Schedules a fault for all processes: a line of a plan, whose time counts from the start of the fabric
    ///
    /// # Errors
    ///
    /// [`FabricError::Settings`] if the line is no fault, or its target is not in the topology; [`FabricError::LogFull`];
    /// [`FabricError::Locked`] or [`FabricError::Io`] if the log cannot be locked.
    pub fn add_fault(&self, line: &str) -> Result<(), FabricError> {
        self.log_fault(line, None, LOCK_LIMIT)
    }

    /// Schedules `fault`, which has waited for frames at `position` of the log, unless another process has
    pub(super) fn fire_fault(&self, fault: &Fault, position: usize) -> Result<(), FabricError> {
        self.log_fault(&fault.to_string(), Some(position), LOCK_LIMIT)
    }

    fn log_fault(&self, line: &str, fires: Option<usize>, limit: Duration) -> Result<(), FabricError> {
        let plan = self.settings.check_faults(line)?;
        let lock = files::lock_faults(&self.directory, limit)?
            .ok_or_else(|| locked(&self.name, "the log of faults".to_owned(), limit))?;
        if fires.is_some_and(|position| self.segment.has_fired(position)) {
            return Ok(());
        }
        if !self.segment.add_fault(line, fires) {
            return Err(FabricError::LogFull(self.name.clone()));
        }
        drop(lock);
        self.wake_all();
        plan.0.iter().for_each(|fault| self.continue_stopped(fault));
        Ok(())
    }

    /// Wakes all processes that sleep
    pub(super) fn wake_all(&self) {
        self.segment.processes().for_each(|process| WakePipe::notify_at(&self.pipe(process)));
    }

    /// Continues processes that are stopped and have to take note of a fault
    ///
    /// All processes of the fabric may be stopped, and others may not have seen this one stop.
    fn continue_stopped(&self, fault: &Fault) {
        let is_due = matches!(fault.trigger, Trigger::At(time) if time.as_nanos() <= self.now_ns());
        let is_news = matches!(
            fault.kind,
            FaultKind::Resume
                | FaultKind::Wake
                | FaultKind::Kill
                | FaultKind::Restart
                | FaultKind::Reboot { .. }
        );
        let hosts = self.settings.topology().hosts();
        let host = hosts.iter().position(|host| host.name() == fault.target.host());
        if let (true, true, Some(host)) = (is_due, is_news, host) {
            self.signal_all(host, Signal::CONT);
        }
    }

    /// The faults that were added so far, whether or not they have fired
    pub fn faults(&self) -> Vec<Fault> {
        self.log_of_faults(false)
    }

    /// The faults that have waited for frames and have fired, in that order, each as it fires
    pub fn fired(&self) -> Vec<Fault> {
        self.log_of_faults(true)
    }

    /// The lines of the log that were added, or those by which faults fire
    fn log_of_faults(&self, are_copies: bool) -> Vec<Fault> {
        let log = self.segment.faults_from(0);
        let lines = log
            .split_inclusive('\n')
            .scan(0, |end, line| Some((std::mem::replace(end, *end + line.len()), line)))
            .filter(|(position, _)| self.segment.is_copy(*position) == are_copies);
        lines
            .filter_map(|(_, line)| line.trim_end().parse::<FaultPlan>().ok())
            .flat_map(|plan| plan.0)
            .collect()
    }

    /// The directory of its files, which is removed with all that is in it
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The time since the start of the fabric, in nanoseconds
    pub fn now_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.segment.epoch_ns())
    }

    /// Whether a process of a host has opened a device, also one that has ended
    pub fn has_opened_device(&self, host: usize) -> bool {
        self.segment.has_opened(host)
    }

    /// The process IDs of the processes of a host
    pub fn processes_of(&self, host: usize) -> Vec<u32> {
        let found = self.segment.processes_of(host).filter_map(|process| self.find_process(process));
        found.map(|process| process.pid()).collect()
    }

    pub(super) fn find_process(&self, process: ProcessName) -> Option<Process> {
        let slot = self.segment.slot(process);
        let pid = slot.pid.load(Ordering::Acquire);
        Process::find(pid, slot.started.load(Ordering::Relaxed))
    }

    /// Sends a signal to a process, if there is one of that name
    pub(super) fn signal(&self, process: ProcessName, signal: Signal) {
        if let Some(process) = self.find_process(process) {
            process.signal(signal);
        }
    }

    /// Sends a signal to all processes of a host
    pub(super) fn signal_all(&self, host: usize, signal: Signal) {
        self.segment.processes_of(host).for_each(|process| self.signal(process, signal));
    }

    /// The ports of all hosts, in the order of the topology
    pub fn ports(&self) -> impl Iterator<Item = (&Host, &Port)> {
        let hosts = self.settings.topology().hosts().iter();
        hosts.flat_map(|host| host.ports().iter().map(move |port| (host, port)))
    }

    /// Number of the port whose frames a fault with this target waits for: of a host, its first one with a cable
    pub fn port_of(&self, target: &Target) -> Option<usize> {
        self.ports().position(|(host, port)| match target {
            Target::Port { host: wanted, device } => {
                (wanted.as_str(), device.as_str()) == (host.name(), port.device())
            }
            _ => {
                let mut ends = self.settings.topology().links().flat_map(|link| link.ends);
                target.host() == host.name()
                    && ends.any(|end| (end.host, end.device) == (host.name(), port.device()))
            }
        })
    }

    /// What each of the [`ports`](Self::ports) has sent so far
    pub fn sent(&self) -> Vec<CableStats> {
        let hosts = self.settings.topology().hosts().iter().enumerate();
        let ports = hosts.flat_map(|(number, host)| host.ports().iter().map(move |_| number));
        ports.enumerate().map(|(port, host)| self.sent_from(port, host)).collect()
    }

    /// What all processes of `host` have sent from one of its ports
    pub(super) fn sent_from(&self, port: usize, host: usize) -> CableStats {
        let sent = self.segment.processes_of(host).map(|process| self.segment.port(port, process).load());
        sent.fold(CableStats::default(), |sum, sent| sum + sent)
    }

    /// What the processes of that name have sent from each port
    pub(super) fn sent_by(&self, process: ProcessName) -> Vec<CableStats> {
        (0..self.ports().count()).map(|port| self.segment.port(port, process).load()).collect()
    }

    /// How late the processes of a host were, if cables are as fast as modelled; `None` if the host has kept pace
    pub fn lateness(&self, host: usize) -> Option<Lateness> {
        let late = self.segment.processes_of(host).map(|process| self.segment.slot(process).lateness.load());
        let (behind, worst) = late
            .fold((Duration::ZERO, Duration::ZERO), |most, late| (most.0.max(late.0), most.1.max(late.1)));
        (worst > Duration::ZERO).then_some(Lateness { behind, worst })
    }

    /// The pipe that wakes a process
    pub(super) fn pipe(&self, process: ProcessName) -> PathBuf {
        files::pipe(&self.directory, process)
    }

    /// Whether this is the copy of a forked child
    pub(super) fn is_of_a_fork(&self) -> bool {
        self.process != std::process::id()
    }

    /// Leaves the fabric, and removes it if no other process is in it
    pub(super) fn leave(&self) {
        if self.is_of_a_fork() {
            return;
        }
        let path = self.directory.join(MEMORY);
        if self.file.unlock().is_ok() && self.file.try_lock().is_ok() && is_same(&self.file, &path) {
            files::remove(&self.directory);
        }
    }

    /// Allocates the memory that a process uses
    pub(super) fn reserve(&self, process: ProcessName) -> io::Result<()> {
        let topology = self.settings.topology();
        let name = topology.hosts()[process.host as usize].name();
        let cables = topology.links().filter(|link| link.ends.iter().any(|end| end.host == name));
        let ends = cables.flat_map(|link| link.ends).map(|end| end.host);
        let names: Vec<_> = ends.filter(|end| *end != name).collect();
        let hosts = topology.hosts().iter().enumerate();
        let peers: Vec<_> =
            hosts.filter(|(_, other)| names.contains(&other.name())).map(|(number, _)| number).collect();
        self.segment.reserve(&self.file, process, &peers)
    }

    /// Makes this process one of a host, for as long as its lock is held
    pub(super) fn claim(&self, host: usize) -> Result<Claim, FabricError> {
        self.claim_within(host, LOCK_LIMIT)
    }

    fn claim_within(&self, host: usize, limit: Duration) -> Result<Claim, FabricError> {
        let name = || self.settings.topology().hosts()[host].name().to_owned();
        let Some(host_lock) = files::lock_host(&self.directory, host, limit)? else {
            return Err(locked(&self.name, format!("host {:?}", name()), limit));
        };
        for attempt in 0..CLAIM_ATTEMPTS {
            for number in 0..remote::MAX_PROCESSES {
                let process = ProcessName { host: host as u32, number };
                if let Some(lock) = files::claim_slot(&self.directory, process)? {
                    return Ok(Claim { process, lock, host_lock });
                }
            }
            if attempt + 1 < CLAIM_ATTEMPTS {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Err(FabricError::Taken { fabric: self.name.clone(), host: name(), pids: self.processes_of(host) })
    }

    /// Whether a host has other processes than `process`; the caller holds the lock to claim the host
    pub(super) fn has_siblings(&self, process: ProcessName) -> Result<bool, FabricError> {
        for number in (0..remote::MAX_PROCESSES).filter(|number| *number != process.number) {
            if files::hold_free(&self.directory, ProcessName { number, ..process })?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for SharedFabric {
    fn drop(&mut self) {
        self.leave();
    }
}

impl std::fmt::Debug for SharedFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFabric").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
