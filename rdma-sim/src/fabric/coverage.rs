//! What happened in a simulation: for tables over many runs, and to aim faults

use std::collections::BTreeMap;

use rdma_core::{Cause, Completion, Error, Invalid, Opcode, PortState, Resource, SendOp, Status, Time, Verb};

use super::ids::DeviceRef;
use super::world::World;
use crate::Model;
use crate::catalogue::{self, RULES, Rule, Switch, rule};
use crate::trace::Wait;

/// Most moments that are kept
const MOMENTS: usize = 4096;

const OPCODES: [Opcode; 5] = [Opcode::Atomic, Opcode::Read, Opcode::Recv, Opcode::Send, Opcode::Write];

const STATUSES: [Status; 7] = [
    Status::Success,
    Status::LocalLength,
    Status::LocalProtection,
    Status::BadResponse,
    Status::RemoteAccess,
    Status::RetryExceeded,
    Status::Flushed,
];

/// Rules that are exercised whenever their fault fires
const BY_FAULT: [usize; 11] = [
    rule!("bridge-capture"),
    rule!("bridge-storm"),
    rule!("device-names"),
    rule!("gid-index"),
    rule!("interface-down"),
    rule!("no-ipv4"),
    rule!("peer-stop"),
    rule!("port-state"),
    rule!("reboot"),
    rule!("sleep"),
    rule!("timer-path"),
];

/// Rules that are exercised whenever a request completes like this, whatever its opcode if that is `None`
const BY_COMPLETION: [(usize, Option<Opcode>, Status); 6] = [
    (rule!("corruption"), Some(Opcode::Recv), Status::BadResponse),
    (rule!("frame-match"), Some(Opcode::Recv), Status::LocalLength),
    (rule!("roce-flush"), None, Status::Flushed),
    (rule!("roce-give-up"), None, Status::RetryExceeded),
    (rule!("roce-remote-access"), None, Status::RemoteAccess),
    (rule!("send-completion"), Some(Opcode::Send), Status::Success),
];

/// What has happened so far
#[derive(Debug)]
pub(crate) struct Coverage {
    /// How many times each rule was exercised, but for those that follow from the other counts
    rules: [u64; RULES],
    /// How many times each fault has fired, by name
    faults: BTreeMap<&'static str, u64>,
    /// How many times each verb was refused for each reason
    refusals: BTreeMap<String, u64>,
    /// How many requests completed, by opcode and status
    completions: [[u64; STATUSES.len()]; OPCODES.len()],
    moments: Option<Moments>,
}

/// Moments with traffic: all at first, then every second, every fourth and so on
#[derive(Debug)]
struct Moments {
    kept: Vec<Time>,
    every: u64,
    seen: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        let rules = [0; RULES];
        Self {
            rules,
            faults: BTreeMap::new(),
            refusals: BTreeMap::new(),
            completions: [[0; 7]; 5],
            moments: None,
        }
    }
}

impl Coverage {
    /// The device has followed a rule, by its [number](rule)
    #[inline]
    pub(crate) fn rule(&mut self, number: usize) {
        self.rules[number] += 1;
    }

    /// Keeps moments from now on
    pub(crate) fn keep_moments(&mut self) {
        self.moments.get_or_insert(Moments { kept: Vec::new(), every: 1, seen: 0 });
    }

    pub(super) fn fault(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    /// A verb of a device was refused
    pub(crate) fn refused(&mut self, error: &Error, device: DeviceRef, world: &World, model: &Model) {
        let cause = format!("{:?}", error.cause);
        let cause = cause.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or("");
        *self.refusals.entry(format!("{} refused: {cause}", error.verb)).or_default() += 1;
        if matches!(error.verb, Verb::PostSend | Verb::PostRecv) {
            self.rule(rule!("post-failure"));
            if error.cause == Cause::QueueFull {
                self.rule(rule!("queue-frames"));
            }
        }
        let is_of_dead_process = world.current(device.index).generation != device.generation;
        match rule_of_refusal(error, world.port(device.index).state, model) {
            _ if error.cause == Cause::DeviceGone && is_of_dead_process => self.rule(rule!("process-end")),
            Some(number) if number == rule!("max-pd") && world.has_no_pds(device.index) => {
                self.rule(rule!("boot-link"));
            }
            Some(number) => self.rule(number),
            None => (),
        }
    }

    /// A request for another operation than [`SendOp::Send`] was posted, and may have been refused
    pub(super) fn operation(&mut self, op: SendOp, is_refused: bool, model: &Model) {
        match op {
            SendOp::Write { .. } if !model.caps.one_sided => self.rule(rule!("uc-write")),
            _ if is_refused => self.rule(rule!("operations")),
            _ => (),
        }
    }

    /// An operation on the memory of a peer has reached it
    pub(super) fn one_sided(&mut self, op: SendOp) {
        self.rule(match op {
            SendOp::Write { .. } => rule!("roce-write"),
            _ => rule!("roce-read-atomic"),
        });
    }

    /// A send waits for a receive
    pub(super) fn stalled(&mut self, wait: Wait, is_reliable: bool) {
        match wait {
            _ if is_reliable => self.rule(rule!("roce-reliable")),
            Wait::NoReceive => self.rule(rule!("credits")),
            Wait::NotVisible => self.rule(rule!("credit-delay")),
            Wait::NoPeer => (),
        }
    }

    /// A request has completed
    pub(super) fn completed(&mut self, now: Time, completion: &Completion) {
        if let Some(status) = STATUSES.iter().position(|status| *status == completion.status) {
            self.completions[completion.opcode as usize][status] += 1;
        }
        if let Some(moments) = &mut self.moments {
            moments.note(now);
        }
    }

    /// The moments that were kept
    pub(crate) fn moments(&self) -> Vec<Time> {
        self.moments.iter().flat_map(|moments| &moments.kept).copied().collect()
    }

    /// How many times each behaviour was seen
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let faults = self.faults.iter().map(|(name, count)| (format!("fault {name}"), *count));
        let completions = OPCODES.iter().zip(&self.completions).flat_map(|(opcode, counts)| {
            let seen = STATUSES.iter().zip(counts).filter(|(_, count)| **count > 0);
            seen.map(move |(status, count)| (format!("{opcode:?} completed: {status}"), *count))
        });
        faults.chain(completions).chain(self.refusals.clone()).collect()
    }

