//! Devices, queues and cables in virtual time
//!
//! A [`Fabric`] is a plain value: no I/O, no threads, no clock. Verbs change it, [`advance`](Fabric::advance) lets time
//! pass, and [`next_event`](Fabric::next_event) tells how far it can pass without anything happening.

mod cq;
mod device;
mod faults;
mod host;
mod memory;
mod modify;
mod one_sided;
mod post;
mod queue_pair;
mod remote;
mod remote_ops;
mod sanitizer;
mod wire;

pub(crate) use self::device::DeviceRef;
pub use self::host::Process;
pub use self::sanitizer::{Finding, FindingKind};
pub use self::wire::CableStats;

use std::fmt;
use std::ops::Add;

use rdma_core::Time;
use slotmap::{SlotMap, new_key_type};

use self::cq::CompletionQueue;
use self::device::Device;
use self::host::Host;
use self::memory::Region;
use self::queue_pair::{QpRef, QueuePair};
use self::remote::Remotes;
use self::sanitizer::Sanitizer;
use self::wire::Cable;
use crate::fault::{Fault, FaultPlan, Trigger};
use crate::schedule::Schedule;
use crate::trace::{RecordKind, Trace};
use crate::{Choices, Model, Topology};

new_key_type! {
    /// A completion queue
    pub(crate) struct CqKey;
    /// A queue pair
    pub(crate) struct QpKey;
    /// A memory region
    pub(crate) struct RegionKey;
}

/// Position of a device among all devices of the fabric
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DeviceIndex(pub(crate) u32);

/// What happens by itself
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Event {
    /// A host has restarted
    Boot(u32),
    /// A receive that was posted becomes known to the sender
    Credit(QpRef),
    /// The oldest filled receive of a queue pair completes
    Delivered(QpRef),
    /// A posted send reaches the transmitter
    Doorbell(QpRef),
    /// A fault of the plan is due
    Fault(u32),
    /// The transmitter of one direction of a cable is free again
    Free { cable: u32, end: u8 },
    /// A reliable queue pair has waited long enough for its peer
    GiveUp(QpRef),
    /// The oldest one-sided operation of a queue pair reaches the memory of the peer
    Remote(QpRef),
    /// The cable in a port is plugged in again
    Replug(DeviceIndex),
    /// The oldest transmitted send of a queue pair completes
    Sent(QpRef),
}

/// The simulated hardware: hosts, devices, their objects, and the cables between them
pub(crate) struct Fabric {
    now: Time,
    /// How far time may pass before somebody else has a say.
    limit: Time,
    schedule: Schedule<Event>,
    choices: Box<dyn Choices>,
    trace: Trace,
    model: Model,
    /// How long a queue pair can rest.
    idle_ns: u64,
    plan: Vec<Fault>,
    hosts: Vec<Host>,
    /// Whether processes have stopped or started since somebody asked.
    has_host_news: bool,
    devices: Vec<Device>,
    cables: Vec<Cable>,
    regions: SlotMap<RegionKey, Region>,
    /// Counts registrations and steps to ready-to-receive.
    clock_of_setup: u64,
    cqs: SlotMap<CqKey, CompletionQueue>,
    qps: SlotMap<QpKey, QueuePair>,
    /// Completion queues that somebody waits for and that have something to tell since the last look.
    woken: Vec<CqKey>,
    sanitizer: Option<Sanitizer>,
    /// Whether regions have the addresses of their memory, as programs in C expect, instead of invented ones.
    real_addresses: bool,
    /// Other processes simulate the other hosts.
    remotes: Option<Remotes>,
}

