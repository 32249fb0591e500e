//! What two processes say to each other on a byte stream, before there is a path and beside it

use std::num::NonZeroU128;
use std::time::Duration;

use super::features::{Features, PortName};
use super::reason::{ByeReason, LostReason};
use super::trailer::{Reader, Writer};
use super::{Integrity, LaneConfig, Limits, PathId};
use crate::{QpAddress, Transport};

/// The first message of each side on a bootstrap stream
///
/// Its length is fixed for a version, and it begins with a magic number and the version, so that another program or another
/// version is recognized before anything else is read. Each side then sends back the nonce of the other: a recorded hello has
/// no answer to a new nonce.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::session::{Features, Hello, HelloError, Integrity, Limits};
///
/// let limits = Limits { max_message: 1 << 30, max_sessions: 8, max_streams: 8, stream_share: 64 };
/// let hello = Hello {
///     incarnation: 1, nonce: [7; 16], group_epoch: 0, limits, bulk_fragment: 1 << 18, integrity: Integrity::Crc32,
///     peer_timeout: Duration::from_secs(2), ports: 1, features: Features::SUPPORTED,
/// };
/// let mut bytes = hello.to_bytes();
/// assert_eq!(Hello::from_bytes(&bytes), Ok(hello));
/// bytes[0] ^= 1;
/// assert_eq!(Hello::from_bytes(&bytes), Err(HelloError::ForeignProtocol));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Drawn anew by each node: a process that was restarted has another one
    pub incarnation: u64,
    /// Drawn anew for each stream
    pub nonce: [u8; Self::NONCE_LEN],
    /// Generation of the application's group that this side belongs to; both sides must have the same
    pub group_epoch: u64,
    /// What this side accepts
    pub limits: Limits,
    /// The most bytes of a bulk fragment: the smaller one of both sides counts
    pub bulk_fragment: u32,
    /// Whether this side wants checksums: they are used if one side does
    pub integrity: Integrity,
    /// Time without a word after which the peer counts as lost: the shorter one of both sides counts
    pub peer_timeout: Duration,
    /// How many ports this side has
    pub ports: u32,
    /// What this side can do: both sides use what both can
    pub features: Features,
}

/// Names a cable: equal at both of its ends, and not zero
///
/// Verbs have no such name. On macOS, those of the Thunderbolt domains at both ends can be made into one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub NonZeroU128);

/// Bytes that are not the [`Hello`] of a compatible peer
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The peer belongs to another generation of the application's group
    #[error("the peer is of group epoch {theirs}, this side of {ours}")]
    Epoch {
        /// The epoch of this side
        ours: u64,
        /// The epoch of the peer
        theirs: u64,
    },
    /// The peer has no shared key, and this side has one
    #[error("the peer has no shared key, and this side wants one")]
    KeyMissing,
    /// The peer has a shared key, and this side has none
    #[error("the peer wants a shared key, and this side has none")]
    KeyRequired,
    /// The peer is not a program that speaks this protocol
    #[error("the peer does not speak this protocol")]
    ForeignProtocol,
    /// The peer did not send back the nonce of this side: its hello may be a recording
    #[error("the peer did not answer the nonce of this side")]
    Replayed,
    /// A message that does not belong here
    #[error("the peer sent a message that does not belong here")]
    Unexpected,
    /// Parameters with which data could not flow
    #[error("the peer offers unusable parameters")]
    Unusable,
    /// The peer runs an incompatible version
    #[error("the peer speaks version {theirs} of the protocol, this side version {ours}", ours = Hello::VERSION)]
    Version {
        /// The version of the peer
        theirs: u16,
    },
    /// Both sides have a shared key, and not the same one
    #[error("the peer has another shared key")]
    WrongKey,
}

const MAGIC: [u8; 6] = *b"tb5rdm";
/// Of a stream on which everything but this is encrypted.
const SEALED_MAGIC: [u8; 6] = *b"tb5key";

impl Hello {
    /// Version of the protocol, which covers this message and all messages after it
    pub const VERSION: u16 = 7;
    /// The most ports of a side
    pub const MAX_PORTS: u32 = 64;
    /// Length of a nonce in bytes
    pub const NONCE_LEN: usize = 16;
    /// Length in bytes of the part that every version begins with: the magic number and the version
    pub const HEAD_LEN: usize = 8;
    /// Length in bytes of what a side with a shared key sends behind its [head](Self::sealed_head): a public key and a tag
    pub const PROOF_LEN: usize = 32 + 16;
    /// Length of the encoded form in bytes
    pub const LEN: usize =
        Self::HEAD_LEN + 8 + Self::NONCE_LEN + 8 + 20 + 4 + 4 + 8 + 4 + 8 + Self::RESERVED_LEN;
    /// Length in bytes of what is zero now, and what no side reads: a feature may give it a meaning
    const RESERVED_LEN: usize = 8;

