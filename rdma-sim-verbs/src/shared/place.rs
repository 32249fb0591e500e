//! Named fabrics: where their files are, who is there, and who cleans up
//!
//! A fabric is a directory of its own: the shared memory, a file per host whose lock says that somebody is that host, and a bell
//! per host. Everybody who is in it holds a shared lock of the memory's file. Who leaves and finds nobody else removes the
//! directory; what the last one could not remove, because it was killed, is removed by whoever makes or lists fabrics next.
//! Locks end with their process, however it ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rdma_sim::topology::{Host, Port};
use rdma_sim::{Fault, FaultKind, FaultPlan, Target, Trigger};

use super::bell;
use super::segment::Segment;
use super::settings::{Settings, SettingsError};

/// Why there is no fabric of that name, or no place in it
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The name is not one
    #[error("{0:?} is no name of a fabric: up to 64 letters, digits, '-', '_' and '.', and no '.' first")]
    Name(String),
    /// There is no fabric of that name
    #[error("there is no fabric called {0:?}")]
    Missing(String),
    /// Another version made it
    #[error(
        "fabric {0:?} was made by another version of this library; end its processes, or choose another name"
    )]
    Version(String),
    /// It has other settings than those that were asked for
    #[error("fabric {0:?} exists and is another: {1}; choose another name")]
    Other(String, String),
    /// Somebody is that host already
    #[error(
        "host {host:?} of fabric {fabric:?} is taken by process {pid}: each process is a host of its own"
    )]
    Taken {
        /// The fabric
        fabric: String,
        /// The host
        host: String,
        /// Who is it
        pid: u32,
    },
    /// There is no such host
    #[error("fabric {fabric:?} has no host {host:?}; its hosts are {hosts}")]
    NoHost {
        /// The fabric
        fabric: String,
        /// The host
        host: String,
        /// Those that exist
        hosts: String,
    },
    /// The log of faults is full
    #[error("the log of faults of fabric {0:?} is full")]
    LogFull(String),
    /// Its directory is somebody else's
    #[error("{0:?} belongs to another user")]
    Foreign(PathBuf),
    /// What the fabric says of itself makes no sense
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The system refused something
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
}

impl FabricError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io(what, error)
    }
}

/// A fabric in shared memory, for as long as the value lives
pub struct SharedFabric {
    name: String,
    directory: PathBuf,
    /// Holds the lock that says that somebody is here.
    file: File,
    /// Who has entered: a fork has the lock, too, but no part in the fabric.
    process: u32,
    pub(super) segment: Arc<Segment>,
    settings: Settings,
}

/// The directory of the fabrics of this user
fn base() -> Result<PathBuf, FabricError> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    // SAFETY: the call has no preconditions.
    let user = unsafe { libc::geteuid() };
    let base = parent.join(format!("rdma-sim-{user}"));
    make_directory(&base)?;
    let found = fs::symlink_metadata(&base).map_err(FabricError::io("the fabrics"))?;
    if !found.is_dir() || found.uid() != user {
        return Err(FabricError::Foreign(base));
    }
    Ok(base)
}

fn make_directory(path: &Path) -> Result<(), FabricError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FabricError::Io(path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
}

const SEGMENT: &str = "memory";

fn open_file(path: &Path, creates: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(creates).truncate(false).mode(0o600).open(path)
}

/// Whether `path` still leads to `file`
fn is_same(file: &File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| a.dev() == b.dev() && a.ino() == b.ino();
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(a, b)| same(a, b))
}

impl SharedFabric {
    /// Joins the fabric called `name`, or makes it
    ///
    /// # Errors
    ///
    /// The name is not one; the fabric has other settings, or is of another version; the system refuses.
    pub fn create(name: &str, settings: &Settings) -> Result<Self, FabricError> {
        Self::enter(name, Some(settings))
    }

    /// Joins the fabric called `name`
    ///
    /// # Errors
    ///
    /// There is none, or it is of another version; the system refuses.
    pub fn open(name: &str) -> Result<Self, FabricError> {
        Self::enter(name, None)
    }

