//! Records: the events of a run, one by one

use rdma_core::Time;

/// An event of a simulation
///
/// A [`History`](super::History) knows the names of what it is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Its time
    pub time: Time,
    /// Its kind
    pub kind: RecordKind,
    /// The queue pair (its number, and in the upper twelve bits the position of its port), the port, the cable, the host, or the
    /// fault
    pub subject: u32,
    /// A number of bytes, a status, or both, according to the kind
    pub value: u64,
    /// A further number, according to the kind, which is not part of the digest
    pub detail: u64,
}

/// The kind of a [`Record`]
///
/// The kinds from [`Process`](Self::Process) on exist only where records are kept, and are not part of the digest.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[repr(u8)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A send of so many bytes was posted; the detail is the id of its request
    PostSend = 1,
    /// A receive of so many bytes was posted; the detail is the id of its request
    PostRecv = 2,
    /// A send completed with a status
    Sent = 3,
    /// A receive completed with a number of bytes, times 256, and a status
    Delivered = 4,
    /// A frame of so many bytes began to leave; the detail is the time in nanoseconds at which it had left
    Frame = 5,
    /// A queue pair began to wait for a receive of its peer; the detail says why: it has posted none (0), there is no peer
    /// that is connected back (1), or the next receive is not visible yet (2)
    Stall = 6,
    /// A transition of a queue pair to ready-to-receive succeeded or failed; the detail is the peer, if there is one
    Connect = 7,
    /// A fault of the plan fired
    Fault = 8,
    /// A cable was plugged in or pulled
    Plugged = 9,
    /// An operation on the memory of the peer left; the detail is the time in nanoseconds at which it had left
    OneSided = 10,
    /// The processes of a host died (0), run (1) or stopped (2)
    Process = 64,
    /// A port went down (0) or became active (1)
    Port = 65,
    /// The state of a cable changed: the percentage of its rate, 256 if it is out, 512 if addresses are not resolved over it
    Cable = 66,
    /// A port has another cable: its number, times 2, and which of its ends
    Moved = 67,
    /// A port has the name that this other port had at first
    Renamed = 68,
    /// The requests of a queue pair were dropped; the value says why: its cable was cut off (1), it failed (2), the
    /// program reset (3) or destroyed (4) it, its process died (5), or it had been idle for too long (6)
    Dropped = 69,
    /// The next message of a queue pair goes nowhere: by a fault (1), or because there was no receive (0)
    Lost = 70,
    /// A receive was damaged on the way
    Damaged = 71,
    /// A receive is filled by a queue pair; the detail is the time in nanoseconds at which it completes
    Filled = 72,
    /// All faults ended that end at all, and none follows
    Calm = 73,
}

/// Why a queue pair waits
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Wait {
    /// The peer has posted no receive
    NoReceive = 0,
    /// There is no peer that is connected back
    NoPeer = 1,
    /// The next receive of the peer is not visible yet
    NotVisible = 2,
}

/// Why the requests of a queue pair were dropped
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Ending {
    /// Its cable was pulled, or a host at one of its ends went down
    CutOff = 1,
    /// It failed
    Failed = 2,
    /// The program reset it
    Reset = 3,
    /// The program destroyed it
    Destroyed = 4,
    /// Its process died
    Killed = 5,
    /// It had been idle for too long
    Idle = 6,
}

impl Record {
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            RecordKind::PostSend => "post_send",
            RecordKind::PostRecv => "post_recv",
            RecordKind::Sent => "sent",
            RecordKind::Delivered => "delivered",
            RecordKind::Frame => "frame",
            RecordKind::Stall => "stall",
            RecordKind::Connect => "connect",
            RecordKind::Fault => "fault",
            RecordKind::Plugged if self.value == 1 => "plugged in",
            RecordKind::Plugged => "cut off",
            RecordKind::OneSided => "one-sided",
            RecordKind::Process => "process",
            RecordKind::Port => "port",
            RecordKind::Cable => "cable",
            RecordKind::Moved => "moved",
            RecordKind::Renamed => "renamed",
            RecordKind::Dropped => "dropped",
            RecordKind::Lost => "lost",
            RecordKind::Damaged => "damaged",
            RecordKind::Filled => "filled",
            RecordKind::Calm => "calm",
        }
    }
}

impl Ending {
    /// The ending that a record says
    pub(super) fn text(value: u64) -> &'static str {
        const TEXTS: [&str; 7] = [
            "",
            "its cable was cut off",
            "it failed",
            "the program reset it",
            "the program destroyed it",
            "its process died",
            "it had been idle for too long",
        ];
        TEXTS.get(value as usize).copied().unwrap_or_default()
    }
}

impl Wait {
    /// The wait that a record says
    pub(super) fn text(detail: u64) -> &'static str {
        const TEXTS: [&str; 3] =
            ["no receive of the peer", "no peer", "the receive of the peer is not visible yet"];
        TEXTS.get(detail as usize).copied().unwrap_or_default()
    }
}
