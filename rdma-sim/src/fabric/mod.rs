//! Devices, queues and cables in virtual time
//!
//! A [`Fabric`] is a plain value: no I/O, no threads, no clock. Verbs change it, [`advance`](Fabric::advance) advances time,
//! and [`Fabric::next_event`] is how far time can advance before the next event.
//!
//! The fabric consists of components that do not know each other. A component is state with steps; a step returns what follows
//! for the others: events to schedule, completions, messages to other processes. The fabric calls the components in turn and
//! passes on what they return.

mod buses;
mod completion_queues;
mod coverage;
mod event;
mod fifo;
mod ids;
mod links;
mod memory;
mod notes;
mod object_counts;
mod one_sided;
mod post;
mod posted_ranges;
mod queue_pairs;
mod remote;
mod remotes;
mod sanitizer;
mod schedule;
mod setup;
pub(crate) mod steps;
mod transmit;
mod world;

pub(crate) use self::ids::{CqKey, DeviceIndex, DeviceRef, QpKey};
pub use self::links::CableStats;
pub(crate) use self::memory::Registered;
pub use self::sanitizer::{Finding, FindingKind};
pub(crate) use self::setup::Change;
pub use self::world::Process;

use std::fmt;

use rdma_core::{Completion, PortState, Time, probe};

use self::completion_queues::CompletionQueues;
use self::coverage::Coverage;
use self::event::Event;
use self::ids::LinkEnd;
use self::links::Links;
use self::memory::Memory;
use self::notes::Notes;
use self::object_counts::ObjectCounts;
use self::queue_pairs::{QueuePair, QueuePairs};
use self::remotes::Remotes;
use self::sanitizer::Sanitizer;
use self::schedule::Schedule;
use self::world::{FaultEffect, World};
use crate::catalogue::rule;
use crate::cpu::Cpu;
use crate::fault::{Fault, Trigger};
use crate::scheduler::Lateness;
use crate::trace::{Ending, RecordKind, Trace};
use crate::{Choices, Model, Scheduler, Topology};

/// The simulated hardware: hosts, devices, their objects, and the cables between them
pub(crate) struct Fabric {
    pub(crate) model: Model,
    pub(crate) schedule: Schedule<Event>,
    pub(crate) choices: Box<dyn Choices>,
    /// Whether the program has drawn a number
    pub(crate) has_picked: bool,
    /// Whether events that are due at one instant come in any order.
    explores: bool,
    /// Whether all faults have ended, and those that wait for frames are forgotten.
    is_calm: bool,
    /// How late doorbells and deliveries are.
    pub(crate) lateness: Lateness,
    /// The faults, those that have fired and those to come
    pub(crate) plan: Vec<Fault>,
    /// Counts registrations and transitions to ready-to-receive.
    setup_steps: u64,
    /// How long the verb takes that was called last, in nanoseconds.
    pub(crate) blocked_ns: u64,
    pub(crate) world: World,
    pub(crate) qps: QueuePairs,
    pub(crate) cqs: CompletionQueues,
    pub(crate) objects: ObjectCounts,
    pub(crate) links: Links,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Memory,
    pub(crate) sanitizer: Sanitizer,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    /// What the records have said of hosts, ports and cables, if records are kept.
    pub(crate) notes: Option<Box<Notes>>,
    pub(crate) remotes: Remotes,
}

/// What a fabric does beside simulating
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The sanitizer looks for misuse of memory.
    pub(crate) sanitizes: bool,
    /// The trace keeps records, so that they can be read afterwards.
    pub(crate) keeps_records: bool,
    /// Regions have the addresses of their memory, as programs in C expect, instead of invented ones.
    pub(crate) real_addresses: bool,
    /// What orders events that are due at one instant, and delays others.
    pub(crate) scheduler: Scheduler,
    /// When all faults end.
    pub(crate) calm: Option<Time>,
}