    fn enter(name: &str, wanted: Option<&Settings>) -> Result<Self, FabricError> {
        if !is_name(name) {
            return Err(FabricError::Name(name.to_owned()));
        }
        let failed = |what: &str| FabricError::io(format!("fabric {name:?}: {what}"));
        loop {
            let directory = base()?.join(name);
            let path = directory.join(SEGMENT);
            match wanted.map(|_| make_directory(&directory)) {
                // The last one of another fabric has removed the directory of all of them.
                Some(Err(FabricError::Io(_, error))) if error.kind() == io::ErrorKind::NotFound => continue,
                Some(outcome) => outcome?,
                None => (),
            }
            let file = match open_file(&path, wanted.is_some()) {
                Ok(file) => file,
                // The last one has left in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound && wanted.is_some() => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Not if there is something in it: whoever was about to make something of it was killed.
                    let _ = fs::remove_dir(&directory);
                    // Not if there are others.
                    let _ = directory.parent().map(fs::remove_dir);
                    return Err(FabricError::Missing(name.to_owned()));
                }
                Err(error) => return Err(failed("open")(error)),
            };
            // Alone, if nobody is there; else beside the others.
            let is_alone = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => {
                    file.lock_shared().map_err(failed("lock"))?;
                    false
                }
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            };
            if !is_same(&file, &path) {
                continue;
            }
            let is_used = file.metadata().map_err(failed("open"))?.len() > 0;
            let segment = match (is_alone, wanted) {
                // Whatever is there was left behind.
                (true, None) => {
                    remove(&directory);
                    return Err(FabricError::Missing(name.to_owned()));
                }
                // It is not made anew: somebody who leaves just now may still look at it.
                (true, Some(_)) if is_used => {
                    remove(&directory);
                    continue;
                }
                (true, Some(settings)) => {
                    let made = make(&file, &directory, settings).map_err(failed("make"));
                    // From a lock for one to a lock for many: whoever slips in between sees a whole fabric.
                    made.inspect_err(|_| remove(&directory))?;
                    file.lock_shared().map_err(failed("lock"))?;
                    if !is_same(&file, &path) {
                        continue;
                    }
                    Segment::open(&file)
                }
                // Whoever was making it has been killed: the next one who is alone makes it.
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
            if let Some(difference) = wanted.and_then(|wanted| wanted.difference(&settings)) {
                return Err(FabricError::Other(name.to_owned(), difference));
            }
            let segment = Arc::new(segment);
            let process = std::process::id();
            return Ok(Self { name: name.to_owned(), directory, file, process, segment, settings });
        }
    }

    /// The names of the fabrics of this user in which somebody is; removes what is left of others
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn list() -> Result<Vec<String>, FabricError> {
        let base = base()?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&base).map_err(FabricError::io("the fabrics"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match Self::open(&name) {
                // What is no directory is no fabric, either.
                Err(FabricError::Missing(_) | FabricError::Name(_) | FabricError::Io(..)) => (),
                _ => names.push(name),
            }
        }
        // Not if somebody is there.
        let _ = fs::remove_dir(&base);
        names.sort();
        Ok(names)
    }

    /// The name
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was decided when it was made
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Has a fault happen: a line of a plan, whose time counts from the beginning of the fabric
    ///
    /// # Errors
    ///
    /// It is no fault, or has no place here; the log is full.
    pub fn add_fault(&self, line: &str) -> Result<(), FabricError> {
        let plan = self.settings.check_faults(line)?;
        // One at a time.
        let lock = open_file(&self.directory.join("faults.lock"), true)
            .map_err(FabricError::io("the log of faults"))?;
        lock.lock().map_err(FabricError::io("the log of faults"))?;
        if !self.segment.add_fault(line) {
            return Err(FabricError::LogFull(self.name.clone()));
        }
        drop(lock);
        (0..self.segment.hosts()).for_each(|host| bell::ring(&self.bell(host)));
        plan.0.iter().for_each(|fault| self.go_on_with(fault));
        Ok(())
    }

    /// Has a process that is stopped hear of a fault: there may be nobody else to do it, or only some who never saw it stop
    fn go_on_with(&self, fault: &Fault) {
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
            signal(self.process_of(host), libc::SIGCONT);
        }
    }

    /// The faults that were asked for so far, whether or not they have happened
    pub fn faults(&self) -> Vec<Fault> {
        let log = self.segment.faults_from(0);
        log.lines().filter_map(|line| line.parse::<FaultPlan>().ok()).flat_map(|plan| plan.0).collect()
    }

    /// Where its files are; files that are put beside them go with it
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The time since the beginning, in nanoseconds
    pub fn now_ns(&self) -> u64 {
        super::clock::now_ns().saturating_sub(self.segment.epoch_ns())
    }

    /// Who is the host of that number; 0 if nobody is
    pub fn process_of(&self, host: usize) -> u32 {
        let pid = self.segment.slot(host).pid.load(std::sync::atomic::Ordering::Acquire);
        // SAFETY: signal 0 is never delivered.
        let is_gone = unsafe { libc::kill(pid as i32, 0) } == -1
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if is_gone { 0 } else { pid }
    }

    /// All ports, in the order of hosts and of their ports
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

    /// What each of the [`ports`](Self::ports) has sent
    pub fn sent(&self) -> Vec<Sent> {
        let load =
            |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        let sent = |port| {
            let counters = self.segment.port(port);
            Sent {
                frames: load(&counters.frames),
                messages: load(&counters.messages),
                payload_bytes: load(&counters.payload_bytes),
                wire_bytes: load(&counters.wire_bytes),
                stalls: load(&counters.stalls),
            }
        };
        (0..self.ports().count()).map(sent).collect()
    }

    pub(super) fn bell(&self, host: usize) -> PathBuf {
        self.directory.join(format!("{host}.bell"))
    }

    /// Whether this is a copy in a process that was forked from the one that is here
    pub(super) fn is_of_a_fork(&self) -> bool {
        self.process != std::process::id()
    }

    /// Has no part in the fabric any more, and removes it if nobody has
    pub(super) fn leave(&self) {
        if self.is_of_a_fork() {
            return;
        }
        let path = self.directory.join(SEGMENT);
        if self.file.unlock().is_ok() && self.file.try_lock().is_ok() && is_same(&self.file, &path) {
            remove(&self.directory);
        }
    }

    /// Makes sure that there is memory for what a host writes
    pub(super) fn reserve(&self, host: usize) -> io::Result<()> {
        let topology = self.settings.topology();
        let name = topology.hosts()[host].name();
        let cables = topology.links().filter(|link| link.ends.iter().any(|end| end.host == name));
        let names: Vec<_> = cables.flat_map(|link| link.ends).map(|end| end.host).collect();
        let hosts = topology.hosts().iter().enumerate();
        let peers: Vec<_> =
            hosts.filter(|(_, other)| names.contains(&other.name())).map(|(number, _)| number).collect();
        self.segment.reserve(&self.file, host, &peers)
    }

    /// Takes the place of a host: the lock that is returned says so
    pub(super) fn take(&self, host: usize) -> Result<File, FabricError> {
        let name = self.settings.topology().hosts()[host].name().to_owned();
        let path = self.directory.join(format!("{host}.lock"));
        let file = open_file(&path, true).map_err(FabricError::io(format!("host {name:?}")))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(_) => {
                Err(FabricError::Taken { fabric: self.name.clone(), host: name, pid: self.process_of(host) })
            }
        }
    }
}

