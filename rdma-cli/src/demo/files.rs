//! The directory that is copied: real files in a temporary place, which go with it

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::failure::at;
use crate::file::without_path;
use crate::report::note;

/// A directory with files, and room for its copies
pub(super) struct Files {
    /// `None` once it is removed
    root: Option<TempDir>,
    path: PathBuf,
    source: PathBuf,
}

/// Names and lengths.
const FILES: [(&str, usize); 5] = [
    ("model/weights.bin", 20 << 20),
    ("model/tokenizer.json", 300_000),
    ("notes.txt", 4_097),
    ("empty", 0),
    ("checkpoints/2026/step-1000.bin", 3 << 20),
];

impl Files {
    /// Writes the files, with bytes that depend on `seed`
    pub(super) fn create(seed: u64) -> Result<Self> {
        let root = TempDir::with_prefix("tb5-demo-").context("there is no temporary directory")?;
        let source = root.path().join("source");
        for (number, (name, len)) in FILES.into_iter().enumerate() {
            let path = source.join(name);
            let written = || at(&path, "cannot be written");
            path.parent().map_or(Ok(()), fs::create_dir_all).with_context(written)?;
            fs::write(&path, content(seed.wrapping_add(number as u64), len)).with_context(written)?;
        }
        Ok(Self { path: root.path().to_owned(), root: Some(root), source })
    }

    pub(super) fn source(&self) -> &Path {
        &self.source
    }

    /// Where a copy goes
    pub(super) fn copy(&self, number: usize) -> PathBuf {
        self.path.join(format!("copy-{number}"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.root.take().map(TempDir::close) {
            let error = without_path(error);
            note(&at(&self.path, format_args!("is left behind, because it cannot be removed: {error}")));
        }
    }
}

/// Bytes without a pattern that a copy could repeat by mistake
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend((state ^ state >> 29).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Fails unless each file of the copy has the bytes of its source, read back from the disk
pub(super) fn compare(source: &Path, copy: &Path) -> Result<()> {
    for (name, _) in FILES {
        let read = |root: &Path| {
            let path = root.join(name);
            fs::read(&path).with_context(|| at(&path, "cannot be read"))
        };
        ensure!(read(source)? == read(copy)?, at(&copy.join(name), "differs from its source"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a comparison that looks at names or lengths only.
    #[test]
    fn a_changed_byte_is_found() {
        let files = Files::create(0).unwrap();
        let copy = files.copy(0);
        for (name, _) in FILES {
            fs::create_dir_all(copy.join(name).parent().unwrap()).unwrap();
            fs::copy(files.source().join(name), copy.join(name)).unwrap();
        }
        compare(files.source(), &copy).unwrap();
        let mut bytes = fs::read(copy.join("notes.txt")).unwrap();
        bytes[4096] ^= 1;
        fs::write(copy.join("notes.txt"), bytes).unwrap();
        let error = compare(files.source(), &copy).unwrap_err().to_string();
        assert!(error.ends_with("notes.txt: differs from its source"), "{error}");
    }
}
