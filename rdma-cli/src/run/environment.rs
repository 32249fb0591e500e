//! The environment variables of the programs

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rdma_sim_verbs::shared::SharedFabric;

use super::provider;

#[cfg(target_os = "macos")]
const VARIABLES: [&str; 2] = ["DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH"];
#[cfg(not(target_os = "macos"))]
const VARIABLES: [&str; 2] = ["LD_PRELOAD", "LD_LIBRARY_PATH"];

/// Settings of a fabric in the process; the settings of the shared fabric apply instead.
const IGNORED_SETTINGS: [&str; 6] = [
    "RDMA_SIM_CLOCK",
    "RDMA_SIM_FAULTS",
    "RDMA_SIM_PACE",
    "RDMA_SIM_PROFILE",
    "RDMA_SIM_SEED",
    "RDMA_SIM_TOPOLOGY",
];

/// The variables, those that differ between hosts aside
pub(super) struct Environment {
    fabric: String,
    provider: PathBuf,
    /// The folder with the provider under the names that programs load. Its path contains no `:`, which separates paths.
    libraries: PathBuf,
    matrix: PathBuf,
    coordinator: String,
    hosts: usize,
    link_layer: Option<String>,
}

impl Environment {
    /// Creates the files that programs read in the folder of the fabric, which removes them with its own
    ///
    /// The coordinating program listens at `coordinator`, or, if all hosts have the network of this process, on a free port.
    pub(super) fn new(
        fabric: &SharedFabric,
        provider: PathBuf,
        link_layer: Option<String>,
        coordinator: Option<String>,
    ) -> io::Result<Self> {
        let libraries = fabric.directory().to_owned();
        for name in ["librdma.dylib", "librdma.so"] {
            symlink(&provider, libraries.join(name))?;
        }
        let topology = fabric.settings().topology();
        let matrix = libraries.join("devices.json");
        std::fs::write(&matrix, topology.to_matrix())?;
        // The system does not hand out a released port again soon.
        let free = || Ok::<_, io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
        let coordinator = coordinator.map_or_else(free, Ok)?;
        let (fabric, hosts) = (fabric.name().to_owned(), topology.hosts().len());
        Ok(Self { fabric, provider, libraries, matrix, coordinator, hosts, link_layer })
    }

    /// Sets the variables for the program of a host
    pub(super) fn set(&self, command: &mut Command, host: &str, rank: usize) {
        let [insert, search] = VARIABLES;
        command
            .env(insert, first(self.libraries.join(provider::NAME).as_os_str(), insert))
            .env(search, first(self.libraries.as_os_str(), search))
            .env("RDMA_PROVIDER", &self.provider)
            .env("RDMA_SIM_FABRIC", &self.fabric)
            .env("RDMA_SIM_HOST", host);
        if let Some(layer) = &self.link_layer {
            command.env("RDMA_SIM_LINK_LAYER", layer);
        }
        for name in IGNORED_SETTINGS {
            command.env_remove(name);
        }
        for library in ["JACCL_", "MLX_"] {
            command
                .env(format!("{library}RANK"), rank.to_string())
                .env(format!("{library}WORLD_SIZE"), self.hosts.to_string())
                .env(format!("{library}IBV_DEVICES"), &self.matrix);
        }
        for name in ["JACCL_COORDINATOR", "MLX_JACCL_COORDINATOR"] {
            command.env(name, &self.coordinator);
        }
    }
}

/// The value of a variable with `path` before its present paths
fn first(path: &OsStr, variable: &str) -> OsString {
    let mut value = path.to_owned();
    if let Some(others) = std::env::var_os(variable).filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}
