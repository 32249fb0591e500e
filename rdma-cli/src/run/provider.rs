//! Finds the library of the simulated provider

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The file name of the library on this system
#[cfg(target_os = "macos")]
pub(super) const NAME: &str = "librdma.dylib";
#[cfg(not(target_os = "macos"))]
pub(super) const NAME: &str = "librdma.so";

const VARIABLE: &str = "RDMA_SIM_PROVIDER";

/// Finds the library by the environment variable, or near the tool
pub(super) fn find() -> Result<PathBuf> {
    const BUILD: &str = "`cargo build --release -p librdma`";
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let path = file(Path::new(&named));
        return path.with_context(|| {
            format!("{VARIABLE}={named:?} is not a file: name the {NAME} that {BUILD} makes")
        });
    }
    let tool = env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let beside = tool.parent().unwrap_or_else(|| Path::new("."));
    // cargo rebuilds the library in `deps` with the tool, and the one beside it only with the whole workspace.
    let candidates = [beside.join("deps"), beside.to_owned(), beside.join("../lib")];
    let candidates = candidates.map(|folder| folder.join(NAME));
    candidates.iter().find_map(|path| file(path)).with_context(|| {
        let places = candidates.each_ref().map(|path| path.display().to_string()).join(", nor at ");
        format!(
            "there is no simulated provider {NAME} at {places}: build it with {BUILD}, and set {VARIABLE} to \
             target/release/{NAME}"
        )
    })
}

fn file(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().filter(|path| path.is_file())
}