    /// How many times each rule of `model` was exercised, those that were not left out
    pub(crate) fn rules(&self, model: &Model) -> Vec<(&'static str, u64)> {
        let mut counts = self.rules;
        for (number, opcode, status) in BY_COMPLETION {
            let all = OPCODES.iter().zip(&self.completions);
            let counted = all.filter(|(of, _)| opcode.is_none_or(|opcode| opcode == **of));
            let position = STATUSES.iter().position(|of| *of == status).unwrap_or(0);
            counts[number] += counted.map(|(_, counts)| counts[position]).sum::<u64>();
        }
        let fired = |rule: &Rule| match rule.switch {
            Switch::Fault(name) => self.faults.get(name).copied().unwrap_or(0),
            _ => 0,
        };
        let all = catalogue::rules().zip(counts).enumerate();
        // Devices that differ refuse or complete the same request by different rules.
        let all = all.filter(|(_, (rule, _))| rule.applies_to(model)).map(|(number, (rule, count))| {
            (rule.name, if BY_FAULT.contains(&number) { fired(rule) } else { count })
        });
        all.filter(|(_, count)| *count > 0).collect()
    }
}

/// The rule by which a verb was refused, if the refusal names it
///
/// [Connecting](World::resolve_peer) and [operations](Coverage::operation) need more than the error.
fn rule_of_refusal(error: &Error, port: PortState, model: &Model) -> Option<usize> {
    let is_post = matches!(error.verb, Verb::PostSend | Verb::PostRecv);
    Some(match (error.cause, error.verb) {
        (Cause::DeviceGone, _) if port == PortState::Active => rule!("replug-stale"),
        (Cause::DeviceGone, _) => rule!("unplug"),
        (Cause::PortDown, _) => rule!("down-port"),
        (Cause::Busy, verb) if verb != Verb::ModifyQp => rule!("wedge"),
        (Cause::Exhausted { resource, .. }, _) => match resource {
            Resource::CompletionQueues => rule!("max-cq"),
            Resource::MemoryRegions => rule!("max-mr"),
            Resource::ProtectionDomains => rule!("max-pd"),
            Resource::QueuePairs => rule!("max-qp"),
            _ => return None,
        },
        (Cause::Unsupported, Verb::CreateQp) => rule!("transports"),
        (Cause::QueueFull, Verb::PostRecv) => rule!("ring-overflow"),
        (Cause::MessageTooLong { max, .. }, _) if max < model.caps.max_message.into() => rule!("queue-depth"),
        (Cause::MessageTooLong { .. }, _) if model.caps.max_message == model.caps.frame => {
            rule!("macos-26-2")
        }
        (Cause::MessageTooLong { .. }, _) => rule!("max-message"),
        (Cause::Invalid(invalid), verb) => match invalid {
            Invalid::AttrMask { .. } => rule!("masks"),
            Invalid::CqDepth { .. } => rule!("max-cqe"),
            Invalid::Lkey { .. } | Invalid::OutsideRegion { .. } if is_post => rule!("unregistered"),
            Invalid::LocalWriteOnly => rule!("registration-access"),
            Invalid::Misaligned { .. } => rule!("registration-alignment"),
            Invalid::Port { .. } => rule!("port-and-pkey"),
            Invalid::QueueFrames { .. } => rule!("max-queue"),
            Invalid::SgeCount { .. } => rule!("multi-sge"),
            Invalid::State { .. } if verb == Verb::PostSend => rule!("send-at-rts"),
            Invalid::State { .. } => rule!("receives-before-rts"),
            Invalid::Transition { .. } => rule!("steps"),
            _ => return None,
        },
        _ => return None,
    })
}

impl Moments {
    fn note(&mut self, now: Time) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.every) || self.kept.last() == Some(&now) {
            return;
        }
        if self.kept.len() == MOMENTS {
            self.every *= 2;
            let mut is_odd = false;
            self.kept.retain(|_| {
                is_odd = !is_odd;
                is_odd
            });
        }
        self.kept.push(now);
    }
}
