//! The files of a fabric
//!
//! A fabric is a directory. It has the file of the shared memory. For each slot of a process it has a file, which the process locks for as
//! long as it is in the slot, and a [pipe](WakePipe) that wakes the process. For each host it has a file, which a process locks while it
//! becomes one of the host. Processes of the fabric hold a shared lock of the memory's file. The last of them removes the directory; if it was killed, the next process
//! that makes or lists fabrics does. Locks end with their process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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

/// The file whose lock the process of that name holds
pub(super) fn process_lock(directory: &Path, process: ProcessName) -> io::Result<File> {
    open_file(&directory.join(format!("{}.{}.lock", process.host, process.number)), true)
}

/// Keeps the slot of a process free for as long as the value lives; `None` if a process is in it
///
/// Several processes may do so at once: only one that claims the slot holds its lock alone.
pub(super) fn hold_free(directory: &Path, process: ProcessName) -> Option<File> {
    let lock = process_lock(directory, process).ok()?;
    lock.try_lock_shared().is_ok().then_some(lock)
}

/// The file whose lock a process holds while it becomes one of a host
pub(super) fn host_lock(directory: &Path, host: usize) -> io::Result<File> {
    open_file(&directory.join(format!("{host}.lock")), true)
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
