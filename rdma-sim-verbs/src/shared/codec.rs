//! Messages as records of a ring

use rdma_core::{QpType, Qpn, Rkey, SendOp, Status, Time};
use rdma_sim::remote::{LinkMessage, QpName};

use super::ring::WORDS;

/// The incarnations of the sending and the receiving process
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

const READY: u8 = 1;
const CLOSED: u8 = 2;
const RECEIVE_POSTED: u8 = 3;
const DATA: u8 = 4;
const FILLED: u8 = 5;
const REQUEST: u8 = 6;
const RESPONSE: u8 = 7;

const WRITE: u8 = 1;
const READ: u8 = 2;
const FETCH_ADD: u8 = 3;
const COMPARE_SWAP: u8 = 4;

/// The words of a record: stamp; kind, detail and number of bytes; queue pair; the other end; three more
fn words(
    stamp: Stamp,
    kind: u8,
    detail: u32,
    bytes: usize,
    name: QpName,
    other: u64,
    rest: [u64; 3],
) -> [u64; WORDS] {
    let [a, b, c] = rest;
    [
        u64::from(stamp.from) << 32 | u64::from(stamp.to),
        u64::from(kind) << 56 | u64::from(detail & 0xff_ffff) << 32 | bytes as u64,
        u64::from(name.device) << 32 | u64::from(name.qpn.0),
        other,
        a,
        b,
        c,
    ]
}

/// The record of a message: its words, and its bytes
pub(crate) fn encode<'a>(stamp: Stamp, message: &LinkMessage<'a>) -> ([u64; WORDS], &'a [u8]) {
    match *message {
        LinkMessage::Ready { qp, peer, qp_type, at } => {
            let detail = u32::from(qp_type == QpType::Rc);
            (words(stamp, READY, detail, 0, qp, peer.0.into(), [0, at.as_nanos(), 0]), &[])
        }
        LinkMessage::Closed { qp } => (words(stamp, CLOSED, 0, 0, qp, 0, [0; 3]), &[]),
        LinkMessage::ReceivePosted { qp, len, at } => {
            (words(stamp, RECEIVE_POSTED, 0, 0, qp, 0, [len.into(), at.as_nanos(), 0]), &[])
        }
        LinkMessage::Data { to, from, bytes } => {
            (words(stamp, DATA, 0, bytes.len(), to, from.0.into(), [0; 3]), bytes)
        }
        LinkMessage::Filled { to, from, len, status, at } => {
            let rest = [len.into(), at.as_nanos(), 0];
            (words(stamp, FILLED, status.code(), 0, to, from.0.into(), rest), &[])
        }
        LinkMessage::Request { to, from, op, len, bytes } => {
            let (kind, addr, rkey, [b, c]) = match op {
                SendOp::Write { remote_addr, rkey } => (WRITE, remote_addr, rkey, [0; 2]),
                // The length of a read has the word of an operand.
                SendOp::Read { remote_addr, rkey } => (READ, remote_addr, rkey, [len.into(), 0]),
                SendOp::FetchAdd { remote_addr, rkey, add } => (FETCH_ADD, remote_addr, rkey, [add, 0]),
                SendOp::CompareSwap { remote_addr, rkey, compare, swap } => {
                    (COMPARE_SWAP, remote_addr, rkey, [compare, swap])
                }
                _ => (0, 0, Rkey(0), [0; 2]),
            };
            // The number of the other end takes half of its word.
            let other = u64::from(rkey.0) << 32 | u64::from(from.0);
            (words(stamp, REQUEST, kind.into(), bytes.len(), to, other, [addr, b, c]), bytes)
        }
        LinkMessage::Response { to, from, is_ok, bytes } => {
            (words(stamp, RESPONSE, is_ok.into(), bytes.len(), to, from.0.into(), [0; 3]), bytes)
        }
    }
}

/// The incarnations that a record is from and for
pub(crate) fn stamp(words: &[u64; WORDS]) -> Stamp {
    Stamp { from: (words[0] >> 32) as u32, to: words[0] as u32 }
}

/// The message of a record; `None` if it is invalid
pub(crate) fn decode<'a>(words: &[u64; WORDS], bytes: &'a [u8]) -> Option<LinkMessage<'a>> {
    let [_, what, name, other, a, b, c] = *words;
    let (kind, detail) = ((what >> 56) as u8, (what >> 32) as u32 & 0xff_ffff);
    let bytes = bytes.get(..what as u32 as usize)?;
    let name = QpName { device: (name >> 32) as u32, qpn: Qpn(name as u32) };
    let from = Qpn(other as u32);
    Some(match kind {
        READY => LinkMessage::Ready {
            qp: name,
            peer: from,
            qp_type: if detail == 1 { QpType::Rc } else { QpType::Uc },
            at: Time::from_nanos(b),
        },
        CLOSED => LinkMessage::Closed { qp: name },
        RECEIVE_POSTED => LinkMessage::ReceivePosted { qp: name, len: a as u32, at: Time::from_nanos(b) },
        DATA => LinkMessage::Data { to: name, from, bytes },
        FILLED => {
            let status = Status::from_code(detail);
            LinkMessage::Filled { to: name, from, len: a as u32, status, at: Time::from_nanos(b) }
        }
        REQUEST => {
            let (remote_addr, rkey) = (a, Rkey((other >> 32) as u32));
            let (op, len) = match u8::try_from(detail).ok()? {
                WRITE => (SendOp::Write { remote_addr, rkey }, bytes.len() as u32),
                READ => (SendOp::Read { remote_addr, rkey }, b as u32),
                FETCH_ADD => (SendOp::FetchAdd { remote_addr, rkey, add: b }, 8),
                COMPARE_SWAP => (SendOp::CompareSwap { remote_addr, rkey, compare: b, swap: c }, 8),
                _ => return None,
            };
            LinkMessage::Request { to: name, from, op, len, bytes }
        }
        RESPONSE => LinkMessage::Response { to: name, from, is_ok: detail == 1, bytes },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rdma_sim::{Choices as _, Seeded};

    use super::*;

    /// Catches a word that is used without a check: a process of another kind may have written any.
    #[test]
    fn any_words_and_bytes_are_a_message_or_none() {
        let mut random = Seeded::new(5);
        let bytes = [7; 64];
        for _ in 0..100_000 {
            let mut word = || u64::from(random.pick(u32::MAX)) << 32 | u64::from(random.pick(100));
            let mut words: [u64; WORDS] = std::array::from_fn(|_| word());
            words[1] = words[1] & 0xff_ffff_ffff | (word() % 9) << 56;
            if let Some(message) = decode(&words, &bytes) {
                let (encoded, bytes) = encode(stamp(&words), &message);
                let again = decode(&encoded, bytes).map(|again| format!("{again:?}"));
                assert_eq!(again, Some(format!("{message:?}")));
            }
        }
    }
}
