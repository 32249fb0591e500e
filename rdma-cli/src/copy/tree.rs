//! The directory that is copied

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::entry::{Entry, Kind};
use crate::failure::at;

/// Everything in `root`, each directory before what is in it, in the order of names
pub(crate) fn read(root: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let full = if path.as_os_str().is_empty() { root.to_owned() } else { root.join(&path) };
        let read = || at(&full, "cannot be read");
        // What was named may be a link to a directory.
        let found =
            if path.as_os_str().is_empty() { fs::metadata(&full) } else { fs::symlink_metadata(&full) };
        let found = found.with_context(read)?;
        let kind = if found.is_dir() {
            let names = fs::read_dir(&full).with_context(read)?;
            let names = names.map(|entry| Ok(path.join(entry?.file_name())));
            let mut names = names.collect::<std::io::Result<Vec<_>>>().with_context(read)?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            pending.append(&mut names);
            Kind::Directory
        } else if found.is_symlink() {
            Kind::Link(fs::read_link(&full).with_context(read)?)
        } else if found.is_file() {
            Kind::File(found.len())
        } else {
            bail!(at(&full, "is not a regular file, directory or symbolic link"));
        };
        entries.push(Entry { path, mode: rights(&found), kind });
    }
    Ok(entries)
}

/// The rights of owner, group and others, which are copied
pub(super) fn rights(found: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(found) & 0o777
}
