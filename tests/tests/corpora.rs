//! What the fuzzers have found interesting stays tested

use std::fs;
use std::process::Command;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed") {
        run(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "{folder} is empty");
}

#[test]
fn the_channel_corpus_replays() {
    replay("protocol", rdma_tests::fuzz::protocol);
}

#[test]
fn the_verbs_corpus_replays() {
    replay("verbs", rdma_tests::fuzz::verbs);
}

#[test]
fn the_discover_corpus_replays() {
    replay("discover", rdma_tests::fuzz::discover);
}

#[test]
fn the_greeting_corpus_replays() {
    replay("greeting", rdma_tests::fuzz::greeting);
}

/// On devices of both kinds, each in a process of its own: there is one simulation in each.
#[test]
fn the_abi_corpus_replays() {
    replay("abi", rdma_tests::fuzz::abi);
    if std::env::var_os("RDMA_SIM_PROFILE").is_none() {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "the_abi_corpus_replays"]).env("RDMA_SIM_PROFILE", "roce");
        let output = other.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_hear_corpus_replays() {
    replay("hear", rdma_tests::fuzz::hear);
}