    /// The encoded form, little-endian
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let mut writer = Writer(&mut out);
        writer.put(MAGIC);
        writer.put(Self::VERSION.to_le_bytes());
        writer.put(self.incarnation.to_le_bytes());
        writer.put(self.nonce);
        writer.put(self.group_epoch.to_le_bytes());
        writer.put(self.limits.max_message.to_le_bytes());
        writer.put(self.limits.max_sessions.to_le_bytes());
        writer.put(self.limits.max_streams.to_le_bytes());
        writer.put(self.limits.stream_share.to_le_bytes());
        writer.put(self.bulk_fragment.to_le_bytes());
        writer.put(u32::from(self.integrity == Integrity::Crc32).to_le_bytes());
        writer.put(u64::try_from(self.peer_timeout.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
        writer.put(self.ports.to_le_bytes());
        writer.put(self.features.0.to_le_bytes());
        out
    }

    /// Checks the first bytes of an encoded form
    ///
    /// # Errors
    ///
    /// [`HelloError::ForeignProtocol`] without the magic number, [`HelloError::KeyRequired`] from a peer with a shared key,
    /// [`HelloError::Version`] from another version.
    pub fn check_head(head: &[u8; Self::HEAD_LEN]) -> Result<(), HelloError> {
        Self::check(head, MAGIC, SEALED_MAGIC, HelloError::KeyRequired)
    }

    /// What a side with a shared key sends first, before the handshake that proves it
    pub fn sealed_head() -> [u8; Self::HEAD_LEN] {
        let mut head = [0; Self::HEAD_LEN];
        let mut writer = Writer(&mut head);
        writer.put(SEALED_MAGIC);
        writer.put(Self::VERSION.to_le_bytes());
        head
    }

    /// Checks the first bytes of a peer that should have a shared key
    ///
    /// # Errors
    ///
    /// [`HelloError::ForeignProtocol`] without the magic number, [`HelloError::KeyMissing`] from a peer without a key,
    /// [`HelloError::Version`] from another version.
    pub fn check_sealed_head(head: &[u8; Self::HEAD_LEN]) -> Result<(), HelloError> {
        Self::check(head, SEALED_MAGIC, MAGIC, HelloError::KeyMissing)
    }

    /// Checks for one magic number; the other one is an error
    fn check(
        head: &[u8; Self::HEAD_LEN],
        expected: [u8; 6],
        other: [u8; 6],
        error: HelloError,
    ) -> Result<(), HelloError> {
        let mut reader = Reader(head);
        match reader.take() {
            magic if magic == expected => (),
            magic if magic == other => return Err(error),
            _ => return Err(HelloError::ForeignProtocol),
        }
        let theirs = u16::from_le_bytes(reader.take());
        if theirs == Self::VERSION { Ok(()) } else { Err(HelloError::Version { theirs }) }
    }

    /// Decodes the encoded form
    ///
    /// # Errors
    ///
    /// As [`check_head`](Self::check_head), and [`HelloError::Unusable`] for limits with which data could not flow.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, HelloError> {
        let mut reader = Reader(bytes);
        Self::check_head(&reader.take())?;
        let hello = Self {
            incarnation: u64::from_le_bytes(reader.take()),
            nonce: reader.take(),
            group_epoch: u64::from_le_bytes(reader.take()),
            limits: Limits {
                max_message: u64::from_le_bytes(reader.take()),
                max_sessions: reader.number(),
                max_streams: reader.number(),
                stream_share: reader.number(),
            },
            bulk_fragment: reader.number(),
            integrity: if reader.number() == 0 { Integrity::Unchecked } else { Integrity::Crc32 },
            peer_timeout: Duration::from_nanos(u64::from_le_bytes(reader.take())),
            ports: reader.number(),
            features: Features(u64::from_le_bytes(reader.take())),
        };
        let is_usable = hello.limits.is_usable()
            && hello.bulk_fragment as usize >= crate::FRAME
            && hello.bulk_fragment.is_multiple_of(crate::FRAME as u32)
            && hello.peer_timeout >= MIN_PEER_TIMEOUT
            && (1..=Self::MAX_PORTS).contains(&hello.ports);
        if is_usable { Ok(hello) } else { Err(HelloError::Unusable) }
    }
}

