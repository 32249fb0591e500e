//! Links between processes that each simulate one host of the same topology
//!
//! A process simulates the devices of one host; of the other hosts it knows what their processes send. A transmitter sends into
//! the receives that the peer has announced, by the same rules as within one process; bytes and outcomes travel as
//! [`LinkMessage`]s. A [`Transport`] carries the messages; `rdma-sim-verbs` has one over shared memory.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use rdma_core::Device as _;
//! use rdma_sim::remote::{LinkMessage, Transport};
//! use rdma_sim::{Driver, Sim};
//!
//! /// Prints what it should carry
//! struct Printer(Arc<Mutex<Vec<String>>>);
//!
//! impl Transport for Printer {
//!     fn room(&mut self, _host: u32) -> usize {
//!         1 << 20
//!     }
//!
//!     fn send(&mut self, host: u32, message: &LinkMessage<'_>) {
//!         self.0.lock().unwrap().push(format!("to host {host}: {message:?}"));
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
//! driver.remote_input().announce_all_to(1);
//! assert!(printed.lock().unwrap().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use rdma_core::{QpType, Qpn, SendOp, Status, Time};

/// The name of a queue pair, the same in all processes
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpName {
    /// Position of its device among the devices of all hosts of the topology
    pub device: u32,
    /// Its number on that device
    pub qpn: Qpn,
}

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
    /// The most bytes of [`LinkMessage::Data`] that fit the way to `host` now
    fn room(&mut self, host: u32) -> usize;

    /// Sends a message to `host`
    ///
    /// The transport accepts every message: only data, whose amount is unbounded, waits for room. A message to a host
    /// without a process is lost.
    fn send(&mut self, host: u32, message: &LinkMessage<'_>);

    /// Sends the messages that did not fit before
    fn flush(&mut self);
}
