//! The first message of a copy between two machines: what comes, and where it goes
//!
//! The receiver answers with the place of the copy below its directory.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::copy::destination::{Destination, require_directory};
use crate::copy::entry::{Entry, Kind};
use crate::failure::at;
use crate::file::{Replacement, names_directory};
use crate::machines::{Declined, require_below};

/// Request of the sender
pub(super) struct Request {
    /// The source itself: its name, its mode, and what it is
    pub(super) source: Entry,
    /// Below the directory of the receiver
    pub(super) path: PathBuf,
    /// Bytes of all files
    pub(super) bytes: u64,
}

const FOREIGN: &str = "the peer does not speak the protocol of this version of `tb5 copy`";
const MAGIC: &[u8; 8] = b"tb5copy3";

impl Request {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let source = self.source.to_bytes();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend((source.len() as u32).to_le_bytes());
        bytes.extend(source);
        bytes.extend(self.path.as_os_str().as_encoded_bytes());
        bytes
    }

    /// Whether the first message of a session asks for a copy
    pub(super) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let rest = bytes.strip_prefix(MAGIC).context(FOREIGN)?;
        let (total, rest) = rest.split_first_chunk().context(FOREIGN)?;
        let (len, rest) = rest.split_first_chunk().context(FOREIGN)?;
        let (source, path) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).context(FOREIGN)?;
        let source = Entry::from_bytes(source)?;
        if matches!(source.kind, Kind::Link(_)) {
            bail!(FOREIGN);
        }
        Ok(Self { source, path: Entry::path_of(path)?, bytes: u64::from_le_bytes(*total) })
    }

    /// The place of the copy below `root`, reached through no link: in a directory that is there, under the name of the source
    pub(super) fn place(&self, root: &Path) -> Result<PathBuf> {
        require_below(&self.path)?;
        let mut names: Vec<_> = self.path.components().filter(is_name).collect();
        let asked = root.join(names.iter().collect::<PathBuf>());
        let (is_file, is_directory) = (matches!(self.source.kind, Kind::File(_)), asked.is_dir());
        if is_file && is_directory {
            names.extend(self.source.path.components().next_back().filter(is_name));
        }
        let mut place = root.to_owned();
        for (index, name) in names.iter().enumerate() {
            ensure!(
                index == 0 || place.is_dir(),
                io::Error::new(ErrorKind::NotFound, at(&place, "is not there: create it first"))
            );
            place.push(name);
            let is_link = fs::symlink_metadata(&place).is_ok_and(|found| found.is_symlink());
            if is_link {
                let what = at(&place, "is a symbolic link: remove it, or name another place");
                bail!(anyhow::Error::new(Declined::Link).context(what));
            }
        }
        if is_file && !is_directory && names_directory(&self.path) {
            let (kind, why) = match place.exists() {
                true => (ErrorKind::NotADirectory, "is not a directory"),
                false => (ErrorKind::NotFound, "there is no such directory: create it first"),
            };
            bail!(io::Error::new(kind, at(&place, why)));
        }
        let is_whole = matches!(self.source.kind, Kind::Directory) || place != root;
        ensure!(is_whole, "the source has no name");
        Ok(place)
    }

    /// Prepares `place`, or refuses it
    pub(super) fn destination(&self, place: &Path) -> Result<Destination> {
        match self.source.kind {
            Kind::File(_) => {
                Ok(Destination::File(Some(Replacement::create(place, self.source.mode & 0o777)?)))
            }
            _ => {
                require_directory(place)?;
                Ok(Destination::folder(place))
            }
        }
    }
}

fn is_name(component: &Component<'_>) -> bool {
    matches!(component, Component::Normal(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, path: &str) -> Request {
        Request { source: Entry { path: "name".into(), mode: 0o644, kind }, path: path.into(), bytes: 7 }
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_nothing_else_is_one() {
        let bytes = request(Kind::File(7), "a/b").to_bytes();
        let read = Request::from_bytes(&bytes).unwrap();
        assert_eq!(
            (read.source, read.path, read.bytes),
            (request(Kind::File(7), "").source, "a/b".into(), 7)
        );
        for len in 0..bytes.len() - 3 {
            assert!(Request::from_bytes(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Request::from_bytes(&request(Kind::Link("x".into()), "a").to_bytes()).is_err());
    }

    #[test]
    fn a_copy_stays_below_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("inside")).unwrap();
        fs::write(folder.path().join("secret"), "").unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
        let place = |path: &str| request(Kind::File(1), path).place(&root);
        assert_eq!(place("").unwrap(), root.join("name"));
        assert_eq!(place("x").unwrap(), root.join("x"));
        for inside in ["inside", "inside/", "inside/."] {
            assert_eq!(place(inside).unwrap(), root.join("inside/name"));
        }
        for (outside, why) in [
            ("..", "must be below"),
            ("/etc/passwd", "must be below"),
            ("out", "is a symbolic link"),
            ("out/x", "is a symbolic link"),
            ("link", "is a symbolic link"),
            ("missing/x", "create it first"),
            ("missing/", "missing: there is no such directory: create it first"),
            ("inside/missing/.", "missing: there is no such directory: create it first"),
            ("file/", "file: is not a directory"),
            ("out/", "is a symbolic link"),
            ("link/", "is a symbolic link"),
        ] {
            let error = place(outside).unwrap_err().to_string();
            assert!(error.contains(why), "{outside}: {error}");
        }
        let directory = |path: &str| request(Kind::Directory, path).place(&root);
        assert_eq!(directory("").unwrap(), root);
        assert_eq!(directory("new").unwrap(), root.join("new"));
        for outside in ["out", "out/", "out/.", "./out", "out/new", "link"] {
            let error = directory(outside).unwrap_err().to_string();
            assert!(error.contains("is a symbolic link"), "{outside}: {error}");
        }
    }
}
