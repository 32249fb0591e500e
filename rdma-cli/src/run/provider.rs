//! Where the simulated provider is

use std::env;
use std::path::{Path, PathBuf};

/// What it is called on this system
#[cfg(target_os = "macos")]
pub(super) const NAME: &str = "librdma.dylib";
#[cfg(not(target_os = "macos"))]
pub(super) const NAME: &str = "librdma.so";

const VARIABLE: &str = "RDMA_SIM_PROVIDER";

/// There is no provider
#[derive(Debug, thiserror::Error)]
pub(super) enum Missing {
    #[error(
        "there is no simulated provider {NAME} at {}: build it with `cargo build --release -p librdma`, or say where it is with {VARIABLE}",
        list(.0)
    )]
    Nowhere(Vec<PathBuf>),
    #[error("{VARIABLE}={0:?} is no file: name the {NAME} that `cargo build --release -p librdma` makes")]
    Named(PathBuf),
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", nor at ")
}

/// Finds the provider: where the environment says, or near the tool
pub(super) fn find() -> Result<PathBuf, Missing> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return file(&path).ok_or(Missing::Named(path));
    }
    let tool = env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let beside = tool.parent().unwrap_or_else(|| Path::new("."));
    // cargo renews the one in `deps` whenever it builds the tool, and the one beside it only with the whole workspace.
    let places = [beside.join("deps"), beside.to_owned(), beside.join("../lib")];
    let places = places.map(|place| place.join(NAME));
    places.iter().find_map(|place| file(place)).ok_or_else(|| Missing::Nowhere(places.to_vec()))
}

fn file(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().filter(|path| path.is_file())
}
