//! Announcement of a file, a directory or a link, which the sender sends before its content

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// A file, a directory or a link
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    /// Relative to what is copied, which itself has an empty path.
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Directory,
    /// A regular file of so many bytes
    File(u64),
    /// A symbolic link with this target
    Link(PathBuf),
}

/// Message of the sender after the last announcement.
pub(crate) const END: &[u8] = &[0];
const UNEXPECTED: &str = "the peer announced something that is no file, directory or link";

impl Entry {
    /// Bytes of its content
    pub(crate) fn len(&self) -> u64 {
        match self.kind {
            Kind::File(len) => len,
            Kind::Directory | Kind::Link(_) => 0,
        }
    }

    /// A tag, the mode, the length, the length of the path, the path, the target
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let empty = PathBuf::new();
        let (tag, len, target) = match &self.kind {
            Kind::Directory => (1, 0, &empty),
            Kind::File(len) => (2, *len, &empty),
            Kind::Link(target) => (3, 0, target),
        };
        let [path, target] = [&self.path, target].map(|path| path.as_os_str().as_encoded_bytes());
        let mut bytes = vec![tag];
        bytes.extend(self.mode.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend((path.len() as u32).to_le_bytes());
        bytes.extend(path);
        bytes.extend(target);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (&tag, rest) = bytes.split_first().context(UNEXPECTED)?;
        let (mode, rest) = rest.split_first_chunk().context(UNEXPECTED)?;
        let (len, rest) = rest.split_first_chunk().context(UNEXPECTED)?;
        let (path_len, rest) = rest.split_first_chunk().context(UNEXPECTED)?;
        let path_len = u32::from_le_bytes(*path_len) as usize;
        let (path, target) = rest.split_at_checked(path_len).context(UNEXPECTED)?;
        let kind = match tag {
            1 => Kind::Directory,
            2 => Kind::File(u64::from_le_bytes(*len)),
            3 => Kind::Link(Self::path_of(target)?),
            _ => bail!(UNEXPECTED),
        };
        Ok(Self { path: Self::path_of(path)?, mode: u32::from_le_bytes(*mode), kind })
    }

    /// The path that a peer sent
    pub(crate) fn path_of(bytes: &[u8]) -> Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        Ok(OsString::from_vec(bytes.to_vec()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written_and_nothing_else_is_one() {
        for kind in [Kind::Directory, Kind::File(1 << 40), Kind::Link("../x y".into())] {
            let entry = Entry { path: "a/b".into(), mode: 0o640, kind };
            let bytes = entry.to_bytes();
            assert_eq!(Entry::from_bytes(&bytes).unwrap(), entry);
            for len in 0..17 {
                Entry::from_bytes(&bytes[..len]).unwrap_err();
            }
            Entry::from_bytes(&[&[9], &bytes[1..]].concat()).unwrap_err();
        }
    }
}
