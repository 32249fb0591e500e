//! Finds the library of the simulated provider

use std::env;
use std::path::{Path, PathBuf};

/// The file name of the library on this system
#[cfg(target_os = "macos")]
pub(super) const NAME: &str = "librdma.dylib";
#[cfg(not(target_os = "macos"))]
pub(super) const NAME: &str = "librdma.so";

const VARIABLE: &str = "RDMA_SIM_PROVIDER";

/// The library was not found
#[derive(Debug, thiserror::Error)]
pub(super) enum Missing {
    #[error(
        "there is no simulated provider {NAME} at {}: build it with `cargo build --release -p librdma`, or set {VARIABLE} to its path",
        list(.0)
    )]
    Nowhere(Vec<PathBuf>),
    #[error("{VARIABLE}={0:?} is not a file: name the {NAME} that `cargo build --release -p librdma` makes")]
    Named(PathBuf),
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", nor at ")
}

/// Finds the library by the environment variable, or near the tool
pub(super) fn find() -> Result<PathBuf, Missing> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return file(&path).ok_or(Missing::Named(path));
    }
    let tool = env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let beside = tool.parent().unwrap_or_else(|| Path::new("."));
    // cargo rebuilds the library in `deps` with the tool, and the one beside it only with the whole workspace.
    let candidates = [beside.join("deps"), beside.to_owned(), beside.join("../lib")];
    let candidates = candidates.map(|folder| folder.join(NAME));
    candidates.iter().find_map(|path| file(path)).ok_or_else(|| Missing::Nowhere(candidates.to_vec()))
}

fn file(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().filter(|path| path.is_file())
}
