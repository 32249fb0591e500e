//! Where a copy is written

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::entry::Entry;
use super::send::Sources;
use crate::failure::{at, is_standard};
use crate::file::{Replacement, is_rest, rest_of, without_path};

/// A file that was created already and may go to standard output, or a directory
pub(crate) enum Destination {
    File(Option<Replacement>),
    Directory(Folder),
}

/// A directory that is written
pub(crate) struct Folder {
    root: PathBuf,
    /// Paths of the files of this copy that are named like the rest of another file
    rests: BTreeSet<PathBuf>,
    /// Directories that their owner may write during the copy only, and the modes that they get at its end.
    unlocked: Vec<(PathBuf, u32)>,
}

impl Destination {
    pub(crate) fn folder(root: &Path) -> Self {
        Self::Directory(Folder { root: root.to_owned(), rests: BTreeSet::new(), unlocked: Vec::new() })
    }

    /// Whether one file is copied, and nothing else
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// The file for `entry`
    pub(crate) fn file(&mut self, entry: &Entry) -> Result<Replacement> {
        match self {
            Self::File(file) => file.take().context("the peer sent more than one file"),
            Self::Directory(folder) => {
                let path = folder.place(&entry.path)?;
                if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                    bail!(at(&path, "is a symbolic link: remove it first"));
                }
                let file = Replacement::create(&path, entry.mode)?;
                Ok(if folder.is_rest_copied(&entry.path) { file.without_rest() } else { file })
            }
        }
    }

    /// The file that is in the place of `entry`, if it is as long
    pub(crate) fn existing(&self, entry: &Entry) -> Option<PathBuf> {
        let Self::Directory(folder) = self else { return None };
        let path = folder.root.join(&entry.path);
        let is_as_long = |found: fs::Metadata| found.is_file() && found.len() == entry.len();
        fs::symlink_metadata(&path).is_ok_and(is_as_long).then_some(path)
    }

    fn as_folder(&mut self) -> Result<&mut Folder> {
        match self {
            Self::File(_) => bail!("the peer sent more than a file"),
            Self::Directory(folder) => Ok(folder),
        }
    }

    /// Creates the directory `entry`, unless it is there, so that its owner may write it until the end of the copy
    ///
    /// One that is there is made writable only if it is as locked as its source: an earlier copy may have left it so.
    pub(crate) fn directory(&mut self, entry: &Entry) -> Result<()> {
        let folder = self.as_folder()?;
        let path = if entry.path.as_os_str().is_empty() {
            folder.root.clone()
        } else {
            folder.place(&entry.path)?
        };
        let created = || at(&path, "cannot be created");
        match create(&path, entry.mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // What was named may be a link to a directory.
                let found =
                    if path == folder.root { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
                let found = found.ok().filter(fs::Metadata::is_dir);
                let mode =
                    full_mode(&found.with_context(|| at(&path, "is not a directory: remove it first"))?);
                let is_locked = mode & 0o300 != 0o300 && mode & 0o700 == entry.mode & 0o700;
                // It fails for a directory of another user, in which no file can be created.
                if is_locked && set_mode(&path, mode | 0o700).is_ok() {
                    folder.unlocked.push((path, mode));
                }
            }
            done => {
                done.with_context(created)?;
                let mode = full_mode(&fs::metadata(&path).with_context(created)?);
                folder.unlocked.push((path, mode & (entry.mode | 0o7077)));
            }
        }
        Ok(())
    }

    /// Creates the link `entry` to `target`; a file or link in its place is replaced
    pub(crate) fn link(&mut self, entry: &Entry, target: &Path) -> Result<()> {
        let path = self.as_folder()?.place(&entry.path)?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let link = tempfile::Builder::new().prefix(".tb5-").make_in(folder, |path| symlink(target, path));
        let persisted = link.and_then(|link| link.persist(&path).map_err(|error| error.error));
        persisted.map_err(without_path).with_context(|| at(&path, "the link cannot be created"))
    }

    /// Gives directories their modes, those in others first
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Self::Directory(folder) = self else { return Ok(()) };
        while let Some((path, mode)) = folder.unlocked.pop() {
            set_mode(&path, mode).with_context(|| at(&path, "its mode cannot be set"))?;
        }
        Ok(())
    }
}

