//! Links between processes that each simulate one host of the same topology
//!
//! A process simulates the devices of one host, alone or beside [others](SharedObjects) of the same host; of the other hosts it
//! knows what their processes send. A transmitter sends into
//! the receives that the peer has announced, by the same rules as within one process; bytes and outcomes travel as
//! [`LinkMessage`]s. A [`Transport`] carries the messages; `rdma-sim-verbs` has one over shared memory.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use rdma_core::Device as _;
//! use rdma_sim::remote::{LinkMessage, ProcessName, Transport};
//! use rdma_sim::{Driver, Sim};
//!
//! /// Prints what it should carry
//! struct Printer(Arc<Mutex<Vec<String>>>);
//!
//! impl Transport for Printer {
//!     fn room(&mut self, _to: ProcessName) -> usize {
//!         1 << 20
//!     }
//!
//!     fn send(&mut self, to: ProcessName, message: &LinkMessage<'_>) {
//!         self.0.lock().unwrap().push(format!("to {to:?}: {message:?}"));
//!     }
//!
//!     fn flush(&mut self) {}
//! }
//!
//! let driver = Driver::new(Sim::new(), drop)?;
//! let printed = Arc::default();
//! driver.simulate_only("a", Box::new(Printer(Arc::clone(&printed))));
//! let device = driver.net().open("a", "rdma_en2")?;
//! assert_eq!(device.name(), "rdma_en2");
//! // Host "b" has said nothing yet, and this host has nothing connected to it.
//! driver.remote_input().announce_all_to(ProcessName { host: 1, number: 0 });
//! assert!(printed.lock().unwrap().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use rdma_core::{QpType, Qpn, Resource, SendOp, Status, Time};

/// The name of a queue pair, the same in all processes
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpName {
    /// Position of its device among the devices of all hosts of the topology
    pub device: u32,
    /// Its number on that device
    pub qpn: Qpn,
}

/// The name of a process, the same in all processes
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessName {
    /// Position of its host among the hosts of the topology
    pub host: u32,
    /// Its number among the processes of the host, below [`MAX_PROCESSES`]
    pub number: u32,
}

/// The most processes that simulate one host beside each other
pub const MAX_PROCESSES: u32 = 4;

impl ProcessName {
    /// The process of `host` whose queue pairs have the number `qpn`
    ///
    /// The processes of a host take numbers in turn, so that a number belongs to one of them alone.
    pub fn of(host: u32, qpn: Qpn) -> Self {
        Self { host, number: (qpn.0 >> 8).wrapping_sub(FIRST_HOP) % MAX_PROCESSES }
    }
}

/// Queue pair numbers are hop numbers times 256, from hop 9 (published reverse-engineered driver).
pub(crate) const FIRST_HOP: u32 = 9;

/// A message from the simulation of one host to the simulation of another
///
/// A [`Transport`] keeps the order of messages between two hosts.
#[derive(Clone, Copy, Debug)]
pub enum LinkMessage<'a> {
    /// A queue pair of the sending host has become ready to receive from `peer`
    Ready {
        /// The queue pair
        qp: QpName,
        /// The number of its peer
        peer: Qpn,
        /// Its type
        qp_type: QpType,
        /// When the transmitter of the peer knows it
        at: Time,
    },
    /// A queue pair of the sending host no longer receives
    Closed {
        /// The queue pair
        qp: QpName,
    },
    /// A queue pair of the sending host has posted a receive of `len` bytes
    ReceivePosted {
        /// The queue pair
        qp: QpName,
        /// Bytes of the receive
        len: u32,
        /// When the transmitter of the peer knows it
        at: Time,
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
    /// The oldest receive that is not filled ends
    Filled {
        /// The receiver
        to: QpName,
        /// The sender's number
        from: Qpn,
        /// Bytes of the message
        len: u32,
        /// The status of the receive, as far as the sender knows it
        status: Status,
        /// When its completion becomes visible
        at: Time,
    },
    /// A piece of a one-sided operation on the memory of the peer; each is answered by a [`Response`](Self::Response)
    Request {
        /// The queue pair whose device has the memory
        to: QpName,
        /// The requester's number
        from: Qpn,
        /// The operation, for this piece
        op: SendOp,
        /// Bytes of the piece
        len: u32,
        /// Bytes to write
        bytes: &'a [u8],
    },
    /// The answer to the oldest unanswered request
    Response {
        /// The requester
        to: QpName,
        /// The number of the queue pair whose device has the memory
        from: Qpn,
        /// Whether the memory exists and permits the operation
        is_ok: bool,
        /// Bytes that were read, or the previous value
        bytes: &'a [u8],
    },
}

/// Carries messages to the processes of other hosts
pub trait Transport: Send {
    /// The most bytes of [`LinkMessage::Data`] that fit the way to a process now
    fn room(&mut self, to: ProcessName) -> usize;

    /// Sends a message to a process
    ///
    /// The transport accepts every message: only data, whose amount is unbounded, waits for room. A message to a process that
    /// does not exist is lost.
    fn send(&mut self, to: ProcessName, message: &LinkMessage<'_>);

    /// Sends the messages that did not fit before
    fn flush(&mut self);
}

/// Counts the objects on the devices of a host for all of its processes
///
/// The limits of a device apply to all processes of its host together.
pub trait SharedObjects: Send {
    /// Counts one object more than the `own` ones that this process has on `device`
    ///
    /// Returns false, and counts nothing, if all processes of the host together already have `limit` or more.
    fn add(&mut self, device: u32, resource: Resource, own: u32, limit: u32) -> bool;

    /// Counts `own` objects that this process has on `device`
    fn set(&mut self, device: u32, resource: Resource, own: u32);
}
