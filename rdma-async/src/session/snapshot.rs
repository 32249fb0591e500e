use std::fmt;
use std::sync::Arc;

use rdma_core::Histogram;
use rdma_core::session::{LaneCounts, PathCounts, PathStatus, SessionId, SessionWaits};

use crate::blocked_call::BlockedCall;
use crate::error::ConnectError;
use crate::node_id::NodeId;

/// A session at one moment: what it has done, over which paths, and what it waits for
///
/// Prints in full, for logs and assertions.
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let mut lease = session.alloc(5).await?;
/// lease.extend_from_slice(b"hello");
/// session.send(lease).delivered().await?;
/// let snapshot = peer.snapshot();
/// assert_eq!((snapshot.messages_received, snapshot.messages_unread), (1, 1));
/// assert!(snapshot.to_string().contains("waits for this application to read 1 message"), "{snapshot}");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Number of the session
    pub session: SessionId,
    /// The process at the other end
    pub peer: NodeId,
    /// Messages that the application has queued
    pub messages_queued: u64,
    /// Bytes of those
    pub bytes_queued: u64,
    /// Messages that the peer has, among those
    pub messages_delivered: u64,
    /// How long messages took, from their place in the queue until this side knew that the peer has them
    pub deliveries: Histogram,
    /// Messages of the peer that have arrived, read or not
    pub messages_received: u64,
    /// Bytes of those
    pub bytes_received: u64,
    /// Messages that have arrived, and that the application has not taken
    pub messages_unread: usize,
    /// Messages that are queued or under way, or whose outcome no task has collected
    pub messages_in_flight: usize,
    /// Streams, with the main one, that are open or still have a handle
    pub streams: usize,
    /// The paths to the peer, by the order of the devices of the side that connected; all sessions with this peer share them
    pub paths: Vec<PathSnapshot>,
    pub(crate) is_over: bool,
    pub(crate) waits: SessionWaits,
    /// Long messages of this session that wait for memory of this node.
    pub(crate) wants_memory: usize,
    /// Messages of this session that wait for memory for their copy.
    pub(crate) copies_without_memory: usize,
    /// Tasks of all sessions of the node that wait for send memory.
    pub(crate) waiting_for_send_memory: usize,
}

/// A path at one moment
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathSnapshot {
    /// The device of this side that it is on, while there is one
    pub device: Option<String>,
    /// The call of the device that has not returned in time, since the path was made
    pub blocked: Option<BlockedCall>,
    /// Why this side could not make it again when it last tried
    pub failure: Option<Arc<ConnectError>>,
    /// How it is
    pub status: PathStatus,
    /// What it has done, on each lane
    pub counts: PathCounts,
    /// How long it took from sending a packet until the peer's report on it was here; a report waits up to 25 µs for company
    pub round_trips: Histogram,
    /// How long it took from the post of a receive for a part of a long message until the part was here; without messages that were
    /// [expected](crate::Stream::expect), whose parts wait for the application of the peer
    pub part_times: Histogram,
    /// How fast the eager lane has been from this side to the peer, in bytes per second, if that is less than half of
    /// what the ports report
    pub eager_rate: Option<u64>,
    /// How fast the bulk lane has been from the peer to this side, in bytes per second, if that is less than half of
    /// what the ports report
    pub bulk_rate: Option<u64>,
}