impl Fabric {
    pub(crate) fn new(topology: &Topology, model: Model, plan: FaultPlan, choices: Box<dyn Choices>) -> Self {
        let mut cables: Vec<_> = topology
            .cables
            .iter()
            .map(|cable| Cable::new(topology.link_rate(cable), model.timing.line_rate))
            .collect();
        let mut devices = Vec::new();
        let mut hosts = Vec::new();
        for (h, host) in topology.hosts.iter().enumerate() {
            let first = devices.len() as u32;
            for (p, port) in host.ports.iter().enumerate() {
                let index = DeviceIndex(devices.len() as u32);
                let position = crate::topology::PortIndex { host: h, port: p };
                let cable = topology.cables.iter().enumerate().find_map(|(c, cable)| {
                    let end = cable.ends.iter().position(|end| *end == position)?;
                    cables[c].devices[end] = index;
                    Some((c as u32, end as u8))
                });
                devices.push(Device::new(port, host.mac().line_rate(), h as u32, cable));
            }
            hosts.push(Host::new(host.name.clone(), first..devices.len() as u32));
        }
        let idle = model.rules.idle_death.and_then(|idle| u64::try_from(idle.as_nanos()).ok());
        let idle_ns = idle.unwrap_or(u64::MAX);
        let mut fabric = Self {
            now: Time::ZERO,
            limit: Time::ZERO,
            schedule: Schedule::new(),
            choices,
            trace: Trace::new(),
            model,
            idle_ns,
            plan: Vec::new(),
            hosts,
            has_host_news: false,
            devices,
            cables,
            regions: SlotMap::with_key(),
            clock_of_setup: 0,
            cqs: SlotMap::with_key(),
            qps: SlotMap::with_key(),
            woken: Vec::with_capacity(16),
            sanitizer: None,
            real_addresses: false,
            remotes: None,
        };
        for fault in plan.0 {
            fabric.plan(fault);
        }
        fabric
    }

    /// Looks for misuse of memory from now on
    pub(crate) fn sanitize(&mut self) {
        self.sanitizer = Some(Sanitizer::default());
    }

    /// Gives regions the addresses of their memory from now on
    pub(crate) fn use_real_addresses(&mut self) {
        self.real_addresses = true;
    }

    /// Keeps what happens, so that it can be read afterwards
    pub(crate) fn keep_records(&mut self) {
        self.trace.keep();
    }

    /// Keeps no trace from now on
    pub(crate) fn stop_trace(&mut self) {
        self.trace.stop();
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    pub(crate) fn choices(&mut self) -> &mut dyn Choices {
        &mut *self.choices
    }

    /// Has `fault` happen when it is due, which is now if that has passed
    pub(crate) fn plan(&mut self, fault: Fault) {
        let number = self.plan.len() as u32;
        match fault.trigger {
            Trigger::At(time) => self.schedule.add(time.max(self.now), Event::Fault(number)),
            Trigger::AfterFrames(frames) => self.arm(&fault.target, frames, number),
        }
        self.plan.push(fault);
    }

    // ─── Time ───

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn next_event(&self) -> Option<Time> {
        self.schedule.next()
    }

    /// Lets happen what is due by `limit`, until somebody should be woken; time stops at the last thing that happened
    pub(crate) fn advance(&mut self, limit: Time) {
        debug_assert!(limit >= self.now, "time does not go back");
        self.limit = limit;
        loop {
            if self.has_news() {
                // What else happens at this very moment belongs to it.
                self.limit = self.now;
            }
            let Some((at, event)) = self.schedule.pop_by(self.limit) else {
                return;
            };
            self.now = at;
            self.happen(event);
        }
    }

    /// Lets time pass in which nothing happens
    pub(crate) fn skip_to(&mut self, time: Time) {
        debug_assert!(
            time >= self.now && self.schedule.next().is_none_or(|next| next > time),
            "nothing is skipped"
        );
        self.now = time;
    }

    #[inline(always)]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Boot(host) => self.boot(host),
            Event::Credit(qp) => self.credit(qp),
            Event::Delivered(qp) => self.delivered(qp),
            Event::Doorbell(qp) => self.doorbell(qp),
            Event::Fault(number) => self.fault(number),
            Event::Free { cable, end } => self.transmit(cable, end),
            Event::GiveUp(qp) => self.give_up(qp),
            Event::Remote(qp) => self.remote(qp),
            Event::Replug(device) => self.replug(device),
            Event::Sent(qp) => self.sent(qp),
        }
    }

    /// Whether somebody should be told something
    pub(crate) fn has_news(&self) -> bool {
        !self.woken.is_empty() || self.has_host_news
    }

    /// A completion queue whose waiter should look
    pub(crate) fn pop_woken(&mut self) -> Option<CqKey> {
        self.woken.pop()
    }

    /// Whether processes have stopped or started since the last call
    pub(crate) fn take_host_news(&mut self) -> bool {
        std::mem::take(&mut self.has_host_news)
    }

    fn record(&mut self, kind: RecordKind, subject: u32, value: u64) {
        self.trace.record(self.now, kind, subject, value);
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Nanoseconds, without the detour over a [`Duration`](std::time::Duration): sums of them are everywhere
#[derive(Clone, Copy, Debug)]
struct Nanos(u64);

const fn nanos(ns: u64) -> Nanos {
    Nanos(ns)
}

impl Add<Nanos> for Time {
    type Output = Self;

    fn add(self, Nanos(ns): Nanos) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(ns))
    }
}
