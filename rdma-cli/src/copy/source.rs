//! The file that is copied

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::file::{FileError, Reason, require_regular};

/// An open file, and how much was read
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    found: Metadata,
    read: u64,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        // Checked before it is opened: opening a pipe would wait for a writer.
        let found = fs::metadata(path).map_err(|error| FileError::io(path, "read", error))?;
        require_regular(path, &found)?;
        let file = File::open(path).map_err(|error| FileError::io(path, "read", error))?;
        let found = file.metadata().map_err(|error| FileError::io(path, "read", error))?;
        Ok(Self { path: path.to_owned(), file, found, read: 0 })
    }

    pub(crate) fn len(&self) -> u64 {
        self.found.len()
    }

    /// The permissions of the file, for its copy
    pub(crate) fn mode(&self) -> u32 {
        #[cfg(unix)]
        return std::os::unix::fs::MetadataExt::mode(&self.found);
        #[cfg(not(unix))]
        0
    }

    /// Fails if `destination` is the same file under this or another name
    pub(crate) fn require_other(&self, destination: &Path) -> Result<(), FileError> {
        match fs::metadata(destination) {
            Ok(found) if is_same(&self.path, &self.found, destination, &found) => {
                Err(FileError::new(destination, Reason::Same))
            }
            // A destination that cannot be inspected is refused when it is created.
            _ => Ok(()),
        }
    }

    /// Fills `into` with the next bytes
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<(), FileError> {
        self.file.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FileError::new(&self.path, Reason::Changed),
            _ => FileError::io(&self.path, "read", error),
        })?;
        self.read += into.len() as u64;
        Ok(())
    }

    /// Bytes of the length at opening that were not read yet
    pub(crate) fn rest(&self) -> u64 {
        self.len() - self.read
    }

    /// Fails if the file has changed since it was opened
    pub(crate) fn check_end(&mut self) -> Result<(), FileError> {
        let failed = |error| FileError::io(&self.path, "read", error);
        let now = self.file.metadata().map_err(failed)?;
        // Some file systems keep no times; the length is compared there.
        let is_touched =
            matches!((now.modified(), self.found.modified()), (Ok(now), Ok(then)) if now != then);
        if is_touched || self.file.read(&mut [0]).map_err(failed)? != 0 {
            return Err(FileError::new(&self.path, Reason::Changed));
        }
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
        assert!(matches!(source.check_end().unwrap_err().reason, Reason::Changed));
    }
}
