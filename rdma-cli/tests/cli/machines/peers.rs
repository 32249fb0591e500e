//! The peers that `tb5 serve` serves at once

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::Listener;
use crate::support::{Running, assert_code, assert_failed, eventually, tool};

/// Catches a fifth peer that waits until it fails for another reason, and a place that a peer keeps after its end.
#[test]
fn a_fifth_peer_is_refused_until_another_one_ends() {
    let mut server = Listener::serve(&[]);
    let port = server.port.to_string();
    let pings = [(); 4].map(|()| {
        let mut command = tool();
        command.args(["ping", "127.0.0.1:", "--count", "10000000", "--port", &port]);
        Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    });
    let mut lines = BufReader::new(server.running.stdout.take().unwrap()).lines().map(Result::unwrap);
    for _ in &pings {
        assert!(lines.any(|line| line.ends_with("measures: ping")), "the server has ended");
    }
    let refused = server.ask("ping", &["--count", "1"]);
    assert_failed(&refused, 1, &["127.0.0.1: the other side serves 4 others already: try again later"]);
    let [first, others @ ..] = pings;
    first.signal(libc::SIGINT);
    assert_code(&first.finish(), 130);
    // The server ends the session after the peer has ended.
    eventually(|| server.ask("ping", &["--count", "1"]).status.success());
    drop(others);
    server.running.signal(libc::SIGINT);
    let served = server.running.finish();
    assert_failed(&served, 0, &["4 other peers are served already"]);
}
