//! A file that is written under a temporary name and appears when it is complete
//!
//! The written part of an incomplete file can be kept beside it, and continued later.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

use crate::failure::{Failure, at, is_standard};
use crate::report::{Output, keep_standard_output, note, print_all};
use crate::signals::hold;

/// Fails unless `found` is a regular file
pub(crate) fn require_regular(path: &Path, found: &Metadata) -> Result<()> {
    if found.is_dir() {
        bail!(io::Error::new(io::ErrorKind::IsADirectory, at(path, "is a directory")));
    }
    if !found.is_file() {
        bail!(at(path, "is not a regular file"));
    }
    Ok(())
}

/// Whether the end of a path says that it is one of a directory
pub(crate) fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    [b"/".as_slice(), b"/."].iter().any(|end| bytes.ends_with(end))
}

/// Reserves standard output for the file with the path `-`, if there is one: other output goes to standard error
///
/// # Errors
///
/// Several files cannot go to standard output, nor can a file beside JSON.
pub(crate) fn reserve_standard_output(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    output: Output,
) -> Result<(), Failure> {
    match paths.into_iter().filter(|path| is_standard(path)).count() {
        0 => return Ok(()),
        1 if output == Output::Text => keep_standard_output(),
        1 => return Err(Failure::usage("standard output is for the file: leave --json out, or name a file")),
        _ => return Err(Failure::usage("standard output takes one file: name the others")),
    }
    Ok(())
}

/// Fails if a command would replace one of the files that it reads
pub(crate) fn require_other(
    written: &Path,
    read: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<(), Failure> {
    if read.into_iter().any(|path| is_same(written, path.as_ref())) {
        return Err(Failure::Usage(at(written, "is read and would be replaced: write another name")));
    }
    Ok(())
}

/// Whether two paths lead to the same file, which need not exist yet
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let new = || Some(fs::canonicalize(folder).ok()?.join(path.file_name()?));
        if is_standard(path) { None } else { fs::canonicalize(path).ok().or_else(new) }
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Name of a temporary file in errors
pub(crate) fn spool() -> PathBuf {
    format!("a temporary file in {}", std::env::temp_dir().display()).into()
}

/// A file that is written under a temporary name, and renamed when it is complete
///
/// An existing file is replaced at once or not at all; its mode, and its owner and group where that is permitted, are kept. A
/// symbolic link stays, and its target is replaced. Dropped before [`finish`](Self::finish), this leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    /// The file that is replaced.
    existing: Option<Identity>,
    /// `None` if the file goes to standard output.
    folder: Option<PathBuf>,
    /// Whether the rest of an earlier copy is continued, and that of this one is kept
    has_rest: bool,
    /// The folder, to sync it; opened before the rename, because a failure afterwards would report a complete file as failed.
    opened_folder: Option<File>,
    file: NamedTempFile,
}

