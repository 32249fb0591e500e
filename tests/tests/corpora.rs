//! Replays the inputs that fuzzing has found interesting
//!
//! The corpora are archives, one for each target: `fuzz/corpora/TARGET.tar.gz`. Inputs in `fuzz/artifacts/TARGET`, where `cargo
//! fuzz` puts those that crash, are replayed too. A failure prints the name of the input and its steps.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use rdma_tests::fuzz;

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[expect(clippy::print_stderr, reason = "the name of the input is for the engineer who reads the failure")]
fn replay(target: &str, run: fn(&[u8])) {
    let fuzz = rdma_tests::files::root().join("fuzz");
    let folder = tempfile::tempdir().unwrap();
    let archive = fuzz.join(format!("corpora/{target}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
    assert!(unpacked.expect("tar is installed").success(), "{}", archive.display());
    let corpus = files(&folder.path().join(target));
    assert!(!corpus.is_empty(), "{} has no inputs", archive.display());
    for path in corpus.into_iter().chain(files(&fuzz.join("artifacts").join(target))) {
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

#[test]
fn the_link_messages_corpus_replays() {
    replay("link_messages", fuzz::link_messages);
}

#[test]
fn the_peering_corpus_replays() {
    replay("peering", fuzz::peering);
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