fn plural(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

impl Snapshot {
    /// What the session waits for, in words that follow "waits for"; nothing if it rests
    pub fn waits_for(&self) -> Vec<String> {
        let mut waits = Vec::new();
        if self.is_over {
            return waits;
        }
        let has_path = self.paths.iter().any(|path| path.status == PathStatus::Up);
        let SessionWaits { unconfirmed, needs_room, announced, .. } = self.waits;
        let messages = |count| plural(count, "message", "messages");
        if !has_path {
            let reasons = self.paths.iter().filter_map(PathSnapshot::why_down).collect::<Vec<_>>();
            let why = if reasons.is_empty() { "none was lost".into() } else { reasons.join("; ") };
            waits.push(format!("a path to the peer ({why})"));
        }
        if needs_room && unconfirmed > 0 {
            waits.push(format!("the peer to read, with {} to deliver", messages(unconfirmed)));
        } else if unconfirmed > 0 {
            waits.push(format!("the peer to confirm {}", messages(unconfirmed)));
        }
        if self.wants_memory > 0 {
            let count = messages(self.wants_memory);
            waits.push(format!("receive memory of this node, for {count} above 68,544 bytes"));
        } else if announced > 0 {
            waits.push(format!("the rest of {} above 68,544 bytes", messages(announced)));
        }
        if self.copies_without_memory > 0 {
            let count = messages(self.copies_without_memory);
            waits.push(format!("send memory, or for the message on the heap before, with {count} to copy"));
        }
        if self.messages_unread > 0 {
            waits.push(format!("this application to read {}", messages(self.messages_unread)));
        }
        waits
    }
}

impl PathSnapshot {
    /// Why it could not be made again, or else why it was lost
    fn why_down(&self) -> Option<String> {
        let failure = self.failure.as_ref().map(ToString::to_string);
        failure.or_else(|| self.counts.last_loss.map(|loss| loss.to_string()))
    }

    fn write(&self, number: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, blocked, failure, status, counts, round_trips, part_times, .. } = self;
        let device = device.as_ref().map_or_else(String::new, |device| format!(" on {device}"));
        let status = match status {
            PathStatus::Down => "down",
            PathStatus::Unproven => "up, without a word of the peer yet",
            PathStatus::Up => "up",
        };
        let made = plural(counts.made as usize, "time", "times");
        writeln!(f, "  path {number}{device}: {status}; made {made}")?;
        blocked.iter().try_for_each(|blocked| writeln!(f, "    {blocked}"))?;
        failure.iter().try_for_each(|failure| writeln!(f, "    could not be made again: {failure}"))?;
        writeln!(f, "    eager lane, packets: {}{}", Lane(&counts.eager), Slower(self.eager_rate))?;
        writeln!(f, "    round trips: {round_trips}")?;
        writeln!(f, "    bulk lane, parts: {}{}", Lane(&counts.bulk), Slower(self.bulk_rate))?;
        writeln!(f, "    part times: {part_times}")
    }
}

/// How fast a lane is that is much slower than its ports report, in words
struct Slower(Option<u64>);

impl fmt::Display for Slower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|rate| {
            write!(f, "; {:.3} GB/s, less than half of what the ports report", *rate as f64 / 1e9)
        })
    }
}

/// The counts of a lane, in words; what goes wrong only if there was any
struct Lane<'a>(&'a LaneCounts);

impl fmt::Display for Lane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LaneCounts { sent, bytes_sent, received, bytes_received, in_flight, credits, .. } = self.0;
        write!(f, "{sent} sent ({bytes_sent} B), {received} received ({bytes_received} B)")?;
        write!(f, ", {in_flight} in flight, {credits} may go")?;
        let LaneCounts { lost, retransmitted, retransmitted_bytes, damaged, refused, .. } = self.0;
        if *lost > 0 || *retransmitted > 0 {
            write!(f, "; {lost} lost, {retransmitted} again ({retransmitted_bytes} B)")?;
        }
        if *damaged > 0 || *refused > 0 {
            write!(f, "; {damaged} damaged, {refused} refused")?;
        }
        Ok(())
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, peer, .. } = self;
        writeln!(f, "session {session} with {peer}")?;
        writeln!(
            f,
            "  sent: {} queued ({} B), {} delivered, {} in flight",
            self.messages_queued, self.bytes_queued, self.messages_delivered, self.messages_in_flight
        )?;
        let Self { messages_received: received, bytes_received, messages_unread: unread, .. } = self;
        writeln!(f, "  received: {received} ({bytes_received} B), of which {unread} unread")?;
        writeln!(f, "  delivery: {}", self.deliveries)?;
        let mut paths = self.paths.iter().enumerate();
        paths.try_for_each(|(number, path)| path.write(number, f))?;
        self.waits_for().iter().try_for_each(|wait| writeln!(f, "  waits for {wait}"))?;
        match self.waiting_for_send_memory {
            0 => Ok(()),
            tasks => writeln!(
                f,
                "  of all sessions of this node: {} for send memory",
                plural(tasks, "task waits", "tasks wait")
            ),
        }
    }
}
