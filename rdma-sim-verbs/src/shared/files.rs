//! The files of a fabric
//!
//! A fabric is a directory. It has the file of the shared memory. For each slot of a process it has a file, which the process locks for as
//! long as it is in the slot, and a [pipe](WakePipe) that wakes the process. For each host it has a file, which a process locks while it
//! becomes one of the host. For its log of faults it has a file, which a process locks while it writes to the log. Processes of the fabric hold a shared lock of the memory's file. The last of them removes the directory; if it was killed, the next process
//! that makes or lists fabrics does. Locks end with their process.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rdma_sim::remote::{MAX_PROCESSES, ProcessName};

use super::clock;
use super::error::FabricError;
use super::segment::Segment;
use super::settings::Settings;
use super::wake_pipe::WakePipe;

/// The file of the shared memory in the directory of a fabric
pub(super) const MEMORY: &str = "memory";

/// The directory of the fabrics of this user
pub(super) fn base() -> Result<PathBuf, FabricError> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let user = rustix::process::geteuid().as_raw();
    let base = parent.join(format!("rdma-sim-{user}"));
    make_directory(&base)?;
    let found = fs::symlink_metadata(&base).map_err(FabricError::io("the fabrics"))?;
    if !found.is_dir() || found.uid() != user {
        return Err(FabricError::Foreign(base));
    }
    Ok(base)
}

pub(super) fn make_directory(path: &Path) -> Result<(), FabricError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FabricError::Io(path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Whether `name` may be the name of a fabric
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
}

pub(super) fn open_file(path: &Path, creates: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(creates).truncate(false).mode(0o600).open(path)
}

/// Whether `path` still leads to `file`
pub(super) fn is_same(file: &File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| a.dev() == b.dev() && a.ino() == b.ino();
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(a, b)| same(a, b))
}

/// The pipe that wakes a process
pub(super) fn pipe(directory: &Path, process: ProcessName) -> PathBuf {
    directory.join(format!("{}.{}.pipe", process.host, process.number))
}

/// Claims the slot of a process for as long as the value lives; `None` if a process is in it, or holds it free
///
/// # Errors
///
/// [`FabricError::Io`] with the path of the lock if the system refuses it.
pub(super) fn claim_slot(directory: &Path, process: ProcessName) -> Result<Option<File>, FabricError> {
    let (path, lock) = slot_lock(directory, process)?;
    Ok(is_locked(&path, lock.try_lock())?.then_some(lock))
}

/// Keeps the slot of a process free for as long as the value lives; `None` if a process is in it
///
/// Several processes may do so at once: only one that claims the slot holds its lock alone.
///
/// # Errors
///
/// [`FabricError::Io`] with the path of the lock if the system refuses it.
pub(super) fn hold_free(directory: &Path, process: ProcessName) -> Result<Option<File>, FabricError> {
    let (path, lock) = slot_lock(directory, process)?;
    Ok(is_locked(&path, lock.try_lock_shared())?.then_some(lock))
}

/// The lock file of a slot: the process in the slot holds its lock
fn slot_lock(directory: &Path, process: ProcessName) -> Result<(PathBuf, File), FabricError> {
    open_lock(directory.join(format!("{}.{}.lock", process.host, process.number)))
}

/// Holds the lock that a process has while it becomes one of a host; `None` if another process holds it for all of `limit`
///
/// # Errors
///
/// [`FabricError::Io`] with the path of the lock if the system refuses it.
pub(super) fn lock_host(directory: &Path, host: usize, limit: Duration) -> Result<Option<File>, FabricError> {
    lock_alone(directory.join(format!("{host}.lock")), limit)
}

/// Holds the lock of the log of faults, to which one process at a time writes; `None` if another process holds it for all of `limit`
///
/// # Errors
///
/// [`FabricError::Io`] with the path of the lock if the system refuses it.
pub(super) fn lock_faults(directory: &Path, limit: Duration) -> Result<Option<File>, FabricError> {
    lock_alone(directory.join("faults.lock"), limit)
}

fn lock_alone(path: PathBuf, limit: Duration) -> Result<Option<File>, FabricError> {
    let (path, lock) = open_lock(path)?;
    let is_mine = lock_within(&path, limit, || lock.try_lock())?;
    Ok(is_mine.then_some(lock))
}

/// Takes the lock of `path` by `try_lock`; false if another process holds it for all of `limit`
///
/// # Errors
///
/// [`FabricError::Io`] with the path if the system refuses it.
pub(super) fn lock_within(
    path: &Path,
    limit: Duration,
    try_lock: impl Fn() -> Result<(), TryLockError>,
) -> Result<bool, FabricError> {
    let deadline = clock::now_ns() + limit.as_nanos() as u64;
    while !is_locked(path, try_lock())? {
        if clock::now_ns() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

fn open_lock(path: PathBuf) -> Result<(PathBuf, File), FabricError> {
    let lock = open_file(&path, true).map_err(FabricError::io(path.display().to_string()))?;
    Ok((path, lock))
}

/// Whether the lock of `path` was taken, rather than held by another process
fn is_locked(path: &Path, outcome: Result<(), TryLockError>) -> Result<bool, FabricError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(FabricError::Io(path.display().to_string(), error)),
    }
}

/// Fills the directory of a new fabric, whose empty memory is `file`
pub(super) fn make(file: &File, directory: &Path, settings: &Settings) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_name() != MEMORY {
            fs::remove_file(entry.path())?;
        }
    }
    let hosts = settings.topology().hosts().len();
    for host in 0..hosts as u32 {
        for number in 0..MAX_PROCESSES {
            WakePipe::create(&pipe(directory, ProcessName { host, number }))?;
        }
    }
    Segment::create(file, &settings.to_text(), hosts, clock::now_ns()).map(drop)
}

/// Removes the directory of a fabric; the memory's file last, so that a process that finds it finds its lock
pub(super) fn remove(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name() != MEMORY) {
        // The next process that makes or lists fabrics tries again.
        let _ = fs::remove_file(entry.path());
    }
    let _ = fs::remove_file(directory.join(MEMORY));
    let _ = fs::remove_dir(directory);
    let _ = directory.parent().map(fs::remove_dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a lock that the system refuses and that counts as held by another process: its host would seem full.
    #[test]
    fn a_lock_that_the_system_refuses_is_an_error_with_its_path() {
        let path = Path::new("/fabric/0.1.lock");
        assert!(is_locked(path, Ok(())).unwrap());
        assert!(!is_locked(path, Err(TryLockError::WouldBlock)).unwrap());
        let refused = io::Error::from_raw_os_error(libc::ENOLCK);
        let error = is_locked(path, Err(TryLockError::Error(refused))).unwrap_err().to_string();
        assert!(error.starts_with("/fabric/0.1.lock: "), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let process = ProcessName { host: 0, number: 1 };
        fs::create_dir(directory.path().join("0.1.lock")).unwrap();
        fs::create_dir(directory.path().join("0.lock")).unwrap();
        let refused = [
            claim_slot(directory.path(), process),
            hold_free(directory.path(), process),
            lock_host(directory.path(), 0, Duration::ZERO),
        ];
        for (refused, name) in refused.into_iter().zip(["0.1.lock", "0.1.lock", "0.lock"]) {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(&format!("/{name}: ")), "{error}");
        }
    }
}
