//! What the trace says of hosts, ports and cables beside what is hashed, where it keeps records: pictures of a run need it

use rdma_core::{PortState, Time};

use super::ids::{DeviceIndex, LinkEnd};
use super::links::Links;
use super::world::{Process, World};
use crate::trace::{Names, PortName, RecordKind, Trace};

/// The names at first, and the states as the records have said them
#[derive(Debug)]
pub(crate) struct Notes {
    first: Names,
    said: States,
}

/// What faults change and a picture shows
#[derive(Debug, Eq, PartialEq)]
struct States {
    processes: Vec<Process>,
    ports: Vec<Port>,
    cables: Vec<u64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Port {
    is_active: bool,
    name: String,
    link: Option<LinkEnd>,
}

/// A cable that is out, as a record says it, beside the percentage of its rate.
const IS_OUT: u64 = 256;
/// A cable over which addresses are not resolved.
const IS_UNRESOLVABLE: u64 = 512;

impl Notes {
    pub(super) fn new(world: &World, links: &Links) -> Self {
        Self { first: names(world), said: States::of(world, links) }
    }

    /// The names at first
    pub(crate) fn names(&self) -> &Names {
        &self.first
    }

    /// Records how the states of hosts, ports and cables differ from what the records have said
    pub(super) fn note_changes(&mut self, world: &World, links: &Links, now: Time, trace: &mut Trace) {
        let states = States::of(world, links);
        let mut note = |kind, subject: usize, value| trace.note(now, kind, subject as u32, value, 0);
        let (said, first) = (&self.said, &self.first);
        for (host, process) in changed(&states.processes, &said.processes) {
            let value = match process {
                Process::Dead => 0,
                Process::Running => 1,
                Process::Stopped => 2,
            };
            note(RecordKind::Process, host, value);
        }
        for (port, Port { name, .. }) in changed_by(&states.ports, &said.ports, |port| &port.name) {
            let host = first.ports[port].host;
            let named = |other: &PortName| other.host == host && other.device == *name;
            note(RecordKind::Renamed, port, first.ports.iter().position(named).unwrap_or(port) as u64);
        }
        for (port, Port { link, .. }) in changed_by(&states.ports, &said.ports, |port| &port.link) {
            let of = |LinkEnd { cable, end }: LinkEnd| u64::from(cable) << 1 | u64::from(end);
            note(RecordKind::Moved, port, link.map_or(u64::MAX, of));
        }
        for (cable, state) in changed(&states.cables, &said.cables) {
            note(RecordKind::Cable, cable, *state);
        }
        for (port, Port { is_active, .. }) in changed_by(&states.ports, &said.ports, |port| &port.is_active) {
            note(RecordKind::Port, port, u64::from(*is_active));
        }
        self.said = states;
    }
}

fn names(world: &World) -> Names {
    let ports = devices(world).map(|device| PortName {
        host: world.host_of(device),
        device: world.device_name(device).to_owned(),
        cable: world.link(device).map(|link| link.cable),
    });
    Names { hosts: world.host_names(), ports: ports.collect(), faults: Vec::new() }
}

fn devices(world: &World) -> impl Iterator<Item = DeviceIndex> + use<> {
    (0..world.device_count() as u32).map(DeviceIndex)
}

impl States {
    fn of(world: &World, links: &Links) -> Self {
        let processes = (0..world.host_names().len() as u32).map(|host| world.process(host).0).collect();
        let ports = devices(world).map(|device| Port {
            is_active: world.port(device).state == PortState::Active,
            name: world.device_name(device).to_owned(),
            link: world.link(device),
        });
        let mut cables = vec![0; links.count()];
        for device in devices(world) {
            let Some(LinkEnd { cable, .. }) = world.link(device) else { continue };
            let out = if world.neighbour(device).is_none() { IS_OUT } else { 0 };
            let unresolvable = if world.is_unresolvable(device) { IS_UNRESOLVABLE } else { 0 };
            cables[cable as usize] = u64::from(links.percent(cable)) | out | unresolvable;
        }
        Self { processes, ports: ports.collect(), cables }
    }
}

/// The elements that differ, with their positions
fn changed<'a, T: Eq>(now: &'a [T], said: &'a [T]) -> impl Iterator<Item = (usize, &'a T)> {
    changed_by(now, said, |element| element)
}

/// The elements of which a part differs, with their positions
fn changed_by<'a, T, K: Eq>(
    now: &'a [T],
    said: &'a [T],
    part: impl Fn(&T) -> &K,
) -> impl Iterator<Item = (usize, &'a T)> {
    let pairs = now.iter().zip(said).enumerate();
    pairs.filter(move |(_, (now, said))| part(now) != part(said)).map(|(at, (now, _))| (at, now))
}
