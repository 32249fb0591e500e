//! The file that is read, and the one that appears only when it is complete

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Something is wrong with one of the files
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub(crate) struct FileError {
    path: PathBuf,
    what: What,
}

#[derive(Debug, thiserror::Error)]
enum What {
    #[error("the file changed while it was copied")]
    Changed,
    #[error("is a symbolic link to a file that does not exist")]
    Dangling,
    #[error("is a directory")]
    Directory,
    #[error("the path names no file")]
    Nameless,
    #[error("is not a regular file")]
    Special,
    #[error("source and destination are the same file")]
    Same,
    #[error("cannot be {verb}: {error}")]
    Io { verb: &'static str, error: io::Error },
}

impl FileError {
    fn new(path: &Path, what: What) -> Self {
        Self { path: path.to_owned(), what }
    }

    fn io(path: &Path, verb: &'static str, error: io::Error) -> Self {
        Self::new(path, What::Io { verb, error })
    }
}

/// Fails unless `found` is a regular file
fn require_regular(path: &Path, found: &Metadata) -> Result<(), FileError> {
    if found.is_dir() {
        return Err(FileError::new(path, What::Directory));
    }
    if found.is_file() { Ok(()) } else { Err(FileError::new(path, What::Special)) }
}

/// The file that is read
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    found: Metadata,
    read: u64,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        // Asked before it is opened: opening a pipe would wait for a writer.
        let found = fs::metadata(path).map_err(|error| FileError::io(path, "read", error))?;
        require_regular(path, &found)?;
        let file = File::open(path).map_err(|error| FileError::io(path, "read", error))?;
        let found = file.metadata().map_err(|error| FileError::io(path, "read", error))?;
        Ok(Self { path: path.to_owned(), file, found, read: 0 })
    }

    pub(crate) fn len(&self) -> u64 {
        self.found.len()
    }

    /// Fills `into` with what comes next
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<(), FileError> {
        self.file.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FileError::new(&self.path, What::Changed),
            _ => FileError::io(&self.path, "read", error),
        })?;
        self.read += into.len() as u64;
        Ok(())
    }

    /// Bytes that were there and are not read yet
    pub(crate) fn rest(&self) -> u64 {
        self.len() - self.read
    }

    /// Fails if the file is not what it was when it was opened
    pub(crate) fn check_end(&mut self) -> Result<(), FileError> {
        let failed = |error| FileError::io(&self.path, "read", error);
        let now = self.file.metadata().map_err(failed)?;
        // A file system that knows no times cannot tell.
        let is_touched =
            matches!((now.modified(), self.found.modified()), (Ok(now), Ok(then)) if now != then);
        if is_touched || self.file.read(&mut [0]).map_err(failed)? != 0 {
            return Err(FileError::new(&self.path, What::Changed));
        }
        Ok(())
    }
}

/// The file that is written under a temporary name, and renamed when it is complete
///
/// Dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    file: NamedTempFile,
}

impl Destination {
    pub(crate) fn create(path: &Path, source: &Source) -> Result<Self, FileError> {
        match fs::metadata(path) {
            Ok(found) => {
                require_regular(path, &found)?;
                if is_same(&source.path, &source.found, path, &found) {
                    return Err(FileError::new(path, What::Same));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(path).is_ok() {
                    return Err(FileError::new(path, What::Dangling));
                }
            }
            Err(error) => return Err(FileError::io(path, "written", error)),
        }
        let bytes = path.as_os_str().as_encoded_bytes();
        if path.file_name().is_none() || bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
            return Err(FileError::new(path, What::Nameless));
        }
        // A symbolic link keeps pointing where it points: what it points to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".tb5-").suffix(".part");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Before the umask, as for any new file.
            let mode = source.found.permissions().mode() & 0o777;
            builder.permissions(fs::Permissions::from_mode(mode));
        }
        let file = builder.tempfile_in(folder).map_err(|error| FileError::io(&path, "written", error))?;
        Ok(Self { path, file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.as_file_mut().write_all(bytes).map_err(|error| FileError::io(&self.path, "written", error))
    }

    /// Makes the file appear under its name, once it is safely on the disk
    pub(crate) fn finish(self) -> Result<(), FileError> {
        let Self { path, file } = self;
        file.as_file().sync_all().map_err(|error| FileError::io(&path, "written", error))?;
        file.persist(&path).map_err(|error| FileError::io(&path, "written", error.error))?;
        Ok(())
    }
}

#[cfg(unix)]
fn is_same(_: &Path, source: &Metadata, _: &Path, destination: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (source.dev(), source.ino()) == (destination.dev(), destination.ino())
}

#[cfg(not(unix))]
fn is_same(source: &Path, _: &Metadata, destination: &Path, _: &Metadata) -> bool {
    matches!((fs::canonicalize(source), fs::canonicalize(destination)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a file that was rewritten with as many bytes while it was read passed.
    #[test]
    fn a_file_rewritten_at_the_same_length_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        fs::write(&path, b"before").unwrap();
        let mut source = Source::open(&path).unwrap();
        source.read(&mut [0; 6]).unwrap();
        source.check_end().unwrap();
        fs::write(&path, b"after!").unwrap();
        let later = source.found.modified().unwrap() + std::time::Duration::from_secs(9);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(source.check_end().unwrap_err().what, What::Changed));
    }
}
