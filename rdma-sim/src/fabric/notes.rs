//! What the trace says beside what is hashed, where it keeps records: pictures of a run need it

use rdma_core::{PortState, Time};

use super::Fabric;
use super::ids::{DeviceIndex, LinkEnd, QpKey};
use super::links::Links;
use super::world::{Process, World};
use crate::trace::{Ending, History, Names, PortName, RecordKind};

/// The names at first, and the states as the records have said them
#[derive(Debug)]
pub(super) struct Notes {
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

impl Fabric {
    /// Keeps records from now on
    pub(super) fn keep_records(&mut self) {
        self.trace.keep();
        let (world, links) = (&self.world, &self.links);
        self.notes = Some(Box::new(Notes { first: names(world), said: States::of(world, links) }));
    }

    /// The records so far, with the names of what they are about
    pub(crate) fn history(&self) -> History {
        let names = self.notes.as_ref().map(|notes| notes.first.clone()).unwrap_or_default();
        let findings = self.sanitizer.findings().iter().map(|finding| (finding.time, finding.to_string()));
        History::new(
            self.trace.records().to_vec(),
            Names { faults: self.plan.clone(), ..names },
            self.schedule.now(),
            findings.collect(),
        )
    }

    /// Records how the states of hosts, ports and cables differ from what the records have said
    pub(super) fn note_changes(&mut self) {
        let Some(notes) = &mut self.notes else { return };
        let (now, trace) = (self.schedule.now(), &mut self.trace);
        let states = States::of(&self.world, &self.links);
        let mut note = |kind, subject: usize, value| trace.note(now, kind, subject as u32, value, 0);
        let (said, first) = (&notes.said, &notes.first);
        for (host, process) in changed(&states.processes, &said.processes) {
            note(
                RecordKind::Process,
                host,
                match process {
                    Process::Dead => 0,
                    Process::Running => 1,
                    Process::Stopped => 2,
                },
            );
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
        notes.said = states;
    }

    /// Records that queue pairs drop their requests
    pub(super) fn note_dropped(&mut self, keys: impl IntoIterator<Item = QpKey>, why: Ending) {
        if !self.trace.keeps() {
            return;
        }
        let now = self.schedule.now();
        for qp in keys.into_iter().filter_map(|key| self.qps.get(key)) {
            self.trace.note(now, RecordKind::Dropped, qp.subject(), why as u64, 0);
        }
    }

    /// Records that the queue pairs of a device drop their requests
    pub(super) fn note_dropped_of(&mut self, device: DeviceIndex, why: Ending) {
        if self.trace.keeps() {
            self.note_dropped(self.qps.of(device).to_vec(), why);
        }
    }

    /// Records that a queue pair sends nothing any more, if that is because it had been idle for too long
    #[cold]
    pub(super) fn note_idle_death(&mut self, key: QpKey) {
        if self.trace.keeps() && self.qps.get(key).is_some_and(|qp| qp.is_dead()) {
            self.note_dropped([key], Ending::Idle);
        }
    }

    /// Records that the next message of a queue pair goes nowhere, and how many frames the fault still loses
    #[cold]
    pub(super) fn note_loss(&mut self, link: LinkEnd, key: QpKey, by_fault: bool) {
        let [_, left] = self.links.pending_faults(link);
        let subject = self.qps[key].subject();
        self.trace.note(self.schedule.now(), RecordKind::Lost, subject, by_fault.into(), left.into());
    }

    /// Records that the open receive of a queue pair is damaged, and how many frames the fault still damages
    #[cold]
    pub(super) fn note_damage(&mut self, link: LinkEnd, peer: QpKey) {
        let [left, _] = self.links.pending_faults(link);
        self.trace.note(self.schedule.now(), RecordKind::Damaged, self.qps[peer].subject(), 1, left.into());
    }

    /// Records that the open receive of a peer is full, or its message at an end, and completes at `at`
    #[cold]
    pub(super) fn note_filled(&mut self, [key, peer]: [QpKey; 2], at: Time) {
        let [from, to] = [key, peer].map(|key| self.qps[key].subject());
        self.trace.note(self.schedule.now(), RecordKind::Filled, to, from.into(), at.as_nanos());
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
