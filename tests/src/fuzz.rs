//! What the fuzz targets do with their bytes, so that the corpora can be replayed by `cargo test` too

mod abi;
mod hear;

use std::time::Duration;

use rdma_core::protocol::{Hello, Incoming, Params, Protocol, ProtocolConfig, Token, Trailer};
use rdma_core::{FRAME, Time};
use rdma_doctor::discover::{Outputs, Tool};
use rdma_doctor::parse::{self, MAX_ITEMS};
use rdma_doctor::{Host, HostReport, diagnose};
use rdma_sim::Bytes;

pub use self::abi::abi;
pub use self::hear::hear;
use crate::oracle::Program;

/// Feeds the protocol with the messages of a hostile peer, while this side sends and receives
///
/// Each step is an opcode byte and what it needs. The protocol must never panic, and never post more than it has credits for.
pub fn protocol(data: &[u8]) {
    let params = Params { announces: 4, max_message: 64 * FRAME as u32, window: 32 };
    let config = ProtocolConfig {
        bulk_receives: 16,
        bulk_send_frames: 64,
        eager_send_frames: 8,
        keep_alive_interval: Duration::from_millis(10),
        params,
        max_queued: 16,
        peer_timeout: Duration::from_millis(80),
    };
    let mut protocol = Protocol::new(config, params, Time::ZERO);
    let mut now = Time::ZERO;
    let mut bytes = data.iter().copied();
    let mut seq = 0_u32;
    let mut sent = 0_u64;
    let mut credited = u64::from(params.window);
    let mut wanted = 0_usize;
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            // A well-formed message, from the fields up.
            0 | 1 => {
                let kind = next() % 7;
                let payload = next();
                let credits = params.window.wrapping_add(u32::from(next()));
                let grants = u32::from(next());
                let mut message = vec![0; usize::from(payload)];
                message.fill(payload);
                message.extend(seq.to_le_bytes());
                message.extend(credits.to_le_bytes());
                message.extend(grants.to_le_bytes());
                message.extend([kind, 0, 0, 0]);
                match protocol.on_eager(now, &message) {
                    Ok(incoming) => {
                        seq += 1;
                        credited = u64::from(credits);
                        if !matches!(incoming, Incoming::Data { .. }) {
                            protocol.eager_receive_posted();
                        }
                        if let Incoming::Announced { .. } = incoming {
                            wanted += 1;
                            assert!(wanted <= params.announces as usize, "more is remembered than may wait");
                        }
                    }
                    Err(_) => return,
                }
            }
            // Whatever bytes come.
            2 => {
                let message: Vec<u8> = (0..usize::from(next() % 64)).map(|_| next()).collect();
                if protocol.on_eager(now, &message).is_err() {
                    return;
                }
                seq += 1;
            }
            3 => {
                let len = usize::from(next()) << (next() % 12);
                let _ = protocol.enqueue(Token(u32::from(op)), len);
            }
            4 => {
                protocol.tick(now);
                while let Some(transmit) = protocol.poll_transmit(op & 64 == 0) {
                    if !matches!(transmit, rdma_core::protocol::Transmit::Bulk { .. }) {
                        sent += 1;
                        assert!(sent <= credited, "a message without a receive");
                        protocol.eager_sent(now);
                    }
                }
            }
            5 => {
                if protocol.next_bulk_receive().is_some() {
                    protocol.bulk_receive_posted();
                    wanted -= 1;
                }
            }
            6 => {
                if protocol.on_bulk(now, u32::from(next()) << 8 | u32::from(next())).is_err() {
                    return;
                }
            }
            _ => {
                now += Duration::from_micros(u64::from(next()) * 100);
                if op & 64 != 0 {
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

/// Runs a verbs program and its faults, which the bytes make up, and asks the oracle
pub fn verbs(data: &[u8]) {
    let program = Program::generate(&mut Bytes::new(data));
    let outcome = program.run(0);
    assert!(outcome.violations.is_empty(), "{:?}\n{program:?}", outcome.violations);
}

/// Reads a greeting and a trailer from any bytes; what is read must encode to the same
pub fn greeting(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<{ Hello::LEN }>()
        && let Ok(hello) = Hello::from_bytes(bytes)
    {
        assert_eq!(hello.to_bytes(), *bytes);
    }
    if let Ok((payload, trailer)) = Trailer::split(data) {
        assert_eq!(trailer.to_bytes(), data[payload.len()..]);
    }
}

/// Reads any bytes as the outputs of tools, and as a recorded report; diagnoses what comes of it
///
/// Zero bytes part the outputs, in the order of [`Tool::ALL`]; the last one stands for all that are missing. No parser and no
/// check may panic, no list may grow beyond its bound, and a report must survive being written.
pub fn discover(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lists = [
        parse::system_profiler(&text).map_or(0, |buses| buses.len()),
        parse::services(&text).len(),
        parse::networksetup(&text).len(),
        parse::ifconfig(&text).len(),
        parse::ibv_devices(&text).len(),
        parse::ibv_devinfo(&text).len(),
    ];
    assert!(lists.into_iter().all(|len| len <= MAX_ITEMS));

    let mut parts = text.split('\0');
    let mut part = "";
    let mut outputs = Outputs::default();
    for tool in Tool::ALL {
        part = parts.next().unwrap_or(part);
        outputs = outputs.with(tool, part);
    }
    let report = outputs.report();
    let json = serde_json::to_string(&report).expect("a report can be written");
    let back: HostReport = serde_json::from_str(&json).expect("what was written can be read");
    assert_eq!(back, report);

    let mut hosts = vec![Host::new("a", report)];
    if let Ok(recorded) = serde_json::from_slice(data) {
        hosts.push(Host::new("b", recorded));
    }
    let diagnosis = diagnose(&hosts);
    assert!(diagnosis.findings.iter().all(|finding| !finding.evidence.trim().is_empty()));
}
