//! What goes over the wire for the bulk lane: grants, and the trailers of parts

use super::trailer::{Reader, Writer};
use super::{Address, Integrity, PacketError};

/// A receive that the sender of this grant has posted, and the bytes that it wants there
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// Number of the receive on its lane, from zero, wrapping
    pub slot: u32,
    /// Number of bytes; zero asks for a trailer alone, which keeps the queue pair alive
    pub len: u32,
    /// Where they are in their message, in bytes
    pub offset: u64,
    /// The message
    pub address: Address,
}

impl Grant {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 28;

    /// The encoded form, little-endian: slot, length, offset, address
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let mut writer = Writer(&mut out);
        writer.put(self.slot.to_le_bytes());
        writer.put(self.len.to_le_bytes());
        writer.put(self.offset.to_le_bytes());
        writer.address(self.address);
        out
    }

    /// Decodes the encoded form
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let mut reader = Reader(bytes);
        let (slot, len) = (reader.number(), reader.number());
        Self { slot, len, offset: u64::from_le_bytes(reader.take()), address: reader.address() }
    }
}

/// Follows each message on the bulk lane, as a message of its own, and says what it is
///
/// If a message of the lane is lost, the next one meets a receive that was posted for something else. Its length, or the
/// trailer after it, gives it away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BulkTrailer {
    /// What the bytes before it are: the answer to this grant
    pub grant: Grant,
    /// Incarnation of the path
    pub epoch: u16,
    /// What the bytes are
    pub part: BulkPart,
}

/// What the bytes before a [`BulkTrailer`] are
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum BulkPart {
    /// Those that were granted; others of the message follow them
    Inner = 0,
    /// Nothing: the message is no longer sent, or there is none
    Void = 1,
    /// Those that were granted, with which their message ends
    Last = 2,
}

impl BulkPart {
    const ALL: [Self; 3] = [Self::Inner, Self::Void, Self::Last];
}

impl BulkTrailer {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 8 + Grant::LEN;

    /// The encoded form behind `payload`, little-endian: checksum of both, epoch, what the bytes are, the grant
    pub fn to_bytes(self, payload: &[u8], integrity: Integrity) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let mut writer = Writer(&mut out[4..]);
        writer.put(self.epoch.to_le_bytes());
        writer.put((self.part as u16).to_le_bytes());
        writer.put(self.grant.to_bytes());
        let checksum = integrity.checksum([payload, &out[4..]]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes a trailer that arrived behind `payload`
    ///
    /// # Errors
    ///
    /// [`PacketError::Short`] for another length than [`LEN`](Self::LEN); [`PacketError::Checksum`] if the checksum does not match;
    /// [`PacketError::Reserved`] if reserved bits are not zero.
    pub fn from_bytes(bytes: &[u8], payload: &[u8], integrity: Integrity) -> Result<Self, PacketError> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| PacketError::Short(bytes.len()))?;
        let mut reader = Reader(bytes);
        if u32::from_le_bytes(reader.take()) != integrity.checksum([payload, &bytes[4..]]) {
            return Err(PacketError::Checksum);
        }
        let epoch = u16::from_le_bytes(reader.take());
        let part = u16::from_le_bytes(reader.take());
        let part = *BulkPart::ALL.get(usize::from(part)).ok_or(PacketError::Reserved)?;
        Ok(Self { grant: Grant::from_bytes(&reader.take()), epoch, part })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant(slot: u32) -> Grant {
        Grant { slot, len: 5, offset: 1 << 40, address: Address { session: 1, stream: 2, message: 3 } }
    }

    proptest! {
        #[test]
        fn a_bulk_trailer_is_decoded_as_it_was_encoded(
            numbers in any::<(u32, u32, u64, u32, u32, u32)>(),
            epoch in any::<u16>(),
            part in prop::sample::select(BulkPart::ALL.as_slice()),
        ) {
            let (slot, len, offset, session, stream, message) = numbers;
            let grant = Grant { slot, len, offset, address: Address { session, stream, message } };
            let trailer = BulkTrailer { grant, epoch, part };
            for integrity in [Integrity::Crc32, Integrity::Unchecked] {
                let bytes = trailer.to_bytes(b"hello", integrity);
                prop_assert_eq!(BulkTrailer::from_bytes(&bytes, b"hello", integrity), Ok(trailer));
            }
        }
    }

    #[test]
    fn other_bytes_than_the_granted_ones_are_noticed() {
        let trailer = BulkTrailer { grant: grant(0), epoch: 1, part: BulkPart::Inner };
        let bytes = trailer.to_bytes(b"hello", Integrity::Crc32);
        let decode = |bytes: &[u8], payload| BulkTrailer::from_bytes(bytes, payload, Integrity::Crc32);
        assert_eq!(decode(&bytes, b"hallo"), Err(PacketError::Checksum));
        assert_eq!(decode(&bytes[1..], b"hello"), Err(PacketError::Short(35)));
        let mut unchecked = trailer.to_bytes(b"hello", Integrity::Unchecked);
        unchecked[6] = 3;
        let decoded = BulkTrailer::from_bytes(&unchecked, b"hello", Integrity::Unchecked);
        assert_eq!(decoded, Err(PacketError::Reserved));
    }
}
