//! Replays the inputs that fuzzing has found interesting
//!
//! The corpora are archives, one for each target: `fuzz/corpora/TARGET.tar.gz`. Inputs in `fuzz/artifacts/TARGET`, where `cargo
//! fuzz` puts those that crash, are replayed too. A failure prints the name of the input and its steps.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, mem};

use rdma_core::session::{BulkTrailer, ControlMessage, Hello, Integrity, PacketKind, PacketTrailer};
use rdma_tests::fuzz;
use tempfile::TempDir;

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The inputs of a target, in a folder that is removed with the first field
fn unpack(target: &str) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let archive = rdma_tests::files::root().join(format!("fuzz/corpora/{target}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
    assert!(unpacked.expect("tar is installed").success(), "{}", archive.display());
    let corpus = files(&folder.path().join(target));
    assert!(!corpus.is_empty(), "{} has no inputs", archive.display());
    (folder, corpus)
}

#[expect(clippy::print_stderr, reason = "the name of the input is for the engineer who reads the failure")]
fn replay(target: &str, run: fn(&[u8])) {
    let (_folder, corpus) = unpack(target);
    let artifacts = rdma_tests::files::root().join("fuzz/artifacts").join(target);
    for path in corpus.into_iter().chain(files(&artifacts)) {
        let input = fs::read(&path).unwrap();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&input))) {
            eprintln!("the input {} of target {target} fails: {input:?}", path.display());
            resume_unwind(panic);
        }
    }
}

#[test]
fn the_discover_corpus_replays() {
    replay("discover", fuzz::discover);
}

#[test]
fn the_greeting_corpus_replays() {
    replay("greeting", fuzz::greeting);
}

/// Regression: all inputs were of earlier versions, so that fuzzing began with what the first check refuses. Catches a version that
/// changes and a corpus that stays, and a message of the handshake or a kind of packet without an input.
#[test]
fn the_greeting_corpus_reaches_every_decoder() {
    let (_folder, corpus) = unpack("greeting");
    let inputs = corpus.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    let hellos = inputs.iter().filter_map(|input| Hello::from_bytes(input.first_chunk()?).ok());
    assert!(hellos.count() >= 3, "hellos of version {}", Hello::VERSION);
    let messages = inputs.iter().filter_map(|input| ControlMessage::from_bytes(input.first_chunk()?).ok());
    let messages = messages.map(|message| mem::discriminant(&message)).collect::<HashSet<_>>();
    assert_eq!(messages.len(), 6, "control messages");
    let packets = inputs.iter().filter_map(|input| PacketTrailer::split(input, Integrity::Unchecked).ok());
    let kinds = packets.map(|(_, trailer)| trailer.kind).collect::<HashSet<_>>();
    let missing = PacketKind::ALL.iter().filter(|kind| !kinds.contains(kind)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "{missing:?}");
    let is_bulk = |input: &Vec<u8>| BulkTrailer::from_bytes(input, &[], Integrity::Unchecked).is_ok();
    assert!(inputs.iter().any(is_bulk));
}

#[test]
fn the_link_messages_corpus_replays() {
    replay("link_messages", fuzz::link_messages);
}

#[test]
fn the_peering_corpus_replays() {
    replay("peering", fuzz::peering);
}

/// Catches a session that loses or repeats a message under the faults of an input.
#[test]
fn the_sessions_corpus_replays() {
    replay("sessions", fuzz::sessions);
}

#[test]
fn the_verbs_corpus_replays() {
    replay("verbs", fuzz::verbs);
}

/// On both kinds of devices. A process has one simulation, so that the second kind runs in a process of its own.
#[test]
fn the_abi_corpus_replays() {
    replay("abi", fuzz::abi);
    if std::env::var_os("RDMA_SIM_PROFILE").is_none() {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "the_abi_corpus_replays"]).env("RDMA_SIM_PROFILE", "roce");
        let output = other.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
