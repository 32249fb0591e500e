//! The devices that programs find

use rdma_sim::Topology;

/// A device as programs find it
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) host: String,
    pub(crate) device: String,
    /// The name in lists of devices.
    pub(crate) name: String,
    pub(crate) guid: u64,
}

/// The devices of all hosts, or of the one with the name or number `host`
pub(crate) fn list(topology: &Topology, host: Option<&str>) -> Vec<Listed> {
    let hosts = topology.hosts().iter().enumerate();
    let hosts = hosts.filter(|(number, found)| {
        host.is_none_or(|host| found.name() == host || host.parse() == Ok(*number))
    });
    let of_host = |found: &rdma_sim::topology::Host| {
        let name = found.name().to_owned();
        let ports = found.ports().iter().map(|port| Listed {
            host: name.clone(),
            device: port.device().to_owned(),
            // Where all hosts are in one process, the name of the host distinguishes their devices.
            name: if host.is_some() { port.device().to_owned() } else { format!("{}@{name}", port.device()) },
            guid: u64::from_be_bytes(port.guid().0),
        });
        ports.collect::<Vec<_>>()
    };
    hosts.flat_map(|(_, host)| of_host(host)).collect()
}