/// The shortest peer timeout.
pub const MIN_PEER_TIMEOUT: Duration = Duration::from_millis(8);

/// Configuration of a path between two sides with this `peer_timeout`, each of whose eager lanes has `window` receives, and whose
/// bulk lane takes `bulk_slots` parts of messages at once at this side; the device of the peer may take `device_timeout` to connect
pub fn lane_config(
    peer_timeout: Duration,
    device_timeout: Duration,
    window: u32,
    bulk_slots: u32,
) -> LaneConfig {
    LaneConfig {
        window,
        peer_window: window,
        bulk_slots,
        report_delay: Duration::from_micros(25),
        heartbeat: peer_timeout / 8,
        timeout: peer_timeout / 2,
        proof_timeout: peer_timeout.saturating_add(device_timeout),
    }
}

/// One end of a path, as its side describes it to the other
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PathEnd {
    /// The path
    pub path: PathId,
    /// Its incarnation
    pub epoch: u16,
    /// Receives that are kept posted on the eager lane
    pub window: u32,
    /// What the port carries, in bytes per second
    pub rate: u64,
    /// The queue pair of the eager lane
    pub eager: QpAddress,
    /// The queue pair of the bulk lane
    pub bulk: QpAddress,
}

/// A path that the connecting side offers
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Offer {
    /// The end of the connecting side
    pub end: PathEnd,
    /// The port of the accepting side that is asked for
    pub port: u32,
    /// What carries the messages of this end: the accepting side needs a port of the same kind
    pub transport: Transport,
    /// The cable, if its name is known: the accepting side takes the port at the other end
    pub link: Option<LinkId>,
}

/// A message on a bootstrap stream after the [`Hello`]s
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ControlMessage {
    /// The nonce of the peer's hello
    Confirm([u8; Hello::NONCE_LEN]),
    /// A path, with the connecting side's end of it
    Offer(Offer),
    /// The accepting side's end of the path that was offered; it receives already
    Answer {
        /// The end
        end: PathEnd,
        /// The port of the accepting side that it is on
        port: u32,
    },
    /// The sender has no path of this number and incarnation: it was lost, or cannot be made
    Lost {
        /// The path
        path: PathId,
        /// Its incarnation
        epoch: u16,
        /// Why
        reason: LostReason,
        /// The port of the sender that could not be used, if the receiver [wants](Features::PORT_NAMES) its name
        port: Option<PortName>,
    },
    /// The sender is alive
    Alive,
    /// The sender ends all sessions
    Bye(ByeReason),
}

impl ControlMessage {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 40 + 2 * QpAddress::WIRE_LEN;

    /// The encoded form, of fixed length: a tag, then the fields, little-endian, then zeros
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let mut writer = Writer(&mut out);
        match self {
            Self::Confirm(nonce) => {
                writer.put([1]);
                writer.put(nonce);
            }
            Self::Offer(Offer { end, port, transport, link }) => {
                end.write(&mut writer, 2);
                writer.put(port.to_le_bytes());
                writer.put([transport as u8]);
                writer.put(link.map_or(0, |link| link.0.get()).to_le_bytes());
            }
            Self::Answer { end, port } => {
                end.write(&mut writer, 3);
                writer.put(port.to_le_bytes());
            }
            Self::Lost { path, epoch, reason, port } => {
                writer.put([4]);
                writer.put(path.0.to_le_bytes());
                writer.put(epoch.to_le_bytes());
                writer.put([reason.code()]);
                writer.put(PortName::to_bytes(port));
            }
            Self::Alive => writer.put([5]),
            Self::Bye(reason) => writer.put([6, reason.code()]),
        }
        out
    }

    /// Decodes the encoded form
    ///
    /// # Errors
    ///
    /// [`HelloError::Unexpected`] for a tag that this version does not know.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, HelloError> {
        let mut reader = Reader(bytes);
        let [tag] = reader.take();
        Ok(match tag {
            1 => Self::Confirm(reader.take()),
            2 => Self::Offer(Offer {
                end: PathEnd::read(&mut reader),
                port: reader.number(),
                transport: {
                    let [number] = reader.take();
                    Transport::from_number(number).ok_or(HelloError::Unexpected)?
                },
                link: NonZeroU128::new(u128::from_le_bytes(reader.take())).map(LinkId),
            }),
            3 => Self::Answer { end: PathEnd::read(&mut reader), port: reader.number() },
            4 => Self::Lost {
                path: PathId(reader.number()),
                epoch: u16::from_le_bytes(reader.take()),
                reason: LostReason::from_code(reader.take::<1>()[0]),
                port: PortName::from_bytes(reader.take()),
            },
            5 => Self::Alive,
            6 => Self::Bye(ByeReason::from_code(reader.take::<1>()[0])),
            _ => return Err(HelloError::Unexpected),
        })
    }
}

