//! The composed outputs of two Macs

use std::fs;
use std::path::{Path, PathBuf};

use rdma_tb5::discover::{Outputs, Tool};

/// Where the composed outputs are
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/composed")
}

/// The text of a fixture
pub(crate) fn fixture(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What all tools print on `left` or `right`
pub(crate) fn outputs(host: &str) -> Outputs {
    let file = |tool| match tool {
        Tool::IbvDevices => "ibv_devices.txt",
        Tool::IbvDevinfo => "ibv_devinfo.txt",
        Tool::Ifconfig => "ifconfig.txt",
        Tool::Ioclasscount => "ioclasscount.txt",
        Tool::Networksetup => "networksetup.txt",
        Tool::Pmset => "pmset.txt",
        Tool::RdmaCtl => "rdma_ctl.txt",
        Tool::SwVers => "sw_vers.txt",
        Tool::Sysctl => "sysctl.txt",
        Tool::SystemProfiler => "system_profiler.json",
        Tool::SystemProfilerText => "system_profiler.txt",
        other => panic!("no fixture of {other}"),
    };
    Tool::ALL.into_iter().fold(Outputs::default(), |outputs, tool| {
        outputs.with(tool, fixture(&format!("{host}/{}", file(tool))))
    })
}
