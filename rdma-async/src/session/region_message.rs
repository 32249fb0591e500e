//! What goes over a stream when a peer reads or writes a region

use rdma_core::Access;

/// The longest name of a region, in bytes
pub(super) const MAX_NAME: usize = 255;

/// What a peer wants of a region
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// [`Access::REMOTE_READ`] or [`Access::REMOTE_WRITE`]
    pub(super) access: Access,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) name: &'a str,
}

/// Bytes of a request before the name.
const HEAD: usize = 17;

impl<'a> Request<'a> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let kind = u8::from(self.access == Access::REMOTE_WRITE);
        [&[kind][..], &self.offset.to_le_bytes(), &self.len.to_le_bytes(), self.name.as_bytes()].concat()
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, name) = bytes.split_at_checked(HEAD)?;
        let access = match head[0] {
            0 => Access::REMOTE_READ,
            1 => Access::REMOTE_WRITE,
            _ => return None,
        };
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= MAX_NAME)?;
        Some(Self { access, offset: number(&head[1..9])?, len: number(&head[9..17])?, name })
    }
}

/// What the owner of a region answers, before the bytes that are read
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    NoRegion,
    NotPermitted,
    /// The region has so many bytes
    OutOfBounds(u64),
    Malformed,
}

impl Answer {
    pub(super) fn to_bytes(self) -> [u8; 9] {
        let (kind, size) = match self {
            Self::Done => (0, 0),
            Self::NoRegion => (1, 0),
            Self::NotPermitted => (2, 0),
            Self::OutOfBounds(size) => (3, size),
            Self::Malformed => (4, 0),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&u64::to_le_bytes(size));
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, size) = bytes.split_first()?;
        let size = number(size)?;
        Some(match kind {
            0 => Self::Done,
            1 => Self::NoRegion,
            2 => Self::NotPermitted,
            3 => Self::OutOfBounds(size),
            4 => Self::Malformed,
            _ => return None,
        })
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        for (access, name) in [(Access::REMOTE_READ, ""), (Access::REMOTE_WRITE, "weights/0")] {
            let request = Request { access, offset: 1 << 40, len: 7, name };
            assert_eq!(Request::parse(&request.to_bytes()), Some(request));
        }
        let answers = [
            Answer::Done,
            Answer::NoRegion,
            Answer::NotPermitted,
            Answer::OutOfBounds(77),
            Answer::Malformed,
        ];
        for answer in answers {
            assert_eq!(Answer::parse(&answer.to_bytes()), Some(answer));
        }
    }

    /// Catches bytes of a hostile peer that are taken for something else.
    #[test]
    fn other_bytes_are_no_message() {
        let good = Request { access: Access::REMOTE_READ, offset: 0, len: 0, name: "a" }.to_bytes();
        for len in 0..HEAD {
            assert_eq!(Request::parse(&good[..len]), None);
        }
        let long = [&good[..], &[b'a'; MAX_NAME]].concat();
        for bad in [[&[2], &good[1..]].concat(), [&good[..], &[0xff]].concat(), long] {
            assert_eq!(Request::parse(&bad), None);
        }
        for bad in [&[][..], &[0; 8], &[0; 10], &[5; 9]] {
            assert_eq!(Answer::parse(bad), None);
        }
    }
}
