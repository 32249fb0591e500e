//! The messages of the control connection, and their framing

use std::io::{self, Read, Write};

use rdma_core::{
    Access, Caps, Completion, Error, Lkey, QpAddress, QpCapacity, QpInit, Rkey, SendOp, Sge, Transition, WrId,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request to the server; the client chooses the numbers of objects
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Request {
    /// The first request; its format never changes
    Hello {
        version: u32,
    },
    Open {
        device: u32,
    },
    Port {
        device: u32,
    },
    Gids {
        device: u32,
    },
    CreateCq {
        device: u32,
        cq: u32,
        depth: u32,
    },
    Register {
        device: u32,
        region: u32,
        len: u64,
        access: Access,
    },
    CreateQp {
        cq: u32,
        qp: u32,
        init: QpInit,
    },
    State {
        qp: u32,
    },
    Modify {
        qp: u32,
        to: Transition,
    },
    PostSend {
        post: Post,
        op: SendOp,
        signaled: bool,
    },
    PostRecv {
        post: Post,
        serial: u64,
    },
    Poll {
        cq: u32,
        at_most: u32,
    },
    Destroy {
        qp: u32,
    },
    Drop {
        object: u32,
    },
    /// The client needs the server no longer
    Finish,
}

/// What both kinds of posts have
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Post {
    pub(super) qp: u32,
    pub(super) id: WrId,
    pub(super) sgl: Vec<Sge>,
    pub(super) contents: Vec<Piece>,
}

/// Why a request was not carried out
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Refusal {
    /// The device refused the verb
    Verb(Error),
    /// The request is invalid, or the device violated the contract of the traits
    Invalid(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Verb(error)
    }
}

/// Both ends are built from the same commit, so that the version changes seldom
pub(super) const VERSION: u32 = 3;

/// The response to [`Request::Open`]
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) caps: Caps,
}

/// The response to [`Request::Register`]
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Registered {
    pub(super) base: u64,
    pub(super) lkey: Lkey,
    pub(super) rkey: Option<Rkey>,
}

/// The response to [`Request::CreateQp`]
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Created {
    pub(super) address: QpAddress,
    pub(super) capacity: QpCapacity,
}

/// Contents of a part of a region
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Piece {
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// The memory of a completed receive, one entry for each scatter-gather element
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Received {
    pub(super) serial: u64,
    pub(super) bytes: Vec<Vec<u8>>,
}

/// The response to [`Request::Poll`]
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Polled {
    pub(super) completions: Vec<Completion>,
    pub(super) received: Vec<Received>,
}

/// Two messages of the longest that Apple's device sends, and their headers
const MAX_FRAME: usize = (32 << 20) + 4096;

/// Writes a message with its length in front
pub(super) fn write(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    // The length is written in place once it is known.
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let len = frame.len() - 4;
    if len > MAX_FRAME {
        return Err(io::Error::other(format!("a message of {len} bytes exceeds the limit of {MAX_FRAME}")));
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    stream.write_all(&frame)
}

/// Reads a message with its length in front
pub(super) fn read<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_FRAME {
        return Err(invalid(format!("a message of {len} bytes exceeds the limit of {MAX_FRAME}")));
    }
    let mut frame = Vec::new();
    // Allocates for the bytes that arrive, not for the announced length.
    stream.take(len as u64).read_to_end(&mut frame)?;
    if frame.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match postcard::take_from_bytes(&frame) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(invalid(format!("a message has {} bytes too many", rest.len()))),
        Err(error) => Err(invalid(format!("a message cannot be decoded: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{Cause, Invalid, QpState, Status, Verb};

    use super::*;

    fn assert_survives<T: Serialize + DeserializeOwned + std::fmt::Debug>(message: &T) {
        let mut frame = Vec::new();
        write(&mut frame, message).unwrap();
        let found: T = read(&mut frame.as_slice()).unwrap();
        assert_eq!(format!("{found:?}"), format!("{message:?}"));
        for cut in 0..frame.len() {
            let error = read::<T>(&mut &frame[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{message:?} cut at {cut}");
        }
    }

    #[test]
    fn messages_survive_their_encoding() {
        let piece = Piece { region: 3, offset: 1 << 33, bytes: vec![1, 2] };
        assert_survives(&Request::Hello { version: VERSION });
        assert_survives(&Request::Register { device: 1, region: 2, len: 4096, access: Access::LOCAL_WRITE });
        let sgl = vec![Sge { addr: 1 << 40, len: 7, lkey: Lkey(9) }];
        let post = Post { qp: 4, id: WrId(u64::MAX), sgl, contents: vec![piece] };
        assert_survives(&Request::PostRecv { post, serial: 5 });
        let peer = QpAddress::default();
        assert_survives(&Request::Modify { qp: 4, to: Transition::ReadyToReceive { peer } });
        let completion = Completion { id: WrId(6), status: Status::Flushed, ..Completion::default() };
        let received = vec![Received { serial: 7, bytes: vec![vec![8], vec![]] }];
        assert_survives(&Ok::<_, Refusal>(Polled { completions: vec![completion], received }));
        assert_survives(&Opened { name: "rdma_en2".to_owned(), caps: Caps::roce() });
        for cause in [
            Cause::Os(-5),
            Cause::MessageTooLong { len: 1 << 40, max: 7 },
            Cause::Invalid(Invalid::Transition { from: QpState::Init, to: QpState::ReadyToSend }),
        ] {
            assert_survives(&Err::<(), _>(Refusal::Verb(Error::new(Verb::PostSend, cause))));
        }
    }

    #[test]
    fn malformed_and_oversized_frames_are_refused() {
        let refused = |frame: &[u8], why: &str| {
            let error = read::<Request>(&mut &*frame).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{frame:?}");
            assert!(error.to_string().contains(why), "{error}");
        };
        refused(&u32::MAX.to_le_bytes(), "exceeds the limit");
        refused(&[1, 0, 0, 0, 99], "cannot be decoded");
        let mut finish = Vec::new();
        write(&mut finish, &Request::Finish).unwrap();
        finish.push(0);
        finish[0] += 1;
        refused(&finish, "1 bytes too many");
        // A list of 2^32 elements in a frame of a few bytes.
        refused(&[8, 0, 0, 0, 9, 0, 0, 0, 255, 255, 255, 255], "cannot be decoded");
        let error = write(&mut io::sink(), &vec![0_u8; MAX_FRAME + 1]).unwrap_err();
        assert!(error.to_string().contains("exceeds the limit"), "{error}");
    }
}
