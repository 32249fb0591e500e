//! Questions to the far end, and what its answers hold

use rdma_core::{
    Access, Caps, Completion, Lkey, QpAddress, QpCapacity, QpInit, Rkey, SendOp, Sge, Transition, WrId,
};

use super::wire::{Bytes, Input, Malformed, Wire};

macro_rules! questions {
    ($($tag:literal $variant:ident { $($field:ident: $type:ty),* } ;)+) => {
        /// What is asked of the far end; objects have the numbers that this end gives them
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub(super) enum Question {
            $($variant { $($field: $type),* }),+
        }

        impl Wire for Question {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($tag);
                        $($field.put(out);)*
                    })+
                }
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(match u8::get(input)? {
                    $($tag => Self::$variant { $($field: Wire::get(input)?),* },)+
                    _ => return Err(Malformed("question")),
                })
            }
        }
    };
}

questions! {
    0 Hello { version: u32 };
    1 Open { device: u32 };
    2 Port { device: u32 };
    3 Gids { device: u32 };
    4 CreateCq { device: u32, cq: u32, depth: u32 };
    5 Register { device: u32, region: u32, len: u64, access: Access };
    6 CreateQp { cq: u32, qp: u32, init: QpInit };
    7 State { qp: u32 };
    8 Modify { qp: u32, to: Transition };
    9 PostSend { qp: u32, id: WrId, op: SendOp, signaled: bool, sgl: Vec<Sge>, bytes: Vec<Piece> };
    10 PostRecv { qp: u32, serial: u64, id: WrId, sgl: Vec<Sge>, bytes: Vec<Piece> };
    11 Poll { cq: u32, at_most: u32 };
    12 Destroy { qp: u32 };
    13 Drop { object: u32 };
    14 Bye {};
}

/// What a device is called, and can do
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) caps: Caps,
}

/// A region of the far device
pub(super) struct Registered {
    pub(super) base: u64,
    pub(super) lkey: Lkey,
    pub(super) rkey: Option<Rkey>,
}

/// A queue pair of the far device
pub(super) struct Created {
    pub(super) address: QpAddress,
    pub(super) capacity: QpCapacity,
}

/// Part of a region that a request names
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

/// What has arrived for a receive, over all of its memory
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Arrived {
    pub(super) serial: u64,
    pub(super) bytes: Vec<Bytes>,
}

/// What a poll has found
pub(super) struct Polled {
    pub(super) completions: Vec<Completion>,
    pub(super) arrived: Vec<Arrived>,
}

macro_rules! answers {
    ($($type:ident { $($field:ident),+ })+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Wire::get(input)?),+ })
            }
        }
    )+};
}
answers! {
    Opened { name, caps }
    Registered { base, lkey, rkey }
    Created { address, capacity }
    Piece { region, offset, bytes }
    Arrived { serial, bytes }
    Polled { completions, arrived }
}

/// Both ends are of the same checkout, or nothing is asked
pub(super) const VERSION: u32 = 1;

/// How an answer begins
pub(super) mod outcome {
    /// What was asked for
    pub(crate) const DONE: u8 = 0;
    /// An error of the verbs
    pub(crate) const REFUSED: u8 = 1;
    /// A text: the question makes no sense, or the device did something that it must not
    pub(crate) const WRONG: u8 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_survive_their_encoding_and_nonsense_is_none() {
        let piece = Piece { region: 3, offset: 1 << 33, bytes: Bytes(vec![1, 2]) };
        for question in [
            Question::Hello { version: VERSION },
            Question::Register { device: 1, region: 2, len: 4096, access: Access::LOCAL_WRITE },
            Question::PostRecv {
                qp: 4,
                serial: 5,
                id: WrId(6),
                sgl: vec![Sge::default()],
                bytes: vec![piece],
            },
            Question::Bye {},
        ] {
            let mut bytes = Vec::new();
            question.put(&mut bytes);
            assert_eq!(Question::parse(&bytes), Ok(question));
        }
        assert_eq!(Question::parse(&[99]), Err(Malformed("question")));
        assert!(Question::parse(&[]).is_err());
    }
}
