use super::Report;
use crate::FRAME;

/// Bytes of a message in one packet of the eager lane
pub const FRAGMENT: usize = FRAME - PacketTrailer::LEN;

/// The most packets of a message that goes by the eager lane
pub const MAX_FRAGMENTS: usize = 17;

/// The longest message that goes by the eager lane, in bytes: a little more than 64 KiB
pub const MAX_EAGER: usize = MAX_FRAGMENTS * FRAGMENT;

/// How many packets of its session's room a message of `len` bytes holds until [`Peering::consume`](super::Peering::consume): those of its fragments, or of
/// its announcement
pub const fn packets(len: u64) -> u32 {
    if len > MAX_EAGER as u64 || len == 0 { 1 } else { (len as usize).div_ceil(FRAGMENT) as u32 }
}

/// Kind of a packet
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[non_exhaustive]
pub enum PacketKind {
    /// A fragment of a message; its payload
    Fragment = 1,
    /// The place of a message that goes by the bulk lane; its length
    Announce = 2,
    /// The end of a stream
    Finish = 3,
    /// Receives that were posted on the bulk lane of the path, and messages of bulk lanes that have arrived whole;
    /// [`Grant`](super::Grant)s, then [`Address`]es
    Bulk = 4,
    /// The end of a session at once; the reason
    Reset = 5,
    /// The room of a session
    Room = 6,
    /// Nothing but the fields of its trailer, and needs no report itself
    Report = 7,
    /// The sender reads no more of a stream
    Stop = 8,
    /// A message about another path; a [`ControlMessage`](super::ControlMessage)
    Control = 9,
}

impl PacketKind {
    /// Every kind, in the order of their numbers
    pub const ALL: [Self; 9] = [
        Self::Fragment,
        Self::Announce,
        Self::Finish,
        Self::Bulk,
        Self::Reset,
        Self::Room,
        Self::Report,
        Self::Stop,
        Self::Control,
    ];

    /// Whether the receiver opens the session and the stream of the packet
    pub(super) fn opens_streams(self) -> bool {
        matches!(self, Self::Fragment | Self::Announce | Self::Finish | Self::Room | Self::Stop)
    }

    /// Whether the receiver reports the packet soon
    pub(super) fn is_eliciting(self) -> bool {
        self != Self::Report
    }
}

/// Which message a packet belongs to
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Address {
    /// Number of the session
    pub session: u32,
    /// Number of the stream in its session
    pub stream: u32,
    /// Number of the message in its stream, from zero, wrapping
    pub message: u32,
}

impl Address {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 12;

    /// The encoded form, little-endian: session, stream, message
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        Writer(&mut out).address(self);
        out
    }

    /// Decodes the encoded form
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Reader(bytes).address()
    }
}

/// The last [`PacketTrailer::LEN`] bytes of every packet of the eager lane
///
/// A trailer rather than a header, so that the payload starts where its buffer starts.
///
/// ```
/// use rdma_core::session::{Integrity, PacketError, PacketKind, PacketTrailer};
///
/// let trailer = PacketTrailer { kind: PacketKind::Fragment, len: 5, ..PacketTrailer::default() };
/// let mut packet = [b"hello".as_slice(), &trailer.to_bytes(b"hello", Integrity::Crc32)].concat();
/// assert_eq!(PacketTrailer::split(&packet, Integrity::Crc32), Ok((b"hello".as_slice(), trailer)));
/// packet[0] ^= 1;
/// assert_eq!(PacketTrailer::split(&packet, Integrity::Crc32), Err(PacketError::Checksum));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PacketTrailer {
    /// Kind of the packet
    pub kind: PacketKind,
    /// Which part of its message a [`PacketKind::Fragment`] is; how many grants a [`PacketKind::Bulk`] has
    pub fragment: u8,
    /// Whether the sender waits for a report
    pub wants_report: bool,
    /// Incarnation of the path
    pub epoch: u16,
    /// Number of the packet on its lane, from zero, wrapping
    pub number: u32,
    /// Number of the first packet that the sender of this trailer has posted no receive for
    pub limit: u32,
    /// Which packets the sender of this trailer has received
    pub report: Report,
    /// The message; the session of `room`, which is 0 for none
    pub address: Address,
    /// Length of the message in bytes, for a [`PacketKind::Fragment`]
    pub len: u32,
    /// Packets in total that the sender of this trailer takes in the session
    pub room: u32,
}