impl Folder {
    /// Whether a file of this copy has the name of the rest of `file`
    fn is_rest_copied(&mut self, file: &Path) -> bool {
        let Some(name) = file.file_name() else { return false };
        if is_rest(name) {
            self.rests.insert(file.to_owned());
        }
        self.rests.contains(&file.with_file_name(rest_of(name)))
    }

    /// The place of a name that the peer sent: below the directory, and reached through no link
    fn place(&self, name: &Path) -> Result<PathBuf> {
        let is_inside = name.components().all(|component| matches!(component, Component::Normal(_)));
        ensure!(
            is_inside && !name.as_os_str().is_empty(),
            "{:?} leads out of the destination: nothing is written there",
            name.display().to_string()
        );
        let mut path = self.root.clone();
        for component in name.parent().into_iter().flat_map(Path::components) {
            path.push(component);
            let is_directory = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            ensure!(is_directory, at(&path, "is not a directory: remove it first"));
        }
        Ok(self.root.join(name))
    }
}

impl Drop for Folder {
    /// Gives directories their modes at the end of a copy that is not complete
    fn drop(&mut self) {
        for (path, mode) in self.unlocked.drain(..).rev() {
            // The failure of the copy is reported.
            let _ = set_mode(&path, mode);
        }
    }
}

/// Fails unless a directory can be at `path` or is there; returns it, or the one that it would be in
pub(crate) fn require_directory(path: &Path) -> Result<PathBuf> {
    let folder = match fs::metadata(path) {
        Ok(found) if found.is_dir() => path,
        Ok(_) => bail!(at(path, "is not a directory")),
        Err(_) => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        },
    };
    let created = || at(path, format!("cannot be created: there is no folder {}", folder.display()));
    fs::canonicalize(folder).with_context(created)
}

/// The place of a copy: a file that is copied to a directory is put into it
pub(crate) fn place(sources: &Sources, path: &Path) -> PathBuf {
    match sources {
        Sources::File(source) if path.is_dir() && !is_standard(path) => path.join(source.name()),
        _ => path.to_owned(),
    }
}

/// Prepares the destination, or refuses it
pub(crate) fn prepare(sources: &Sources, path: &Path) -> Result<Destination> {
    match sources {
        Sources::File(_) if is_standard(path) => {
            Ok(Destination::File(Some(Replacement::of_standard_output()?)))
        }
        Sources::File(source) => {
            source.require_other(path)?;
            Ok(Destination::File(Some(Replacement::create(path, source.mode())?)))
        }
        Sources::Directory { root, .. } => {
            require_outside(path, root)?;
            Ok(Destination::folder(path))
        }
    }
}

/// Fails unless a directory can be at `path` or is there, outside of `source`
fn require_outside(path: &Path, source: &Path) -> Result<()> {
    let folder = require_directory(path)?;
    let source = fs::canonicalize(source).with_context(|| at(source, "cannot be read"))?;
    ensure!(!folder.starts_with(&source), at(path, "is in the directory that is copied"));
    Ok(())
}

fn create(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    // Its owner writes into it, whatever the mode.
    fs::DirBuilder::new().mode(mode | 0o700).create(path)
}

/// The mode with the bits beyond the rights, such as that by which new files get the group of their directory
fn full_mode(found: &fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(found) & 0o7777
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::entry::Kind;

    fn file(path: &str) -> Entry {
        Entry { path: path.into(), mode: 0o644, kind: Kind::File(1) }
    }

    #[test]
    fn names_that_lead_out_of_the_destination_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut destination = Destination::folder(&folder.path().join("to"));
        destination.directory(&file("")).unwrap();
        for name in ["", "..", "../x", "/etc/x", "a/../../x", "./../x"] {
            let error = destination.file(&file(name)).unwrap_err().to_string();
            assert!(error.contains("leads out of the destination"), "{name}: {error}");
            let error = destination.link(&file(name), Path::new("x")).unwrap_err().to_string();
            assert!(error.contains("leads out of the destination"), "{name}: {error}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let mut destination = Destination::folder(&folder.path().join("to"));
        destination.directory(&file("")).unwrap();
        destination.link(&file("link"), &outside).unwrap();
        for (done, why) in [
            (destination.file(&file("link/x")).map(drop), "is not a directory: remove it first"),
            (destination.directory(&file("link/x")), "is not a directory: remove it first"),
            (destination.directory(&file("link")), "is not a directory: remove it first"),
            (destination.file(&file("link")).map(drop), "is a symbolic link: remove it first"),
        ] {
            let error = done.unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
        }
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    }
}
