use crate::FRAME;

/// The longest message that goes by the eager lane, in bytes
pub const MAX_EAGER: usize = FRAME - Trailer::LEN;

/// Kind of a message on the eager lane
///
/// ```
/// use rdma_core::protocol::{Kind, Trailer};
///
/// let trailer = Trailer { kind: Kind::Update, seq: 0, credits: 24, grants: 0 };
/// assert_eq!(trailer.to_bytes()[12], Kind::Update as u8);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// A message of the application
    Data = 1,
    /// Announces the next bulk message, with its length
    Announce = 2,
    /// Carries only the totals of its trailer
    Update = 3,
    /// The sender will send no more messages, and deliver no more
    Fin = 4,
    /// Everything before the peer's [`Fin`](Self::Fin) has arrived; carries the total of bulk messages that its sender posted
    FinAck = 5,
    /// The [`FinAck`](Self::FinAck) has arrived, and all bulk messages that it counted
    Done = 6,
}

/// The last [`Trailer::LEN`] bytes of every message on the eager lane
///
/// A trailer rather than a header, so that the payload starts where its buffer starts.
///
/// ```
/// use rdma_core::protocol::{Kind, Trailer, TrailerError};
///
/// let trailer = Trailer { kind: Kind::Data, seq: 0, credits: 24, grants: 0 };
/// let message = [b"hello".as_slice(), &trailer.to_bytes()].concat();
/// assert_eq!(Trailer::split(&message), Ok((b"hello".as_slice(), trailer)));
/// assert_eq!(Trailer::split(b"hello"), Err(TrailerError::Short(5)));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Trailer {
    /// Kind of the message
    pub kind: Kind,
    /// Number of the message on this lane, from zero, wrapping
    pub seq: u32,
    /// Eager receives that the sender of this trailer has posted in total, wrapping
    pub credits: u32,
    /// Announced messages that the sender of this trailer has granted in total, wrapping
    pub grants: u32,
}

/// Bytes that do not end in a trailer of this version
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrailerError {
    /// Reserved bytes are not zero
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The message is shorter than a trailer
    #[error("a message of {0} bytes has no room for its trailer")]
    Short(usize),
    /// This version does not know the kind
    #[error("unknown message kind {0}")]
    UnknownKind(u8),
}

impl Trailer {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 16;

    /// The encoded form: sequence number, credits, grants (little-endian), kind, three zero bytes
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&self.seq.to_le_bytes());
        out[4..8].copy_from_slice(&self.credits.to_le_bytes());
        out[8..12].copy_from_slice(&self.grants.to_le_bytes());
        out[12] = self.kind as u8;
        out
    }

    /// Splits a message into its payload and its trailer
    ///
    /// # Errors
    ///
    /// * [`TrailerError::Short`] if the message is shorter than a trailer;
    /// * [`TrailerError::UnknownKind`] if this version does not know its kind;
    /// * [`TrailerError::Reserved`] if reserved bytes are not zero.
    pub fn split(message: &[u8]) -> Result<(&[u8], Self), TrailerError> {
        let Some((payload, bytes)) = message.split_last_chunk::<{ Self::LEN }>() else {
            return Err(TrailerError::Short(message.len()));
        };
        let [s0, s1, s2, s3, c0, c1, c2, c3, g0, g1, g2, g3, kind, r0, r1, r2] = *bytes;
        let kind = match kind {
            1 => Kind::Data,
            2 => Kind::Announce,
            3 => Kind::Update,
            4 => Kind::Fin,
            5 => Kind::FinAck,
            6 => Kind::Done,
            other => return Err(TrailerError::UnknownKind(other)),
        };
        if [r0, r1, r2] != [0; 3] {
            return Err(TrailerError::Reserved);
        }
        let trailer = Self {
            kind,
            seq: u32::from_le_bytes([s0, s1, s2, s3]),
            credits: u32::from_le_bytes([c0, c1, c2, c3]),
            grants: u32::from_le_bytes([g0, g1, g2, g3]),
        };
        Ok((payload, trailer))
    }
}