/// Whether packets and bulk fragments carry a checksum
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Integrity {
    /// CRC-32 (ISO-HDLC) over payload and trailer
    #[default]
    Crc32,
    /// No checksum: what the link delivers counts as intact
    Unchecked,
}

impl Integrity {
    pub(super) fn checksum(self, parts: [&[u8]; 2]) -> u32 {
        match self {
            Self::Crc32 => {
                let mut hasher = crc32fast::Hasher::new();
                parts.iter().for_each(|part| hasher.update(part));
                hasher.finalize()
            }
            Self::Unchecked => 0,
        }
    }
}

/// Bytes that are not a packet of this version
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The checksum does not match
    #[error("checksum mismatch")]
    Checksum,
    /// Reserved bits are not zero
    #[error("reserved bits are not zero")]
    Reserved,
    /// The packet is shorter than a trailer
    #[error("a packet of {0} bytes has no room for its trailer")]
    Short(usize),
    /// This version does not know the kind
    #[error("unknown packet kind {0}")]
    UnknownKind(u8),
}

impl Default for PacketTrailer {
    /// A [`PacketKind::Report`] with nothing to report
    fn default() -> Self {
        Self {
            kind: PacketKind::Report,
            fragment: 0,
            wants_report: false,
            epoch: 0,
            number: 0,
            limit: 0,
            report: Report::default(),
            address: Address::default(),
            len: 0,
            room: 0,
        }
    }
}

impl PacketTrailer {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 64;

    /// The encoded form, little-endian, behind `payload`
    ///
    /// Checksum, kind, fragment, epoch, number, limit, `report.next`, session, stream, message, length, room, flags, four zero
    /// bytes, `report.bitmap`.
    pub fn to_bytes(self, payload: &[u8], integrity: Integrity) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let mut writer = Writer(&mut out[4..]);
        writer.put([self.kind as u8, self.fragment]);
        writer.put(self.epoch.to_le_bytes());
        writer.put(self.number.to_le_bytes());
        writer.put(self.limit.to_le_bytes());
        writer.put(self.report.next.to_le_bytes());
        writer.address(self.address);
        writer.put(self.len.to_le_bytes());
        writer.put(self.room.to_le_bytes());
        writer.put(u64::from(self.wants_report).to_le_bytes());
        writer.put(self.report.bitmap.to_le_bytes());
        let checksum = integrity.checksum([payload, &out[4..]]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Splits a packet into its payload and its trailer
    ///
    /// # Errors
    ///
    /// * [`PacketError::Short`] if the packet is shorter than a trailer;
    /// * [`PacketError::Checksum`] if the checksum does not match;
    /// * [`PacketError::UnknownKind`] if this version does not know its kind;
    /// * [`PacketError::Reserved`] if reserved bits are not zero.
    pub fn split(packet: &[u8], integrity: Integrity) -> Result<(&[u8], Self), PacketError> {
        let Some((payload, bytes)) = packet.split_last_chunk::<{ Self::LEN }>() else {
            return Err(PacketError::Short(packet.len()));
        };
        let mut reader = Reader(bytes);
        if u32::from_le_bytes(reader.take()) != integrity.checksum([payload, &bytes[4..]]) {
            return Err(PacketError::Checksum);
        }
        let [kind, fragment] = reader.take();
        let index = usize::from(kind).wrapping_sub(1);
        let kind = *PacketKind::ALL.get(index).ok_or(PacketError::UnknownKind(kind))?;
        let epoch = u16::from_le_bytes(reader.take());
        let number = reader.number();
        let limit = reader.number();
        let next = reader.number();
        let address = reader.address();
        let len = reader.number();
        let room = reader.number();
        let flags = u64::from_le_bytes(reader.take());
        if flags > 1 {
            return Err(PacketError::Reserved);
        }
        let report = Report { next, bitmap: u128::from_le_bytes(reader.take()) };
        let wants_report = flags == 1;
        Ok((payload, Self { kind, fragment, wants_report, epoch, number, limit, report, address, len, room }))
    }
}

/// Fills fields one behind the other
pub(super) struct Writer<'a>(pub(super) &'a mut [u8]);