impl Fabric {
    pub(crate) fn new(
        topology: &Topology,
        mut model: Model,
        faults: Vec<Fault>,
        mut choices: Box<dyn Choices>,
        options: Options,
    ) -> Self {
        let lateness = Lateness::draw(options.scheduler, &mut *choices);
        if options.scheduler == Scheduler::Every {
            model.timing.jitter_ns = 0;
            model.timing.cpu = false;
        }
        let world = World::new(topology, &model);
        let rates = topology.cables.iter().map(|cable| topology.link_rate(cable));
        let ends = (0..topology.cables.len() as u32).map(|cable| LinkEnd { cable, end: 0 });
        let hosts = ends.filter_map(|link| world.ends(link)).map(|ends| ends.map(|end| world.host_of(end)));
        let links = Links::new(rates, hosts, &model.timing);
        let devices = world.device_count();
        let mut fabric = Self {
            schedule: Schedule::new(),
            choices,
            has_picked: false,
            is_calm: false,
            explores: options.scheduler != Scheduler::Fifo,
            lateness,
            plan: Vec::new(),
            setup_steps: 0,
            blocked_ns: 0,
            qps: QueuePairs::new(devices, &model),
            cqs: CompletionQueues::new(),
            links,
            cpu: Cpu::new(&model.timing),
            memory: Memory::new(devices, &model.rules, options.real_addresses),
            sanitizer: Sanitizer::new(options.sanitizes),
            coverage: Coverage::default(),
            trace: Trace::new(),
            notes: None,
            objects: ObjectCounts::default(),
            remotes: Remotes::default(),
            world,
            model,
        };
        if options.keeps_records {
            fabric.trace.keep();
            fabric.notes = Some(Box::new(Notes::new(&fabric.world, &fabric.links)));
        }
        faults.into_iter().for_each(|fault| fabric.plan(fault));
        fabric.schedule.add_all(options.calm.map(|time| (time, Event::Calm)));
        fabric
    }

    // ─── Time ───

    /// Handles the events that are due by `limit`, and then advances time to `end`, if there is one
    ///
    /// If a waiter has to be woken meanwhile, or the state of processes changes, time stops there, and the result is false.
    pub(crate) fn advance(&mut self, limit: Time, end: Option<Time>) -> bool {
        self.schedule.set_limit(limit);
        loop {
            let has_news = self.cqs.has_woken() || self.world.has_news();
            if has_news {
                if self.explores {
                    return false;
                }
                // The other events of this very moment belong to it.
                self.schedule.stop();
            }
            let Some(event) = steps::next(&mut self.schedule, self.explores, &mut *self.choices) else {
                if !has_news && let Some(end) = end {
                    self.schedule.skip_to(end);
                }
                return !has_news;
            };
            self.handle(event);
        }
    }

    /// Handles an event that is due now: that with this [id](steps::due), or any
    pub(crate) fn step(&mut self, id: Option<u64>) {
        self.schedule.stop();
        let event = match id {
            Some(id) => steps::take(&mut self.schedule, id),
            None => steps::next(&mut self.schedule, self.explores, &mut *self.choices),
        };
        event.into_iter().for_each(|event| self.handle(event));
    }

    #[inline(always)]
    fn handle(&mut self, event: Event) {
        match event {
            Event::Boot(host) => {
                let effects = self.world.boot(host);
                if self.model.rules.reboot_readdresses {
                    self.coverage.rule(rule!("reboot-addresses"));
                }
                self.apply(effects);
            }
            Event::Calm => {
                self.is_calm = true;
                let effects = self.world.repair();
                self.links.repair();
                self.apply(effects);
                self.trace.note(self.schedule.now(), RecordKind::Calm, 0, 0, 0);
            }
            Event::Credit(qp) => {
                if let Some(key) = self.qps.credit(qp) {
                    self.enqueue_tx(key);
                }
            }
            Event::Delivered(qp) => self.receive_ended(qp),
            Event::Doorbell(qp) => {
                if let Some(key) = self.qps.ring(qp) {
                    self.enqueue_tx(key);
                }
            }
            Event::Fault(number) => self.fire(number),
            Event::Free(link) => {
                let next = self.links.disarm_transmitter(link);
                self.transmit(link, next);
            }
            Event::OneSided(qp) => self.one_sided_arrived(qp),
            Event::Replug(device) => {
                let effects = self.world.replug(device);
                self.apply(effects);
            }
            Event::Retry(qp) => self.retry(qp),
            Event::Sent(qp) => {
                if self.qps.live(qp).is_some() {
                    self.send_ended(qp.key, None);
                }
            }
        }
    }

