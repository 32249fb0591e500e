//! Files of the repository

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the sources of tests are two folders below the repository")
        .to_owned()
}

/// All files of Rust below `folder`, in order
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Compares `current` with the committed file `name`, which the environment variable `UPDATE_GOLDEN` replaces
pub fn assert_golden(name: &str, current: &str) {
    let path = root().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, current).expect("the file can be written");
    }
    let golden = fs::read_to_string(&path).expect("the file is committed");
    assert!(
        golden == current,
        "{name} has changed: run this test with UPDATE_GOLDEN=1 if it should\n{current}"
    );
}
