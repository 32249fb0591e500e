//! The peers that `tb5 serve` serves at once

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;

use super::Listener;
use crate::support::{Folder, Running, assert_code, assert_failed, eventually, tool};

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

/// Catches threads that each connection starts and that stay for seconds, until the system has no more of them and the server ends.
#[cfg(target_os = "linux")]
#[test]
fn connections_that_come_to_nothing_leave_no_threads() {
    let server = Listener::serve(&["--carrier", "tcp"]);
    for _ in 0..20 {
        for _ in 0..10 {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap());
        }
        // It has come to those before.
        assert_code(&server.ask("ping", &["--count", "1"]), 0);
    }
    let threads = fs::read_dir(format!("/proc/{}/task", server.running.id())).unwrap().count();
    // Sixteen connections at once may become sessions.
    assert!(threads < 50, "{threads} threads after 200 connections");
}

/// Catches a server that compares what a copy has already without a look at its other peers.
#[cfg(target_os = "linux")]
#[test]
fn a_server_answers_while_it_compares_files() {
    let (folder, root) = (Folder::new(), Folder::new());
    for file in [folder.directory("dir").join("file"), root.directory("dir").join("file")] {
        // Without blocks, and longer than can be read before a peer gives up.
        File::create(file).unwrap().set_len(256 << 30).unwrap();
    }
    let server = Listener::serve(&["--into", root.path("").to_str().unwrap()]);
    let mut copy = tool();
    copy.args(server.send(&["-r"])).arg(folder.path("dir")).arg("127.0.0.1:dir");
    let copy = Running::start(copy.stdout(Stdio::null()).stderr(Stdio::null()));
    let descriptors = format!("/proc/{}/fd", server.running.id());
    eventually(|| {
        let mut open = fs::read_dir(&descriptors).unwrap().flatten();
        open.any(|file| fs::read_link(file.path()).is_ok_and(|path| path == root.path("dir/file")))
    });
    assert_code(&server.ask("ping", &["--count", "3"]), 0);
    copy.signal(libc::SIGINT);
    assert_code(&copy.finish(), 130);
    server.running.signal(libc::SIGINT);
    assert_code(&server.running.finish(), 0);
}