impl Replacement {
    /// Prepares a file at `path`; a new one gets those rights of `mode` that the umask permits
    pub(crate) fn create(path: &Path, mode: u32) -> Result<Self> {
        let written = || at(path, "cannot be written");
        let existing = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(path).is_ok() {
                    bail!(at(path, "is a symbolic link to a file that does not exist"));
                }
                None
            }
            found => Some(found.with_context(written)?),
        };
        if let Some(existing) = &existing {
            require_regular(path, existing)?;
        }
        if existing.is_none() && names_directory(path) {
            bail!(io::Error::new(
                io::ErrorKind::NotFound,
                at(path, "there is no such directory: create it first")
            ));
        }
        if path.file_name().is_none() {
            bail!(at(path, "the path names no file"));
        }
        let path = match (fs::canonicalize(path), &existing) {
            (Err(_), None) => path.to_owned(),
            (Ok(found), None) => found,
            // The name of an open file without one, such as /dev/stdout, leads nowhere: the link itself would be replaced.
            (found, Some(existing)) => {
                let is_there = |found: &PathBuf| {
                    fs::symlink_metadata(found)
                        .is_ok_and(|found| Identity::of(&found) == Identity::of(existing))
                };
                let lost = || at(path, "is a symbolic link to a file that has no name any more");
                found.ok().filter(is_there).with_context(lost)?
            }
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        if matches!(folder.try_exists(), Ok(false)) {
            bail!(at(&path, format!("cannot be written: there is no folder {}", folder.display())));
        }
        let file = temporary(&folder, mode, existing.as_ref()).map_err(without_path).with_context(written)?;
        let opened_folder = open_folder(&folder).with_context(|| at(&folder, "cannot be opened"))?;
        let existing = existing.as_ref().map(Identity::of);
        Ok(Self { path, existing, folder: Some(folder), has_rest: true, opened_folder, file })
    }

    /// Prepares a file that goes to standard output when it is complete
    pub(crate) fn of_standard_output() -> Result<Self> {
        let path = spool();
        let file = tempfile::Builder::new().prefix(".tb5-").suffix(".part").tempfile();
        let file = file.map_err(without_path).with_context(|| at(&path, "cannot be written"))?;
        Ok(Self { path, existing: None, folder: None, has_rest: false, opened_folder: None, file })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.as_file_mut().write_all(bytes).with_context(|| at(&self.path, "cannot be written"))
    }

    /// Neither continues nor replaces the file that has the name of its rest
    pub(crate) fn without_rest(self) -> Self {
        Self { has_rest: false, ..self }
    }

    /// Where an incomplete file is kept; nowhere if it goes to standard output
    fn rest(&self) -> Option<PathBuf> {
        let folder = self.folder.as_ref().filter(|_| self.has_rest)?;
        Some(folder.join(rest_of(self.path.file_name()?)))
    }

    /// Continues the incomplete file that [`keep`](Self::keep) left here, and returns its length
    ///
    /// Anything else under its name is left alone.
    pub(crate) fn resume(&mut self) -> Result<u64> {
        let Some(rest) = self.rest() else { return Ok(0) };
        let continued = || at(&rest, "cannot be continued: remove it");
        let own = self.file.as_file().metadata().with_context(continued)?;
        if !fs::symlink_metadata(&rest).is_ok_and(|found| is_own_file(&found, &own)) {
            return Ok(0);
        }
        fs::rename(&rest, self.file.path()).with_context(continued)?;
        *self.file.as_file_mut() = open_own(self.file.path(), &own).with_context(continued)?;
        self.file.as_file().set_permissions(own.permissions()).with_context(continued)?;
        Ok(self.file.as_file().metadata().with_context(continued)?.len())
    }

    /// Reads what was written so far, piece by piece, up to its end
    pub(crate) fn read_back(&mut self, into: &mut [u8]) -> Result<usize> {
        self.file.as_file_mut().read(into).with_context(|| at(&self.path, "cannot be read again"))
    }

    /// Work for another thread: waits until what was written so far is on the disk; of a file for standard output, it does nothing
    pub(crate) fn to_sync(&self) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        let path = self.path.clone();
        let written = move || at(&path, "cannot be written");
        let file = self.folder.is_some().then(|| self.file.as_file().try_clone());
        let file = file.transpose().with_context(&written)?;
        Ok(move || file.map_or(Ok(()), |file| file.sync_all().with_context(written)))
    }

    /// Drops what was written so far
    pub(crate) fn restart(&mut self) -> Result<()> {
        let file = self.file.as_file_mut();
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.with_context(|| at(&self.path, "cannot be written"))
    }

    /// Keeps what was written beside the destination, and returns where
    ///
    /// `None` if nothing was written, there is no such place, or another file is at the destination by now, such as that of another
    /// copy: nothing would continue this one. Anything else under the name of the place is left alone.
    pub(crate) fn keep(self) -> Result<Option<PathBuf>> {
        let Some(rest) = self.rest() else { return Ok(None) };
        // A destination that was removed, or is changed in place, says nothing of other copies.
        if fs::metadata(&self.path).is_ok_and(|found| Some(Identity::of(&found)) != self.existing) {
            return Ok(None);
        }
        let kept = || at(&rest, "the incomplete file cannot be kept");
        let own = self.file.as_file().metadata().with_context(kept)?;
        if own.len() == 0 {
            return Ok(None);
        }
        if fs::symlink_metadata(&rest).is_ok_and(|found| !is_own_file(&found, &own)) {
            bail!(at(&rest, "the incomplete file cannot be kept: something else has its name"));
        }
        self.file.persist(&rest).map_err(|error| error.error).with_context(kept)?;
        Ok(Some(rest))
    }

    /// Makes the file appear under its name, and returns when both are on the disk, or writes it to standard output
    ///
    /// The rest of an earlier copy is removed.
    pub(crate) fn finish(self) -> Result<()> {
        let rest = self.rest();
        let Self { path, folder, opened_folder, file, .. } = self;
        let Some(folder) = folder else {
            // Without a name from now on: a signal may end the program while the reader is slow.
            let mut file = file.into_file();
            file.rewind().with_context(|| at(&path, "cannot be read again"))?;
            return print_to_its_end(&mut file);
        };
        let written = || at(&path, "cannot be written");
        file.as_file().sync_all().with_context(written)?;
        let file = file.persist(&path).map_err(|error| error.error).with_context(written)?;
        let own = file.metadata().with_context(written)?;
        if let Some(rest) =
            rest.filter(|rest| fs::symlink_metadata(rest).is_ok_and(|found| is_own_file(&found, &own)))
        {
            // One that cannot be removed does no harm.
            let _ = fs::remove_file(rest);
        }
        opened_folder
            .map_or(Ok(()), |opened| sync_folder(&opened).with_context(|| at(&folder, "cannot be synced")))
    }
}

