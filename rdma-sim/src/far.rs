//! Cables whose other end another process simulates
//!
//! Each process simulates the devices of one host; of the others it knows what they say. A transmitter sends into the receives
//! that the far end has announced, by the same rules as within one process; the bytes and the outcome travel as [`Signal`]s.
//! Who carries them is a [`Carrier`]: `rdma-sim-verbs` has one over shared memory.

use std::fmt;
use std::sync::MutexGuard;

use rdma_core::{QpType, Qpn, SendOp, Status, Time};

use crate::Topology;
pub use crate::fabric::Process;
use crate::fault::{Fault, FaultError};
use crate::net::State;

/// A queue pair, in all processes alike
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpName {
    /// Position of its device among those of all hosts of the topology
    pub device: u32,
    /// Its number on that device
    pub qpn: Qpn,
}

/// What the simulation of one host tells that of another
///
/// Signals between two hosts arrive in order.
#[derive(Clone, Copy, Debug)]
pub enum Signal<'a> {
    /// A queue pair of the telling host has become ready to receive from `peer`
    Ready {
        /// Whose news it is
        of: QpName,
        /// Its peer
        peer: Qpn,
        /// Its type
        qp_type: QpType,
    },
    /// A queue pair of the telling host does not receive any more
    Gone {
        /// Whose news it is
        of: QpName,
    },
    /// A queue pair of the telling host has posted a receive of so many bytes
    Receive {
        /// Whose news it is
        of: QpName,
        /// Bytes
        len: u32,
    },
    /// The next bytes for the oldest receive that is not filled
    Data {
        /// The receiver
        to: QpName,
        /// The sender's number
        from: Qpn,
        /// Bytes
        bytes: &'a [u8],
    },
    /// That receive ends
    Filled {
        /// The receiver
        to: QpName,
        /// The sender's number
        from: Qpn,
        /// Bytes of the message
        len: u32,
        /// How it ends, as far as the sender knows
        status: Status,
        /// When its completion can be seen
        at: Time,
    },
    /// A piece of an operation on the memory of the peer; each is answered
    OneSided {
        /// The owner of the memory
        to: QpName,
        /// The asking number
        from: Qpn,
        /// What is asked, for this piece
        op: SendOp,
        /// Bytes that are asked for
        len: u32,
        /// Bytes that are written
        bytes: &'a [u8],
    },
    /// The answer to the oldest piece that was not answered
    Answer {
        /// Who asked
        to: QpName,
        /// The number of the owner of the memory
        from: Qpn,
        /// Whether the memory was there, and for this
        is_done: bool,
        /// Bytes that were read, or what was there before
        bytes: &'a [u8],
    },
}

/// Carries signals to the processes of other hosts
pub trait Carrier: Send {
    /// The most bytes of [`Signal::Data`] that `host` could be sent now
    fn room(&mut self, host: u32) -> usize;

    /// Sends a signal to `host`
    ///
    /// It is taken in any case: only data, which may come in any amount, waits for room. What is sent to a host that is not
    /// there is lost.
    fn tell(&mut self, host: u32, signal: &Signal<'_>);

    /// Sends what could not be sent before
    fn flush(&mut self);
}

/// The simulation of one host, while it takes in what others tell
pub struct Hearing<'a>(pub(crate) MutexGuard<'a, State>);

impl Hearing<'_> {
    /// Takes in what `host` has told; nonsense is passed over
    pub fn hear(&mut self, host: u32, signal: &Signal<'_>) {
        self.0.fabric.hear(host, signal);
    }

    /// The processes of `host` are new: what the old ones told is forgotten, and they are told of everything here
    pub fn introduce_to(&mut self, host: u32) {
        self.0.fabric.introduce_to(host);
    }

    /// The processes of `host` are gone
    pub fn forget(&mut self, host: u32) {
        self.0.fabric.forget_host(host);
    }

    /// Goes on with what waited for room
    pub fn resume(&mut self) {
        self.0.fabric.resume_far();
    }

    /// Has a fault happen when it is due, which is now if that has passed
    ///
    /// # Errors
    ///
    /// It has no place in `topology`.
    pub fn plan(&mut self, fault: Fault, topology: &Topology) -> Result<(), FaultError> {
        crate::FaultPlan(vec![fault.clone()]).check(topology)?;
        self.0.fabric.plan(fault);
        Ok(())
    }

    /// Faults that waited for frames which this host has sent: they are due now, and happen to nobody before all are told
    pub fn take_fired(&mut self) -> Vec<Fault> {
        self.0.fabric.take_fired()
    }

    /// What the processes of `host` do by the faults that have happened, and how often they were started
    pub fn process(&self, host: u32) -> (Process, u32) {
        self.0.fabric.process(host)
    }
}

impl fmt::Debug for Hearing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearing").finish_non_exhaustive()
    }
}
