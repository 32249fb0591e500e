//! Finds the library of the simulated provider

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context as _, Result, anyhow, bail};

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
        let refuse = |why: &str| anyhow!("{VARIABLE}={named:?} is {why}: name the {NAME} that {BUILD} makes");
        let path = file(Path::new(&named)).ok_or_else(|| refuse("not a file"))?;
        // The loader ignores what it cannot load, and programs would run with another provider, of real hardware even.
        if !is_provider(&path).with_context(|| format!("{VARIABLE}={named:?}"))? {
            bail!(refuse("not the simulated provider"));
        }
        return Ok(path);
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

/// True if the file is a library with a function that only the simulated provider has
fn is_provider(path: &Path) -> io::Result<bool> {
    const OWN: &[u8] = b"\0rdma_sim_step\0";
    const ELF: &[u8] = b"\x7fELF";
    const MACH_O: &[u8] = &[0xcf, 0xfa, 0xed, 0xfe];
    let library = fs::read(path)?;
    let is_library = library.starts_with(ELF) || library.starts_with(MACH_O);
    // Names on macOS begin with an underscore.
    let has = |name: &[u8]| library.windows(name.len()).any(|found| found == name);
    Ok(is_library && (has(OWN) || has(b"\0_rdma_sim_step\0")))
}

fn file(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().filter(|path| path.is_file())
}