impl Writer<'_> {
    pub(super) fn put<const N: usize>(&mut self, field: [u8; N]) {
        let (head, tail) = std::mem::take(&mut self.0).split_at_mut(N);
        head.copy_from_slice(&field);
        self.0 = tail;
    }

    pub(super) fn address(&mut self, address: Address) {
        self.put(address.session.to_le_bytes());
        self.put(address.stream.to_le_bytes());
        self.put(address.message.to_le_bytes());
    }
}

/// Reads fields one behind the other, out of bytes that are long enough
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.0.split_first_chunk().expect("the fields add up to the length");
        self.0 = tail;
        *head
    }

    pub(super) fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn address(&mut self) -> Address {
        Address { session: self.number(), stream: self.number(), message: self.number() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trailers() -> impl Strategy<Value = PacketTrailer> {
        let numbers = any::<(u32, u32, u32, u128, u32, u32, u32, u32, u32)>();
        (prop::sample::select(PacketKind::ALL.as_slice()), any::<(u8, bool, u16)>(), numbers).prop_map(
            |(kind, (fragment, wants_report, epoch), numbers)| {
                let (number, limit, next, bitmap, session, stream, message, len, room) = numbers;
                let report = Report { next, bitmap };
                let address = Address { session, stream, message };
                PacketTrailer {
                    kind,
                    fragment,
                    wants_report,
                    epoch,
                    number,
                    limit,
                    report,
                    address,
                    len,
                    room,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_trailer_is_decoded_as_it_was_encoded(
            trailer in trailers(),
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            for integrity in [Integrity::Crc32, Integrity::Unchecked] {
                let packet = [payload.as_slice(), &trailer.to_bytes(&payload, integrity)].concat();
                prop_assert_eq!(PacketTrailer::split(&packet, integrity), Ok((payload.as_slice(), trailer)));
            }
        }

        /// Catches a checksum that leaves out a byte of the payload or of the trailer.
        #[test]
        fn a_changed_bit_is_noticed(
            trailer in trailers(),
            payload in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            bit in 0..8,
        ) {
            let mut packet = [payload.as_slice(), &trailer.to_bytes(&payload, Integrity::Crc32)].concat();
            let at = at.index(packet.len());
            packet[at] ^= 1u8 << bit;
            prop_assert_eq!(PacketTrailer::split(&packet, Integrity::Crc32), Err(PacketError::Checksum));
        }
    }

    #[test]
    fn bytes_that_are_no_packet_are_refused() {
        let split =
            |bytes: &[u8]| PacketTrailer::split(bytes, Integrity::Unchecked).map(|(_, trailer)| trailer);
        let encoded = PacketTrailer::default().to_bytes(&[], Integrity::Unchecked);
        let changed = |at: usize, byte: u8| {
            let mut bytes = encoded;
            bytes[at] = byte;
            split(&bytes)
        };
        assert_eq!(split(&encoded), Ok(PacketTrailer::default()));
        assert_eq!(split(&encoded[1..]), Err(PacketError::Short(63)));
        assert_eq!(changed(4, 0), Err(PacketError::UnknownKind(0)));
        assert_eq!(changed(4, 10), Err(PacketError::UnknownKind(10)));
        assert_eq!(changed(40, 2), Err(PacketError::Reserved));
        assert_eq!(changed(47, 1), Err(PacketError::Reserved));
    }
}
