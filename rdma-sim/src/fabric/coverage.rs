//! What happened in a simulation: for tables over many runs, and to aim faults

use std::collections::BTreeMap;

use rdma_core::{Completion, Error, Opcode, Status, Time};

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

/// What has happened so far
#[derive(Debug, Default)]
pub(crate) struct Coverage {
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

impl Coverage {
    /// Keeps moments from now on
    pub(crate) fn keep_moments(&mut self) {
        self.moments.get_or_insert(Moments { kept: Vec::new(), every: 1, seen: 0 });
    }

    pub(super) fn fault(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    pub(crate) fn refused(&mut self, error: &Error) {
        let cause = format!("{:?}", error.cause);
        let cause = cause.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or("");
        *self.refusals.entry(format!("{} refused: {cause}", error.verb)).or_default() += 1;
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
