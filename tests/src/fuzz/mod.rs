//! The bodies of the fuzz targets, which `cargo test` runs with the corpora
//!
//! Each body decodes its bytes into steps. When a run panics, the steps are printed.

mod abi;
mod input;
mod link_messages;
mod peering;
mod sessions;
mod transcript;

use rdma_core::session::{BulkTrailer, ControlMessage, Hello, Integrity, PacketTrailer};
use rdma_doctor::discover::{Outputs, Tool};
use rdma_doctor::parse::{self, MAX_ITEMS};
use rdma_doctor::{Host, HostReport, diagnose};
use rdma_sim::Bytes;

pub use self::abi::abi;
pub use self::link_messages::link_messages;
pub use self::peering::peering;
pub use self::sessions::sessions;
use self::transcript::{Transcript, log};
use crate::oracle::Program;

/// Runs a verbs program with faults, both generated from the bytes, and checks it against the oracle
pub fn verbs(data: &[u8]) {
    let _transcript = Transcript::begin();
    let program = Program::generate(&mut Bytes::new(data));
    log(&program);
    let outcome = program.run(0);
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
}

/// Decodes the messages of the handshake and the trailers of packets from any bytes; what was decoded must survive an encoding
pub fn greeting(data: &[u8]) {
    let _transcript = Transcript::begin();
    log(&data);
    if let Some(bytes) = data.first_chunk::<{ Hello::LEN }>()
        && let Ok(hello) = Hello::from_bytes(bytes)
    {
        log(&hello);
        // Any number but zero asks for checksums.
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
    }
    if let Some(bytes) = data.first_chunk::<{ ControlMessage::LEN }>()
        && let Ok(message) = ControlMessage::from_bytes(bytes)
    {
        log(&message);
        assert_eq!(ControlMessage::from_bytes(&message.to_bytes()), Ok(message));
    }
    if let Ok((payload, trailer)) = PacketTrailer::split(data, Integrity::Unchecked) {
        log(&trailer);
        assert_eq!(trailer.to_bytes(payload, Integrity::Unchecked), data[payload.len()..]);
    }
    if let Ok(trailer) = BulkTrailer::from_bytes(data, &[], Integrity::Unchecked) {
        log(&trailer);
        assert_eq!(trailer.to_bytes(&[], Integrity::Unchecked), data);
    }
}

/// Parses any bytes as the outputs of tools and as a recorded report, and diagnoses both
///
/// Zero bytes separate the outputs, in the order of [`Tool::ALL`]; the last output is used for all missing ones. No parser and no
/// check may panic, no list may exceed its bound, and a report must survive serialization.
pub fn discover(data: &[u8]) {
    let _transcript = Transcript::begin();
    let text = String::from_utf8_lossy(data);
    log(&text);
    let lists = [
        parse::system_profiler(&text).map_or(0, |buses| buses.len()),
        parse::services(&text).len(),
        parse::networksetup(&text).len(),
        parse::ifconfig(&text).len(),
        parse::ibv_devices(&text).len(),
        parse::ibv_devinfo(&text).len(),
        parse::arp(&text).len(),
        parse::ndp(&text).len(),
        parse::ps(&text).len(),
        parse::port_owners(&text).len(),
        parse::network_settings(&text).map_or(0, |settings| settings.services.len()),
    ];
    assert!(lists.into_iter().all(|len| len <= MAX_ITEMS));
    let incident = parse::incident(&text);

    let mut parts = text.split('\0');
    let mut part = "";
    let mut outputs = Outputs::default();
    for tool in Tool::ALL {
        part = parts.next().unwrap_or(part);
        outputs = outputs.with(tool, part);
    }
    outputs.incidents = Some(incident.into_iter().collect());
    let report = outputs.report();
    let json = serde_json::to_string(&report).expect("a report can be written");
    let back: HostReport = serde_json::from_str(&json).expect("a written report can be read");
    assert_eq!(back, report);

    let mut hosts = vec![Host::new("a", report)];
    if let Ok(recorded) = serde_json::from_slice(data) {
        hosts.push(Host::new("b", recorded));
    }
    let diagnosis = diagnose(&hosts);
    assert!(diagnosis.findings.iter().all(|finding| !finding.evidence.trim().is_empty()));
}
