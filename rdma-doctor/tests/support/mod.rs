//! The composed outputs of two Macs

use std::fs;
use std::path::{Path, PathBuf};

use rdma_doctor::discover::{Outputs, Tool};

/// The folder of the composed outputs
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/composed")
}

/// The text of a fixture
pub(crate) fn fixture(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The outputs of all tools on `left` or `right`
pub(crate) fn outputs(host: &str) -> Outputs {
    Tool::ALL.into_iter().fold(Outputs::default(), |outputs, tool| {
        let suffix = if tool == Tool::SystemProfiler { "json" } else { "txt" };
        outputs.with(tool, fixture(&format!("{host}/{}.{suffix}", tool.command()[0])))
    })
}