impl PathEnd {
    fn write(&self, writer: &mut Writer<'_>, tag: u8) {
        writer.put([tag]);
        writer.put(self.path.0.to_le_bytes());
        writer.put(self.epoch.to_le_bytes());
        writer.put(self.window.to_le_bytes());
        writer.put(self.rate.to_le_bytes());
        writer.put(self.eager.to_bytes());
        writer.put(self.bulk.to_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            path: PathId(reader.number()),
            epoch: u16::from_le_bytes(reader.take()),
            window: reader.number(),
            rate: u64::from_le_bytes(reader.take()),
            eager: QpAddress::from_bytes(&reader.take()),
            bulk: QpAddress::from_bytes(&reader.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> PathEnd {
        let eager = QpAddress { qpn: crate::Qpn(7), ..QpAddress::default() };
        let bulk = QpAddress { qpn: crate::Qpn(8), ..QpAddress::default() };
        PathEnd { path: PathId(1), epoch: 2, window: 3, rate: 1 << 40, eager, bulk }
    }

    #[test]
    fn control_messages_are_decoded_as_they_were_encoded() {
        let offer = Offer { end: end(), port: u32::MAX, transport: Transport::Tcp, link: None };
        for message in [
            ControlMessage::Confirm([9; 16]),
            ControlMessage::Offer(offer),
            ControlMessage::Offer(Offer {
                transport: Transport::Rdma,
                link: Some(LinkId(NonZeroU128::MAX)),
                ..offer
            }),
            ControlMessage::Answer { end: end(), port: 4 },
            ControlMessage::Lost { path: PathId(1), epoch: 2, reason: LostReason::Lost, port: None },
            ControlMessage::Lost {
                path: PathId(1),
                epoch: 2,
                reason: LostReason::Other(9),
                port: PortName::new(&"p".repeat(PortName::LEN)),
            },
            ControlMessage::Alive,
            ControlMessage::Bye(ByeReason::Done),
            ControlMessage::Bye(ByeReason::Other(200)),
        ] {
            assert_eq!(ControlMessage::from_bytes(&message.to_bytes()), Ok(message));
        }
        for tag in [0, 7] {
            let mut bytes = ControlMessage::Alive.to_bytes();
            bytes[0] = tag;
            assert_eq!(ControlMessage::from_bytes(&bytes), Err(HelloError::Unexpected));
        }
        let mut bytes = ControlMessage::Offer(offer).to_bytes();
        bytes[75] = 3;
        assert_eq!(ControlMessage::from_bytes(&bytes), Err(HelloError::Unexpected), "no such transport");
    }

    /// Catches each condition on a hello left out.
    #[test]
    fn a_hello_with_which_data_could_not_flow_is_refused() {
        let limits = Limits { max_message: 0, max_sessions: 1, max_streams: 1, stream_share: 17 };
        let good = Hello {
            incarnation: 1,
            nonce: [2; 16],
            group_epoch: 3,
            limits,
            bulk_fragment: 4096,
            integrity: Integrity::Unchecked,
            peer_timeout: MIN_PEER_TIMEOUT,
            ports: 5,
            features: Features(1 << 63),
        };
        assert_eq!(Hello::from_bytes(&good.to_bytes()), Ok(good));
        let mut later = good.to_bytes();
        later[Hello::LEN - Hello::RESERVED_LEN..].fill(0xff);
        assert_eq!(Hello::from_bytes(&later), Ok(good), "reserved bytes have no meaning");
        let short = MIN_PEER_TIMEOUT - Duration::from_nanos(1);
        for unusable in [
            Hello { limits: Limits { stream_share: 16, ..limits }, ..good },
            Hello { bulk_fragment: 0, ..good },
            Hello { bulk_fragment: 4097, ..good },
            Hello { peer_timeout: short, ..good },
            Hello { ports: 0, ..good },
            Hello { ports: Hello::MAX_PORTS + 1, ..good },
        ] {
            assert_eq!(Hello::from_bytes(&unusable.to_bytes()), Err(HelloError::Unusable));
        }
        let mut newer = good.to_bytes();
        newer[6] += 1;
        assert_eq!(Hello::from_bytes(&newer), Err(HelloError::Version { theirs: Hello::VERSION + 1 }));
    }
}