/// End of the names of rests
const REST: &str = ".tb5-partial";

/// Name of the rest of the file with this name
pub(crate) fn rest_of(name: &OsStr) -> OsString {
    let mut rest = OsString::from(".");
    rest.push(name);
    rest.push(REST);
    rest
}

/// Whether a file with this name could be the rest of another one
pub(crate) fn is_rest(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(REST.as_bytes())
}

/// The identity of a file: no write changes it, and a file that replaces it has another one
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// Prints a copy, and notes if its end is not read
fn print_to_its_end(copy: &mut File) -> Result<()> {
    if !print_all(copy)? {
        note("standard output was closed before the end of the copy");
    }
    Ok(())
}

/// Fails if the file at `path` cannot be created, before there is something to write; `-` is standard output
pub(crate) fn require_writable(path: &Path) -> Result<()> {
    if is_standard(path) {
        return Ok(());
    }
    hold(|| Replacement::create(path, 0o666).map(drop))
}

/// Writes a file as a whole, or to standard output if `path` is `-`
pub(crate) fn write_all(path: &Path, text: &str) -> Result<()> {
    if is_standard(path) {
        return print_all(&mut text.as_bytes()).map(drop);
    }
    hold(|| {
        let mut file = Replacement::create(path, 0o666)?;
        file.write(text.as_bytes())?;
        file.finish()
    })
}

/// Whether this is a regular file with one name, of the owner of `own`
fn is_own_file(found: &Metadata, own: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    found.is_file() && found.uid() == own.uid() && found.nlink() == 1
}

/// Opens a file of the owner of `own` to read and write
fn open_own(path: &Path, own: &Metadata) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW);
    let file = options.open(path)?;
    if is_own_file(&file.metadata()?, own) { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// The error of the system, without the name of the temporary file, which `tempfile` adds and which says nothing to people
pub(crate) fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.rsplit_once(" at path ") {
        Some((of_system, _)) => io::Error::new(error.kind(), of_system.to_owned()),
        None => error,
    }
}

