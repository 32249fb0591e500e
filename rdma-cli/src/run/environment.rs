//! What the programs find in their environment

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

/// What decides about a fabric of one's own: this one is decided.
const DECIDED: [&str; 5] =
    ["RDMA_SIM_FAULTS", "RDMA_SIM_PACE", "RDMA_SIM_PROFILE", "RDMA_SIM_SEED", "RDMA_SIM_TOPOLOGY"];

/// What is the same for all hosts
pub(super) struct Environment {
    fabric: String,
    provider: PathBuf,
    /// The provider under the names that programs look for. No letter of its path separates paths.
    libraries: PathBuf,
    matrix: PathBuf,
    coordinator: String,
    hosts: usize,
    link_layer: Option<String>,
}

impl Environment {
    /// Puts what programs read beside the files of the fabric, with which it goes
    pub(super) fn new(
        fabric: &SharedFabric,
        provider: PathBuf,
        link_layer: Option<String>,
    ) -> io::Result<Self> {
        let libraries = fabric.directory().to_owned();
        for name in ["librdma.dylib", "librdma.so"] {
            symlink(&provider, libraries.join(name))?;
        }
        let topology = fabric.settings().topology();
        let matrix = libraries.join("devices.json");
        std::fs::write(&matrix, topology.to_matrix())?;
        // Whoever coordinates listens there; nobody else is given the port so soon again.
        let coordinator = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let (fabric, hosts) = (fabric.name().to_owned(), topology.hosts().len());
        Ok(Self { fabric, provider, libraries, matrix, coordinator, hosts, link_layer })
    }

    /// Sets it for the program of a host
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
        for name in DECIDED {
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

/// A path before those that a variable has already
fn first(path: &OsStr, variable: &str) -> OsString {
    let mut value = path.to_owned();
    if let Some(others) = std::env::var_os(variable).filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}
