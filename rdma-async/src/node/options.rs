use std::time::Duration;

use rdma_core::session::{
    Hello, Integrity, Limits, MAX_FRAGMENTS, MAX_ROOM, MAX_SESSIONS, MAX_SLOTS, MAX_STREAMS, MAX_UNREPORTED,
    MIN_PEER_TIMEOUT,
};
use rdma_core::{Device, FRAME};

use crate::invalid_options::InvalidOptions;
use crate::peering::staging::STAGING;
#[cfg(feature = "shared-key")]
use crate::shared_key::SharedKey;

/// How a node uses its devices; the defaults suit Thunderbolt 5
///
/// A node maps [`send_memory`](Self::send_memory), [`receive_memory`](Self::receive_memory), [`max_message`](Self::max_message), and for each
/// of [`max_peers`](Self::max_peers) 257 frames of 4 KiB for each port, twice [`stream_share`](Self::stream_share) for each of
/// [`max_sessions`](Self::max_sessions), and 320 frames for sending: 143 MiB with one port. Each path registers all of it.
///
/// Checked when the node is made: contradictions are an [`InvalidOptions`].
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeOptions {
    pub(super) connect_timeout: Duration,
    pub(super) device_timeout: Duration,
    pub(super) group_epoch: u64,
    pub(super) hello_timeout: Duration,
    pub(super) integrity: Integrity,
    pub(super) max_half_open: u32,
    pub(super) max_in_flight_sends: u32,
    pub(super) max_message: usize,
    pub(super) max_peers: u32,
    pub(super) max_sessions: u32,
    pub(super) max_streams: u32,
    pub(super) peer_timeout: Duration,
    pub(super) receive_memory: usize,
    pub(super) send_memory: usize,
    #[cfg(feature = "shared-key")]
    pub(super) shared_key: Option<SharedKey>,
    pub(super) stream_share: u32,
}

/// The longest peer timeout.
const LONGEST: Duration = Duration::from_hours(24);
/// Receives of an eager lane.
pub(super) const WINDOW: u32 = MAX_UNREPORTED;
/// Frames of a peering for packets that are sent: what a path can have under way, and some more for the protocol.
pub(super) const TRANSMIT: u32 = 2 * MAX_UNREPORTED;
/// The most bytes of a part of a long message.
pub(super) const BULK_FRAGMENT: u32 = 1 << 18;
/// As many frames.
pub(super) const PART: u32 = BULK_FRAGMENT / FRAME as u32;
/// The longest registration, in bytes: the device names memory by 32 bits.
const LONGEST_REGISTRATION: u64 = u32::MAX as u64;

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            device_timeout: Duration::from_secs(3),
            group_epoch: 0,
            hello_timeout: Duration::from_secs(10),
            integrity: Integrity::Crc32,
            max_half_open: 256,
            max_in_flight_sends: 64,
            max_message: 4 << 20,
            max_peers: 5,
            max_sessions: 16,
            max_streams: 16,
            peer_timeout: Duration::from_secs(2),
            receive_memory: 32 << 20,
            send_memory: 16 << 20,
            #[cfg(feature = "shared-key")]
            shared_key: None,
            stream_share: 128,
        }
    }
}