fn temporary(folder: &Path, mode: u32, existing: Option<&Metadata>) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

    // At no time may more users read the new file than the existing one.
    let mode = existing.map_or(mode, MetadataExt::mode) & 0o777;
    let permissions = fs::Permissions::from_mode(mode);
    let file = tempfile::Builder::new()
        .prefix(".tb5-")
        .suffix(".part")
        .permissions(permissions)
        .tempfile_in(folder)?;
    if let Some(existing) = existing {
        let (user, group) = (Some(existing.uid()), Some(existing.gid()));
        let keeps_group =
            fchown(file.as_file(), user, group).is_ok() || fchown(file.as_file(), None, group).is_ok();
        // The rights of a group are not passed on to another one.
        let mode = if keeps_group { mode } else { mode & !0o070 };
        if file.as_file().metadata()?.mode() & 0o777 != mode {
            file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(file)
}

/// Opens a folder to sync it; `None` if it may not be read: then the system decides when its names are on the disk
fn open_folder(folder: &Path) -> io::Result<Option<File>> {
    match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        opened => opened.map(Some),
    }
}

/// Waits until the names in a folder are on the disk; where the file system does not sync folders, the system decides when they are
fn sync_folder(opened: &File) -> io::Result<()> {
    match opened.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a sender that was killed and started again left the rest of the first copy beside the file.
    #[test]
    fn a_complete_file_has_no_rest_of_another_copy_beside_it() {
        for is_kept_first in [false, true] {
            for is_new in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("file");
                if !is_new {
                    fs::write(&path, b"before").unwrap();
                }
                let [mut first, mut second] = [(); 2].map(|()| Replacement::create(&path, 0o644).unwrap());
                first.write(b"after").unwrap();
                second.write(b"afterwards").unwrap();
                if is_kept_first {
                    assert!(first.keep().unwrap().is_some_and(|rest| rest.exists()));
                    second.finish().unwrap();
                } else {
                    second.finish().unwrap();
                    assert_eq!(first.keep().unwrap(), None);
                }
                assert_eq!(fs::read(&path).unwrap(), b"afterwards");
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{is_kept_first} {is_new}");
            }
        }
    }

    /// Catches a rest that is discarded although no other copy has completed.
    #[test]
    fn a_rest_is_kept_unless_another_file_is_at_the_destination() {
        type Change = fn(&Path);
        let touched = |path: &Path| {
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        };
        let longer = |path: &Path| File::options().append(true).open(path).unwrap().write_all(b"x").unwrap();
        let removed = |path: &Path| fs::remove_file(path).unwrap();
        let replaced = |path: &Path| {
            // The old file exists still, so that the new one cannot have its number.
            fs::write(path.with_extension("new"), b"before").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        };
        let created = |path: &Path| fs::write(path, b"").unwrap();
        for (name, is_there, change, is_kept) in [
            ("touched", true, touched as Change, true),
            ("appended to", true, longer, true),
            ("removed", true, removed, true),
            ("replaced", true, replaced, false),
            ("created", false, created, false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            if is_there {
                fs::write(&path, b"before").unwrap();
            }
            let mut file = Replacement::create(&path, 0o644).unwrap();
            file.write(b"after").unwrap();
            change(&path);
            assert_eq!(file.keep().unwrap().is_some(), is_kept, "{name}");
        }
    }

    /// Catches something under the name of a rest that is replaced and was not made by a copy.
    #[test]
    fn a_rest_replaces_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rest) = (folder.path().join("file"), folder.path().join(".file.tb5-partial"));
        std::os::unix::fs::symlink("elsewhere", &rest).unwrap();
        let mut file = Replacement::create(&path, 0o644).unwrap();
        file.write(b"half").unwrap();
        assert!(file.keep().unwrap_err().to_string().ends_with("something else has its name"));
        assert_eq!(fs::read_link(&rest).unwrap(), Path::new("elsewhere"));
    }

    /// Catches the name of a temporary file in a message, and a kind that is lost, by which a peer is told the reason.
    #[test]
    fn errors_do_not_name_temporary_files() {
        let folder = tempfile::tempdir().unwrap();
        let error = temporary(&folder.path().join("missing"), 0o666, None).unwrap_err();
        assert!(error.to_string().contains(".part"), "{error}");
        let shown = without_path(error);
        assert_eq!(shown.to_string(), "No such file or directory (os error 2)");
        assert_eq!(shown.kind(), io::ErrorKind::NotFound);
    }
}