/// What a port has sent
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Sent {
    /// Frames
    pub frames: u64,
    /// Messages
    pub messages: u64,
    /// Bytes of messages
    pub payload_bytes: u64,
    /// Bytes on the wire
    pub wire_bytes: u64,
    /// How often a queue pair had to wait for a receive of its peer
    pub stalls: u64,
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

/// Sends a signal to a process, if it is one
pub(super) fn signal(pid: u32, signal: i32) {
    if pid != 0 {
        // SAFETY: a signal to a process has no preconditions; one that is not there is not found.
        unsafe { libc::kill(pid as i32, signal) };
    }
}

fn make(file: &File, directory: &Path, settings: &Settings) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_name() != SEGMENT {
            fs::remove_file(entry.path())?;
        }
    }
    let hosts = settings.topology().hosts();
    for host in 0..hosts.len() {
        bell::make(&directory.join(format!("{host}.bell")))?;
    }
    let ports = hosts.iter().map(|host| host.ports().len()).sum();
    Segment::create(file, &settings.to_text(), hosts.len(), ports, super::clock::now_ns()).map(drop)
}

/// Removes a fabric's directory; the memory's file last, so that whoever finds it finds its lock
fn remove(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name() != SEGMENT) {
        // What cannot be removed is tried again by the next one.
        let _ = fs::remove_file(entry.path());
    }
    let _ = fs::remove_file(directory.join(SEGMENT));
    let _ = fs::remove_dir(directory);
    let _ = directory.parent().map(fs::remove_dir);
}

#[cfg(test)]
mod tests;
