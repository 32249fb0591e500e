//! What the fuzzers have found interesting stays tested

use std::fs;

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
    replay("channel", rdma_tests::fuzz::channel);
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