    // Inlined, because a copy of a completion that was just made is slow.
    #[inline(always)]
    fn complete(&mut self, (cq, completion): (CqKey, Completion)) {
        self.coverage.completed(self.schedule.now(), &completion);
        let pushed = self.cqs.push(cq, completion);
        if let Some(depth) = pushed.overrun {
            self.sanitizer.cq_overran(self.schedule.now(), depth);
            self.coverage.rule(rule!("cq-overrun"));
        }
        if pushed.wakes {
            self.schedule.stop();
        }
    }

    // ─── Faults ───

    /// Schedules `fault`; it fires at once if its time has passed
    pub(crate) fn plan(&mut self, fault: Fault) {
        let (number, now) = (self.plan.len() as u32, self.schedule.now());
        match fault.trigger {
            Trigger::At(time) => self.schedule.add(time.max(now), Event::Fault(number)),
            Trigger::AfterFrames(frames) => {
                if let Some(link) = self.world.counted_link(&fault.target)
                    && !self.links.add_trigger(link, frames, number)
                {
                    self.schedule.add(now, Event::Fault(number));
                }
            }
        }
        self.plan.push(fault);
    }

    /// Fires a fault of the plan
    fn fire(&mut self, number: u32) {
        let fault = &self.plan[number as usize];
        if self.is_calm && matches!(fault.trigger, Trigger::AfterFrames(_)) {
            return;
        }
        self.coverage.fault(fault.kind.name());
        probe::fault_fires(fault.target.host(), fault.kind.name());
        self.trace.record(self.schedule.now(), RecordKind::Fault, number, 0);
        let effects = self.world.fire(&fault.target, &fault.kind);
        self.apply(effects);
    }

    /// Applies what a fault of the world does to the other components
    fn apply(&mut self, effects: Vec<FaultEffect>) {
        let now = self.schedule.now();
        self.world.set_ports_changed();
        for effect in effects {
            match effect {
                FaultEffect::After(time, event) => self.schedule.add(now + time, event),
                FaultEffect::Corrupt(link, frames) => self.links.corrupt(link, frames),
                FaultEffect::CutOff { ends, cable } => {
                    self.trace.record(now, RecordKind::Plugged, ends[0].0, 0);
                    for end in ends {
                        if self.qps.of(end).iter().any(|key| self.qps[*key].has_requests()) {
                            self.coverage.rule(rule!("unplug-silence"));
                        }
                        self.trace.note_dropped(now, self.qps.subjects_of(end), Ending::CutOff);
                        self.qps.for_each_of(end, QueuePair::cut_off);
                    }
                    self.links.clear(cable);
                }
                FaultEffect::IdleDeath { ends, cable } => {
                    for end in ends.into_iter().flatten() {
                        self.trace.note_dropped(now, self.qps.subjects_of(end), Ending::Idle);
                        self.qps.for_each_of(end, QueuePair::die);
                    }
                    cable.into_iter().for_each(|cable| self.links.clear(cable));
                }
                FaultEffect::Lose(link, frames) => self.links.lose(link, frames),
                FaultEffect::PluggedIn(device) => {
                    let is_active = self.world.port(device).state == PortState::Active;
                    for (applies, number) in [
                        (self.model.rules.replug_leaks_pds > 0, rule!("replug-leaks-pd")),
                        (self.model.rules.gids_move, rule!("gid-moves")),
                    ] {
                        if applies && is_active {
                            self.coverage.rule(number);
                        }
                    }
                    self.trace.record(now, RecordKind::Plugged, device.0, 1);
                }
                FaultEffect::Reclaim(device) => {
                    self.trace.note_dropped(now, self.qps.subjects_of(device), Ending::Killed);
                    let qps = self.qps.remove_all(device);
                    if self.world.keep_qps(device, qps.len() as u32) {
                        self.coverage.rule(rule!("process-end-qps"));
                    }
                    for qp in qps {
                        self.coverage.rule(rule!("peer-death"));
                        self.coverage.rule(rule!("process-end"));
                        self.sanitizer.forget(qp);
                    }
                    self.memory.deregister_all(device);
                    self.cqs.destroy_all(device);
                }
                FaultEffect::Slow { cable, percent } => self.links.slow(cable, percent),
            }
        }
        if let Some(notes) = &mut self.notes {
            notes.note_changes(&self.world, &self.links, now, &mut self.trace);
        }
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").field("now", &self.schedule.now()).finish_non_exhaustive()
    }
}
