//! The protocol against a hostile peer

use std::time::Duration;

use rdma_core::protocol::{Incoming, Params, Protocol, ProtocolConfig, Token, Transmit};
use rdma_core::{FRAME, Time};

use super::transcript::{Transcript, log};

const PARAMS: Params = Params {
    announces: 4,
    max_message: 64 * FRAME as u32,
    peer_timeout: Duration::from_millis(80),
    window: 32,
};

#[derive(Debug)]
enum Step {
    /// A message of the peer with valid sequence number and trailer
    Message {
        kind: u8,
        payload: u8,
        credits: u32,
        grants: u32,
    },
    /// A message of arbitrary bytes
    Bytes(Vec<u8>),
    Enqueue {
        token: Token,
        len: usize,
    },
    Transmit {
        has_bulk_space: bool,
    },
    PostBulkReceive,
    /// A bulk message of the peer
    Bulk {
        len: u32,
    },
    Advance {
        by: Duration,
        finishes: bool,
    },
}

impl Step {
    /// Decodes a step from an opcode byte and its operands; missing operands are zero
    fn decode(bytes: &mut impl Iterator<Item = u8>) -> Option<Self> {
        let op = bytes.next()?;
        let mut next = || bytes.next().unwrap_or(0);
        Some(match op % 8 {
            0 | 1 => Self::Message {
                kind: next() % 7,
                payload: next(),
                credits: PARAMS.window.wrapping_add(u32::from(next())),
                grants: u32::from(next()),
            },
            2 => Self::Bytes((0..usize::from(next() % 64)).map(|_| next()).collect()),
            3 => Self::Enqueue { token: Token(u32::from(op)), len: usize::from(next()) << (next() % 12) },
            4 => Self::Transmit { has_bulk_space: op & 64 == 0 },
            5 => Self::PostBulkReceive,
            6 => Self::Bulk { len: u32::from(next()) << 8 | u32::from(next()) },
            _ => Self::Advance { by: Duration::from_micros(u64::from(next()) * 100), finishes: op & 64 != 0 },
        })
    }
}

/// Feeds the protocol with the messages of a hostile peer, while this side sends and receives
///
/// The protocol must never panic, and never send a message without a credit for it.
pub fn protocol(data: &[u8]) {
    let _transcript = Transcript::begin();
    let config = ProtocolConfig {
        bulk_receives: 16,
        bulk_send_frames: 64,
        eager_send_frames: 8,
        keep_alive_interval: Duration::from_millis(10),
        params: PARAMS,
        max_queued: 16,
    };
    let mut protocol = Protocol::new(config, PARAMS, Time::ZERO);
    let mut now = Time::ZERO;
    let mut bytes = data.iter().copied();
    let mut seq = 0_u32;
    let (mut sent, mut credited) = (0_u64, u64::from(PARAMS.window));
    let mut announced = 0_usize;
    // A violation of the peer ends the connection.
    while let Some(step) = Step::decode(&mut bytes) {
        log(&step);
        match step {
            Step::Message { kind, payload, credits, grants } => {
                let mut message = vec![payload; usize::from(payload)];
                for word in [seq, credits, grants, u32::from(kind)] {
                    message.extend(word.to_le_bytes());
                }
                let Ok(incoming) = protocol.on_eager(now, &message) else { return };
                seq += 1;
                credited = u64::from(credits);
                if !matches!(incoming, Incoming::Data { .. }) {
                    protocol.eager_receive_posted();
                }
                if let Incoming::Announced { .. } = incoming {
                    announced += 1;
                    assert!(announced <= PARAMS.announces as usize, "more announced messages than permitted");
                }
            }
            Step::Bytes(message) => {
                if protocol.on_eager(now, &message).is_err() {
                    return;
                }
                seq += 1;
            }
            Step::Enqueue { token, len } => {
                let _ = protocol.enqueue(token, len);
            }
            Step::Transmit { has_bulk_space } => {
                protocol.tick(now);
                while let Some(transmit) = protocol.poll_transmit(has_bulk_space) {
                    if !matches!(transmit, Transmit::Bulk { .. }) {
                        sent += 1;
                        assert!(sent <= credited, "a message without a credit");
                        protocol.eager_sent(now);
                    }
                }
            }
            Step::PostBulkReceive => {
                if protocol.next_bulk_receive().is_some() {
                    protocol.bulk_receive_posted();
                    announced -= 1;
                }
            }
            Step::Bulk { len } => {
                if protocol.on_bulk(now, len).is_err() {
                    return;
                }
            }
            Step::Advance { by, finishes } => {
                now += by;
                if finishes {
                    protocol.finish();
                }
                while protocol.poll_refused().is_some() {}
                if protocol.is_peer_lost(now) {
                    return;
                }
                let _ = protocol.is_closed();
            }
        }
    }
}
