use std::time::Duration;

use super::Params;
use crate::QpAddress;

/// The first message of each side on the bootstrap stream
///
/// Its length is fixed for a version, and it begins with a magic number and the version, so that another program or another
/// version is recognized before anything else is read.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::QpAddress;
/// use rdma_core::protocol::{Hello, HelloError, Params};
///
/// let peer_timeout = Duration::from_secs(5);
/// let params = Params { announces: 4, max_message: 1 << 24, peer_timeout, window: 256 };
/// let address = QpAddress::default();
/// let hello = Hello { epoch: 1, params, eager: address, bulk: address };
/// let mut bytes = hello.to_bytes();
/// assert_eq!(Hello::from_bytes(&bytes), Ok(hello));
/// bytes[0] ^= 1;
/// assert_eq!(Hello::from_bytes(&bytes), Err(HelloError::ForeignProtocol));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Generation of the application's group that this side belongs to; both sides must have the same
    pub epoch: u64,
    /// Limits of this side
    pub params: Params,
    /// Address of its eager queue pair
    pub eager: QpAddress,
    /// Address of its bulk queue pair
    pub bulk: QpAddress,
}

/// Bytes that are not the [`Hello`] of a compatible peer
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The peer is not a program that speaks this protocol
    #[error("the peer does not speak this protocol")]
    ForeignProtocol,
    /// Parameters with which data could not flow
    #[error("the peer offers unusable parameters: {0:?}")]
    Unusable(Params),
    /// The peer runs an incompatible version
    #[error("the peer speaks version {theirs} of the protocol, this side version {ours}", ours = Hello::VERSION)]
    Version {
        /// The version of the peer
        theirs: u16,
    },
}

const MAGIC: [u8; 6] = *b"tb5rdm";

impl Hello {
    /// Version of the protocol, which covers this message and all messages after it
    pub const VERSION: u16 = 2;
    /// Length of the encoded form in bytes
    pub const LEN: usize = 36 + 2 * QpAddress::WIRE_LEN;
    /// Length in bytes of what every version begins with: the magic number and the version
    pub const HEAD_LEN: usize = 8;

    /// The encoded form, big-endian
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..6].copy_from_slice(&MAGIC);
        out[6..8].copy_from_slice(&Self::VERSION.to_be_bytes());
        out[8..16].copy_from_slice(&self.epoch.to_be_bytes());
        out[16..20].copy_from_slice(&self.params.announces.to_be_bytes());
        out[20..24].copy_from_slice(&self.params.max_message.to_be_bytes());
        out[24..28].copy_from_slice(&self.params.window.to_be_bytes());
        let timeout = u64::try_from(self.params.peer_timeout.as_nanos()).unwrap_or(u64::MAX);
        out[28..36].copy_from_slice(&timeout.to_be_bytes());
        let (eager, bulk) = out[36..].split_at_mut(QpAddress::WIRE_LEN);
        eager.copy_from_slice(&self.eager.to_bytes());
        bulk.copy_from_slice(&self.bulk.to_bytes());
        out
    }

    /// Checks the first bytes of an encoded form
    ///
    /// # Errors
    ///
    /// [`HelloError::ForeignProtocol`] without the magic number, [`HelloError::Version`] from another version.
    pub fn check_head(head: [u8; Self::HEAD_LEN]) -> Result<(), HelloError> {
        let mut rest = head.as_slice();
        if take(&mut rest) != MAGIC {
            return Err(HelloError::ForeignProtocol);
        }
        let theirs = u16::from_be_bytes(take(&mut rest));
        if theirs == Self::VERSION { Ok(()) } else { Err(HelloError::Version { theirs }) }
    }

    /// Decodes the encoded form
    ///
    /// # Errors
    ///
    /// [`HelloError::ForeignProtocol`] without the magic number, [`HelloError::Version`] from another version,
    /// [`HelloError::Unusable`] for limits with which data could not flow.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, HelloError> {
        let mut rest = bytes.as_slice();
        Self::check_head(take(&mut rest))?;
        let hello = Self {
            epoch: u64::from_be_bytes(take(&mut rest)),
            params: Params {
                announces: u32::from_be_bytes(take(&mut rest)),
                max_message: u32::from_be_bytes(take(&mut rest)),
                window: u32::from_be_bytes(take(&mut rest)),
                peer_timeout: Duration::from_nanos(u64::from_be_bytes(take(&mut rest))),
            },
            eager: QpAddress::from_bytes(&take(&mut rest)),
            bulk: QpAddress::from_bytes(&take(&mut rest)),
        };
        if hello.params.is_usable() { Ok(hello) } else { Err(HelloError::Unusable(hello.params)) }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_first_chunk().expect("the fields add up to Hello::LEN");
    *rest = tail;
    *head
}
