//! The file that is copied, or standard input

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;

use super::agreed::PIECE;
use super::tree::rights;
use crate::failure::at;
use crate::file::{Identity, require_regular, spool, without_path};
use crate::input::standard_input;

/// An open file, and how much was read
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    /// The file that is read, and that of `path`, which may say no length
    found: Metadata,
    named: Metadata,
    read: u64,
    is_standard_input: bool,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Checked before it is opened: opening a pipe would wait for a writer.
        let read = || at(path, "cannot be read");
        require_regular(path, &fs::metadata(path).with_context(read)?)?;
        let mut file = File::open(path).with_context(read)?;
        let named = file.metadata().with_context(read)?;
        let (mut found, path) = (named.clone(), path.to_owned());
        // Files of /proc say that they have no bytes. One that cannot be read fails when it is sent, so that both sides learn it.
        if found.len() == 0 && is_in_proc(&path) && file.read(&mut [0]).is_ok_and(|len| len > 0) {
            file.rewind().with_context(read)?;
            (file, found) = spooled(&mut file, &path, |_| ())?;
        }
        Ok(Self { path, file, found, named, read: 0, is_standard_input: false })
    }

    /// Reads standard input up to its end: the length is announced before the content
    pub(crate) fn standard_input(progress: &ProgressBar) -> Result<Self> {
        let mut input = standard_input()?.lock();
        let (file, found) = spooled(&mut input, Path::new("-"), |len| progress.inc(len))?;
        progress.finish_and_clear();
        Ok(Self { path: spool(), file, named: found.clone(), found, read: 0, is_standard_input: true })
    }

    pub(crate) fn len(&self) -> u64 {
        self.found.len()
    }

    /// The last part of its path; standard input has none
    pub(crate) fn name(&self) -> &OsStr {
        if self.is_standard_input { OsStr::new("") } else { self.path.file_name().unwrap_or_default() }
    }

    /// The permissions of the file, for its copy
    pub(crate) fn mode(&self) -> u32 {
        if self.is_standard_input {
            return 0o666;
        }
        rights(&self.named)
    }

    /// Fails if `destination` is the same file under this or another name
    pub(crate) fn require_other(&self, destination: &Path) -> Result<()> {
        match fs::metadata(destination) {
            Ok(found) if Identity::of(&found) == Identity::of(&self.named) => {
                bail!(at(destination, "source and destination are the same file"))
            }
            // A destination that cannot be inspected is refused when it is created.
            _ => Ok(()),
        }
    }

    /// Fills `into` with the next bytes
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<()> {
        match self.file.read_exact(into) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => bail!(self.changed()),
            read => read.with_context(|| at(&self.path, "cannot be read"))?,
        }
        self.read += into.len() as u64;
        Ok(())
    }

    /// Starts again with the first byte
    pub(crate) fn rewind(&mut self) -> Result<()> {
        self.read = 0;
        self.file.rewind().with_context(|| at(&self.path, "cannot be read"))
    }

    /// Bytes of the length at opening that were not read yet
    pub(crate) fn rest(&self) -> u64 {
        self.len() - self.read
    }

    /// Fails if the file has changed since it was opened
    pub(crate) fn check_end(&mut self) -> Result<()> {
        let read = || at(&self.path, "cannot be read");
        let now = self.file.metadata().with_context(read)?;
        // Some file systems keep no times; the length is compared there.
        let is_touched =
            matches!((now.modified(), self.found.modified()), (Ok(now), Ok(then)) if now != then);
        if is_touched || self.file.read(&mut [0]).with_context(read)? != 0 {
            bail!(self.changed());
        }
        Ok(())
    }

    fn changed(&self) -> String {
        at(&self.path, "the file changed while it was copied")
    }
}

/// Whether the content of a file is made as it is read, although its length is 0; others that look so, as in /sys, may wait for ever
fn is_in_proc(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|path| path.starts_with("/proc"))
}

/// What is left of `input`, the file at `path`, in a temporary file without a name; `on_read` is called with the length of each piece
fn spooled(input: &mut impl Read, path: &Path, on_read: impl Fn(u64)) -> Result<(File, Metadata)> {
    let temporary = spool();
    let written = || at(&temporary, "cannot be written");
    let mut file = tempfile::tempfile().map_err(without_path).with_context(written)?;
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => {
                file.write_all(&piece[..len]).with_context(written)?;
                on_read(len as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| at(path, "cannot be read")),
        }
    }
    file.rewind().with_context(|| at(&temporary, "cannot be read"))?;
    let found = file.metadata().with_context(|| at(&temporary, "cannot be read"))?;
    Ok((file, found))
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
        assert_eq!(source.check_end().unwrap_err().to_string(), source.changed());
    }
}
