//! A network for the programs: a namespace for each host, cables between them, and the provider where a Mac has it

mod cables;
mod files;
mod namespace;
mod netlink;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use rdma_sim::Topology;
use rdma_sim_verbs::shared::SharedFabric;

use self::cables::Cables;
use self::namespace::Namespace;
use self::netlink::{Assigned, End, Netlink};

/// Where the coordinating program listens, on the first host
const COORDINATOR_PORT: u16 = 32_323;
/// The indices of the Ethernet interface of a host, and of the switch and its ports in the middle.
const ETHERNET: u32 = 100;
const SWITCH: u32 = 100;
const FIRST_SWITCH_PORT: u32 = 110;

/// Gives this process mounts of its own, with the files that the programs find under absolute paths
///
/// # Errors
///
/// If the system refuses; the message is one sentence that says what to do.
pub(super) fn enter(topology: &Topology, provider: &Path) -> Result<()> {
    namespace::enter().context(
        "--net needs a namespace, which this system does not give to this user: run tb5 as root, or let users make user namespaces \
         (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces; in a \
         container, its seccomp profile)",
    )?;
    let mut hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for (number, host) in topology.hosts().iter().enumerate() {
        hosts += &format!("{} {}\n", ethernet(number), host.name());
    }
    files::place(provider, &hosts)
        .with_context(|| format!("--net cannot place the provider at {} for the programs", files::PROVIDER))
}

/// The namespaces of the hosts
pub(super) struct Hosts(Vec<Namespace>);

impl Hosts {
    /// Starts the program of `command` in the namespace of a host
    pub(super) fn set(&self, command: &mut Command, host: usize) {
        self.0[host].set(command);
    }
}

/// Network of the hosts: a cable for each one of the fabric, and Ethernet
pub(super) struct Wires<'a> {
    /// The interfaces of each host.
    hosts: Vec<Netlink>,
    middle: Netlink,
    cables: Cables<'a>,
    /// Keeps the other ends of all cables.
    _namespace: Namespace,
}

impl Wires<'_> {
    /// Lets the faults of the fabric that have fired take effect
    pub(super) fn update(&mut self) -> Result<()> {
        self.cables.update(&mut self.middle, &mut self.hosts)
    }
}

/// Makes the network of a fabric
///
/// # Errors
///
/// If the system refuses; the message is one sentence that says what is missing.
pub(super) fn make(fabric: &SharedFabric) -> Result<(Hosts, Wires<'_>)> {
    let refused = "--net needs network namespaces with bridges and virtual cables (the modules bridge and veth of the kernel, and \
                   IPv6), which this system does not give";
    let topology = fabric.settings().topology();
    let (namespace, mut middle) = Namespace::new().context(refused)?;
    let made = topology.hosts().iter().map(|_| Namespace::new()).collect::<io::Result<Vec<_>>>();
    let (namespaces, mut hosts): (Vec<_>, Vec<_>) = made.context(refused)?.into_iter().unzip();
    add_ethernet(topology, &mut middle, &namespaces, &mut hosts).context(refused)?;
    let mut cables = Cables::new(fabric, &mut middle, &namespaces, &mut hosts).context(refused)?;
    cables.apply(&mut middle, &mut hosts).context(refused)?;
    cables.update(&mut middle, &mut hosts)?;
    Ok((Hosts(namespaces), Wires { hosts, middle, cables, _namespace: namespace }))
}

/// Where all hosts reach the coordinating program, which listens on the first one
pub(super) fn coordinator() -> String {
    format!("{}:{COORDINATOR_PORT}", ethernet(0))
}

/// The address of a host in the network that joins all of them
fn ethernet(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

/// Joins all hosts to a switch, as an office network does: no fault of a cable cuts it
fn add_ethernet(
    topology: &Topology,
    middle: &mut Netlink,
    namespaces: &[Namespace],
    links: &mut [Netlink],
) -> io::Result<()> {
    middle.add_bridge(SWITCH, "switch")?;
    middle.disable_own_addresses(SWITCH)?;
    middle.set_up(SWITCH, true)?;
    for (number, host) in topology.hosts().iter().enumerate() {
        let is_taken = |name: &str| host.ports().iter().any(|port| port.interface() == name);
        let name = (0..).map(|number| format!("en{number}")).find(|name| !is_taken(name)).unwrap_or_default();
        let (end, index) = (format!("e{number}"), FIRST_SWITCH_PORT + number as u32);
        let here = End { index, name: &end, hardware_address: None };
        let there = End { index: ETHERNET, name: &name, hardware_address: None };
        namespaces[number].join(&mut links[number], there, middle, here)?;
        let address = Assigned { local: ethernet(number).into(), peer: None, prefix_length: 24 };
        links[number].add_address(ETHERNET, address)?;
        middle.attach(index, SWITCH)?;
        middle.set_up(index, true)?;
    }
    Ok(())
}
