//! Files that the programs find under absolute paths: the provider, and the names of the hosts

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};

/// The path of the verbs provider on a Mac, which some programs open as it is
pub(super) const PROVIDER: &str = "/usr/lib/librdma.dylib";
const HOSTS: &str = "/etc/hosts";

/// Places files for this process and those that it starts; no other process finds them
///
/// This process has mounts of its own.
pub(super) fn place(provider: &Path, hosts: &str) -> io::Result<()> {
    let path = Path::new(PROVIDER);
    let exists = path.exists();
    if exists {
        mount_bind(provider, path)?;
    }
    // Files lie in memory, below a directory that has its own content again afterwards.
    let work = std::env::temp_dir();
    mount_memory(&work)?;
    let place = || -> io::Result<()> {
        if !exists {
            extend(&path.with_file_name(""), &work.join("lib"), |directory| {
                symlink(provider, directory.join(path.file_name().unwrap_or_default()))
            })?;
        }
        if Path::new(HOSTS).exists() {
            let names = work.join("hosts");
            fs::write(&names, hosts)?;
            mount_bind(&names, HOSTS)?;
        }
        Ok(())
    };
    let placed = place();
    let unmounted = unmount(&work, UnmountFlags::DETACH);
    placed?;
    unmounted.map_err(io::Error::from)
}

fn mount_memory(directory: &Path) -> io::Result<()> {
    Ok(mount("tb5", directory, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755")?)
}

/// Puts another directory in the place of `directory`, with the same content, and more that `add` makes
///
/// A directory of the system cannot be written, and nothing may stay in it. `before` is a path for the directory as it was.
fn extend(directory: &Path, before: &Path, add: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    make_directory(before)?;
    mount_bind_recursive(directory, before)?;
    mount_memory(directory)?;
    for entry in fs::read_dir(before)? {
        let entry = entry?;
        let (kind, here) = (entry.file_type()?, directory.join(entry.file_name()));
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, here)?;
        } else if kind.is_dir() {
            make_directory(&here)?;
            mount_bind_recursive(entry.path(), here)?;
        } else {
            File::create(&here)?;
            mount_bind(entry.path(), here)?;
        }
    }
    add(directory)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)
}