impl NodeOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// How long connecting may take; 10 s
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// How long a device may take for the verbs of one step in which a path is made or ends, together, before the step is reported and the
    /// device is left alone until it returns; 3 s
    ///
    /// The steps are opening the device, making queue pairs, connecting them, ending them, and registering memory. A peer waits for a step
    /// of this side for its own limit and its peer timeout.
    ///
    /// Apple's device has been reported to take a second for a peer that it does not find, and never to return when its driver is wedged.
    ///
    /// If a device does not report changes of its port, one thread queries the port: a query that does not return is reported up to a quarter of
    /// this time late.
    ///
    /// Posts and polls have no such bound: they run on the task that drives the node, or that uses a session, because they take less time than a
    /// change of threads. One that never returns keeps its thread, and a post also each thread that uses the session; the sessions of the node
    /// stop. The `VerbsDevice` of the crate `rdma-tb5` [reports](rdma_core::Device::blocked) it, in
    /// [`DeviceStats`](crate::DeviceStats::blocked_devices) as well; other devices do not. After a post, the peer loses the session when it
    /// has heard nothing for [`peer_timeout`](Self::peer_timeout). After a poll, paths are lost and made again, without end, until a side
    /// gives up. No such report is known of Apple's device.
    pub fn device_timeout(self, device_timeout: Duration) -> Self {
        Self { device_timeout, ..self }
    }

    /// Generation of the application's group, on which both peers must agree; 0
    pub fn group_epoch(self, group_epoch: u64) -> Self {
        Self { group_epoch, ..self }
    }

    /// How long the peer may take for its hello, for its answer to the one of this side, and for the proof of a shared key; 10 s each
    ///
    /// Not longer than is left of [`connect_timeout`](Self::connect_timeout), which bounds them all and the first path, and decides unless this is
    /// shorter. The error [names](crate::ConnectError::Timeout) what was waited for.
    pub fn hello_timeout(self, hello_timeout: Duration) -> Self {
        Self { hello_timeout, ..self }
    }

    /// Whether fragments carry a checksum from memory to memory; [`Integrity::Crc32`]
    ///
    /// Checksums are used if one of both peers wants them.
    pub fn integrity(self, integrity: Integrity) -> Self {
        Self { integrity, ..self }
    }

    /// How many peers may introduce themselves at once to a node that [serves](crate::Node::serve) them, and how many that have done so may have
    /// offered no path yet; 256 each
    ///
    /// When there are more, the one that began first is [refused](crate::ConnectError::Crowded), because the stream may be one on which no
    /// peer speaks. An honest peer, which takes two round trips and the time to open its devices and make two queue pairs, is refused only if
    /// so many others begin meanwhile. Peers that have offered a path count as [peers](Self::max_peers), also if it cannot be made, until
    /// [`connect_timeout`](Self::connect_timeout); others take no memory of messages. A shared key keeps strangers from both.
    pub fn max_half_open(self, max_half_open: u32) -> Self {
        Self { max_half_open, ..self }
    }

    /// How many messages of a stream may be in flight at once; 64
    ///
    /// A message is in flight until its lease may be reused. A short one is copied into packets: it counts while it waits for
    /// room at the peer, and no more when it is on the way.
    pub fn max_in_flight_sends(self, max_in_flight_sends: u32) -> Self {
        Self { max_in_flight_sends, ..self }
    }

    /// The longest message that can be received, in bytes; 4 MiB
    ///
    /// With 0, peers can send empty messages only.
    pub fn max_message(self, bytes: usize) -> Self {
        Self { max_message: bytes, ..self }
    }

    /// How many connections to peers the node can have at once; 5, for which the queue pairs of a Thunderbolt 5 port suffice
    ///
    /// Connecting twice to one process counts twice: for a further session over the same paths, there is [`Session::open`](crate::Session::open).
    pub fn max_peers(self, max_peers: u32) -> Self {
        Self { max_peers, ..self }
    }

    /// How many sessions each side may open with a peer; 16
    ///
    /// The smaller number of both sides counts.
    pub fn max_sessions(self, max_sessions: u32) -> Self {
        Self { max_sessions, ..self }
    }

    /// How many streams each side may have open in a session, beside the main one; 16
    ///
    /// That of the other side counts.
    pub fn max_streams(self, max_streams: u32) -> Self {
        Self { max_streams, ..self }
    }

    /// How long a peer may be silent before it counts as lost; 2 s
    ///
    /// The shorter one of both sides counts. At least 8 ms, at most a day. A path is given up after half of it.
    pub fn peer_timeout(self, peer_timeout: Duration) -> Self {
        Self { peer_timeout, ..self }
    }

    /// Memory for messages above 68,544 bytes that are being received or read, in bytes; 32 MiB
    ///
    /// At least [`max_message`](Self::max_message), in whole frames of 4 KiB. All sessions share it. A message that the application asks for
    /// gets memory first: for such messages, as much as the longest one takes is kept free. The rest is for messages that arrive before the
    /// application asks for them. A session whose application keeps messages gets memory for another one only if as much stays free as it then
    /// keeps; before it is asked for, unread messages count, too, as do those that it [expects](crate::Stream::expect).
    ///
    /// A session whose application keeps none of its messages gets each one that it asks for, whatever other sessions keep or leave
    /// unread: the node maps as much as the longest message takes beside this memory, in which messages arrive and do not stay. If all
    /// else is taken, a message arrives there, and moves to the heap, where it counts as elsewhere: at most one that is unread of each stream, and
    /// what the application keeps.
    ///
    /// Each peer has a share for messages that are arriving, as long as the longest message. Beyond it, a peer gets memory for another
    /// message only if the share of each other one of [`max_peers`](Self::max_peers) stays free, and as much as its messages then
    /// hold: peers that announce messages and do not send them leave half of the memory to others, and each its share, if the memory is
    /// at least `max_peers` times the longest message.
    pub fn receive_memory(self, bytes: usize) -> Self {
        Self { receive_memory: bytes, ..self }
    }

    /// Memory for messages that are being written or sent, in bytes; 16 MiB
    ///
    /// It is one pool for all peers and streams of the node. [Leases](crate::Lease) can have all of it, and hold it until they are dropped or
    /// sent: the application sees to it that those which wait for peers that do not read leave some to others.
    ///
    /// Messages that the node copies, as for [`send_bytes`](crate::Stream::send_bytes) and streams of bytes (`ByteStream`), leave one half of it
    /// to leases, in one piece. In the other half, one is only if as much stays free there as the others of its stream hold. If that is not so,
    /// or if it is longer, one of the stream is on the heap, from where it is sent through memory of its path; a further one waits. So on the
    /// heap, there is at most one message of each open stream.
    pub fn send_memory(self, bytes: usize) -> Self {
        Self { send_memory: bytes, ..self }
    }

    /// A secret without which no peer is connected; none
    ///
    /// Both sides prove over the bootstrap stream that they have it, and encrypt everything there, by Noise (`NNpsk0`): a program
    /// without the key learns no address of a queue pair and makes no session. What goes over the cables is not encrypted.
    #[cfg(feature = "shared-key")]
    pub fn shared_key(self, key: SharedKey) -> Self {
        Self { shared_key: Some(key), ..self }
    }

    /// Frames of 4 KiB that each stream can always have for messages up to 68,544 bytes, read or unread; 128
    ///
    /// A stream stalls, and stalls no other, when its unread messages occupy them all. The node maps and registers this for one stream
    /// of each session; what more streams hold at once is on the heap, where a session can have `2 * max_streams` times as much.
    pub fn stream_share(self, frames: u32) -> Self {
        Self { stream_share: frames, ..self }
    }

    /// Frames for leases, for packets and small messages that arrive, for longer ones, and for packets that are sent
    pub(super) fn zones(&self, ports: usize) -> [u32; 4] {
        let frames = |bytes: usize| u32::try_from(bytes / FRAME).unwrap_or(u32::MAX);
        let each = |frames: u32| self.max_peers.saturating_mul(frames);
        let sessions = self.max_sessions.saturating_mul(2).saturating_mul(self.stream_share);
        let eager = self.windows(ports).saturating_add(each(sessions));
        [
            frames(self.send_memory),
            eager,
            frames(self.receive_memory).saturating_add(self.transit()),
            each(TRANSMIT + PART).saturating_add(self.paths(ports).saturating_mul(STAGING as u32 * PART)),
        ]
    }

    /// The most paths there can be
    fn paths(&self, ports: usize) -> u32 {
        u32::try_from(ports).unwrap_or(u32::MAX).saturating_mul(self.max_peers)
    }

    /// Frames in which long messages arrive and do not stay
    pub(super) fn transit(&self) -> u32 {
        u32::try_from(rdma_core::frames(self.max_message)).unwrap_or(u32::MAX)
    }

    /// Frames for the window and the places for trailers of each path
    pub(super) fn windows(&self, ports: usize) -> u32 {
        self.paths(ports).saturating_mul(WINDOW + 1)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_message: self.max_message as u64,
            max_sessions: self.max_sessions,
            max_streams: self.max_streams,
            stream_share: self.stream_share,
        }
    }

    /// Refuses options that contradict each other
    pub(super) fn check(&self, ports: usize) -> Result<(), InvalidOptions> {
        let (min, max) = (MIN_PEER_TIMEOUT, LONGEST);
        if !(min..=max).contains(&self.peer_timeout) {
            return Err(InvalidOptions::PeerTimeout { found: self.peer_timeout, min, max });
        }
        for (option, found, range) in [
            ("max_half_open", self.max_half_open, 1..=65_536),
            ("max_in_flight_sends", self.max_in_flight_sends, 1..=4096),
            ("max_peers", self.max_peers, 1..=4096),
            ("max_sessions", self.max_sessions, 1..=MAX_SESSIONS),
            ("max_streams", self.max_streams, 1..=MAX_STREAMS),
            ("stream_share", self.stream_share, MAX_FRAGMENTS as u32..=MAX_ROOM),
        ] {
            if !range.contains(&found) {
                let [found, min, max] = [found, *range.start(), *range.end()].map(u64::from);
                return Err(InvalidOptions::OutOfRange { option, found, min, max });
            }
        }
        let max_ports = Hello::MAX_PORTS as usize;
        if ports > max_ports {
            return Err(InvalidOptions::Ports { found: ports, max: max_ports });
        }
        let [send, ..] = self.zones(ports);
        if send == 0 {
            return Err(InvalidOptions::SendMemory { found: self.send_memory, min: FRAME });
        }
        if self.receive_memory / FRAME < rdma_core::frames(self.max_message) {
            let min = rdma_core::frames(self.max_message).saturating_mul(FRAME);
            return Err(InvalidOptions::ReceiveMemory { found: self.receive_memory, min });
        }
        let found = self.zones(ports).iter().map(|frames| u64::from(*frames)).sum::<u64>() * FRAME as u64;
        if found >= LONGEST_REGISTRATION {
            return Err(InvalidOptions::Memory { found, max: LONGEST_REGISTRATION });
        }
        Ok(())
    }

    /// The most completions that can wait in the queue of a port
    pub(super) fn max_completions(&self) -> u64 {
        u64::from(self.max_peers) * u64::from(2 * WINDOW + 4 * MAX_SLOTS + TRANSMIT)
    }

    /// Refuses options that a device cannot carry out
    pub(super) fn check_device(&self, device: &impl Device) -> Result<(), InvalidOptions> {
        let (found, max) = (self.max_completions(), u64::from(device.caps().max_cqe));
        if found > max {
            return Err(InvalidOptions::CompletionQueue { found, max });
        }
        let (found, min) = (device.caps().max_message, FRAME as u32);
        if found < min {
            return Err(InvalidOptions::DeviceMessage { found, min });
        }
        Ok(())
    }
}
