//! `HOST:PATH`: a place on another machine

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::host::Host;
use crate::failure::Failure;

/// A machine that serves, and a place in the directory that it was given
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RemotePath {
    pub(crate) host: Host,
    pub(crate) path: PathBuf,
}

impl RemotePath {
    /// The place that an argument names, unless it is a local path: a colon before the first slash makes the difference, as for `scp`
    pub(crate) fn parse(argument: &Path) -> Option<Self> {
        let bytes = argument.as_os_str().as_bytes();
        let (bytes, end) = match bytes.strip_prefix(b"[") {
            Some(bracketed) => (bracketed, &b"]:"[..]),
            None => (bytes, &b":"[..]),
        };
        let at = bytes.windows(end.len()).position(|window| window == end)?;
        let (host, path) = (str::from_utf8(&bytes[..at]).ok()?, &bytes[at + end.len()..]);
        Some(Self { host: Host::named(host)?, path: OsStr::from_bytes(path).into() })
    }
}

/// Fails unless `path` stays below the directory that it is appended to
pub(crate) fn require_below(path: &Path) -> Result<(), Failure> {
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if is_below {
        return Ok(());
    }
    let why = "must be below the directory of the listening side: write HOST:NAME";
    Err(Failure::Usage(format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_names_a_machine() {
        let remote =
            |host: &str, path: &str| Some(RemotePath { host: Host::named(host).unwrap(), path: path.into() });
        for (text, expected) in [
            ("mini:model.bin", remote("mini", "model.bin")),
            ("mini:", remote("mini", "")),
            ("10.0.0.2:a/b:c", remote("10.0.0.2", "a/b:c")),
            ("mini:7465", remote("mini", "7465")),
            ("[::1]:x", remote("::1", "x")),
            ("[fe80::1%en5]:x", remote("fe80::1%en5", "x")),
            ("./a:b", None),
            ("/a:b", None),
            ("a/b:c", None),
            ("plain", None),
            (":x", None),
            ("[::1]", None),
            ("[]:x", None),
        ] {
            assert_eq!(RemotePath::parse(Path::new(text)), expected, "{text}");
        }
        // Regression: it was taken for a local path.
        let name = OsStr::from_bytes(b"mini:\xff");
        let path = OsStr::from_bytes(b"\xff").into();
        let expected = RemotePath { host: Host::named("mini").unwrap(), path };
        assert_eq!(RemotePath::parse(Path::new(name)), Some(expected));
    }

    #[test]
    fn a_path_that_leads_out_of_the_directory_is_refused() {
        for inside in ["", "a", "a/b", "./a", "a/."] {
            require_below(Path::new(inside)).unwrap();
        }
        for outside in ["/", "/etc", "..", "a/../b", "a/.."] {
            require_below(Path::new(outside)).unwrap_err();
        }
    }
}
