//! Text that commands read: from files, and from standard input

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::closed_streams;
use crate::failure::{Failure, at, is_standard};

/// The text of a file of at most `most` bytes, or of standard input if `path` is `-`; errors name the file
pub(crate) fn read_named(path: &Path, most: u64) -> Result<String> {
    if is_standard(path) {
        return read_text(standard_input()?, most).with_context(|| at(path, "cannot be read"));
    }
    read_file(path, most)
}

/// The text of a file or pipe of at most `most` bytes; errors name the file
pub(crate) fn read_file(path: &Path, most: u64) -> Result<String> {
    let read = || {
        let file = File::open(path)?;
        ensure!(!file.metadata()?.is_dir(), "is a directory");
        read_text(file, most)
    };
    read().with_context(|| at(path, "cannot be read"))
}

/// The text of at most `most` bytes: a longer one, such as that of /dev/zero, would take all memory
fn read_text(from: impl io::Read, most: u64) -> Result<String> {
    let mut text = Vec::new();
    from.take(most + 1).read_to_end(&mut text)?;
    ensure!(text.len() as u64 <= most, "is longer than {most} bytes");
    let text = String::from_utf8(text).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        anyhow!("is not UTF-8 text: line {}", before.iter().filter(|byte| **byte == b'\n').count() + 1)
    })?;
    // Some editors begin a file with a byte-order mark.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Fails if several of these files are standard input, before any of them is read
pub(crate) fn require_one_standard(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Failure> {
    match paths.into_iter().filter(|path| is_standard(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(Failure::usage(READ_ONCE)),
    }
}

const READ_ONCE: &str = "standard input is read once: write `-` for one of the files";

/// Standard input, which only one argument can name
pub(crate) fn standard_input() -> Result<io::Stdin> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        bail!(Failure::usage(READ_ONCE));
    }
    closed_streams::require_input().context("standard input: cannot be read")?;
    Ok(io::stdin())
}
