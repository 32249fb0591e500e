//! Debian's `perftest`: what runs on the profile of a Mac, and what it refuses as a Mac would

use std::process::Stdio;
use std::time::Duration;

use rdma_sim_verbs::shared::Settings;
use rdma_tests::hosts::{Hosts, Running, library, lines_of};

use super::{between, held_port, hosts, outputs_of, text, topology, wait_for_listener};

/// perftest knows the link layers Ethernet and InfiniBand only.
const ETHERNET: [(&str, &str); 1] = [("RDMA_SIM_LINK_LAYER", "ethernet")];
/// On an unreliable connected queue pair, with the IPv4 entry of the GID table
const ON_A_PAIR: &str = "-d rdma_en2 -x 1 -c UC";

fn on(name: &str, profile: &str) -> Hosts {
    hosts(name, &Settings::new(topology(1)).profile(profile).unwrap())
}

/// Whether perftest has printed the result for a message size
fn has_result(printed: &str, size: u32) -> bool {
    printed.lines().any(|line| line.split_whitespace().next() == Some(&size.to_string()))
}

/// Catches a queue that holds less than the 1023 frames of a Mac: the last of these receives would be refused. perftest rounds an odd
/// number of receives up.
#[test]
fn perftest_streams_as_many_messages_as_a_ring_of_1023_frames_holds() {
    let mac = on("streams", "tb5");
    for (size, depth) in [(4096, 512), (65536, 62), (524_288, 6), (2_093_056, 2)] {
        let words = format!("ib_send_bw {ON_A_PAIR} -s {size} -r {depth} -t {depth} -n 200");
        let [_, client] = between(&mac, &words, &ETHERNET);
        assert!(has_result(&client, size), "{size}: {client}");
    }
}

/// Catches a queue that is counted in messages, or that grants more than a Mac: with its 512 receives, perftest gets to 4096 bytes. The 64th
/// receive of 64 KiB was the first that a Mac refused (hellas thunderbolt-ibverbs PR 35).
#[test]
fn perftest_is_refused_the_receive_that_a_mac_refuses() {
    let mac = on("refusals", "tb5");
    for (words, accepted, largest) in [("-a -n 1000", 511, Some(4096)), ("-s 65536 -n 1000", 63, None)] {
        let [server, client] = outputs_of(&mac, &format!("ib_send_bw {ON_A_PAIR} {words}"), &ETHERNET);
        let printed = text(&server);
        assert_eq!(server.status.code(), Some(1), "{printed}");
        // perftest counts from zero.
        assert!(
            printed.contains(&format!("Couldn't post recv Qp = 0: counter={accepted}\n")),
            "{words}: {printed}"
        );
        assert!(!client.status.success(), "the server is gone: {}", text(&client));
        for size in (1..=23).map(|bits| 1 << bits) {
            let is_measured = largest.is_some_and(|largest| size <= largest);
            assert_eq!(has_result(&text(&client), size), is_measured, "{words}, {size}: {}", text(&client));
        }
    }
}

/// Catches a fabric that cannot carry the messages beyond a Mac's queue where the profile has room for them.
#[test]
fn perftest_measures_all_sizes_on_the_lenient_profile() {
    let words = format!("ib_send_bw {ON_A_PAIR} -a -n 200");
    let [_, client] = between(&on("sizes", "tb5-lenient"), &words, &ETHERNET);
    for size in (1..=23).map(|bits| 1 << bits) {
        assert!(has_result(&client, size), "{size}: {client}");
    }
}

/// Catches a ping-pong of short messages that fails or never ends on the profile of a Mac.
#[test]
fn perftest_measures_latency() {
    for output in between(&on("latency", "tb5"), &format!("ib_send_lat {ON_A_PAIR} -s 64 -n 1000"), &ETHERNET)
    {
        assert!(output.contains("t_typical[usec]") && output.contains(" 64      1000"), "{output}");
    }
}

/// Catches a device that has more than a Mac: other transports, or an eleventh queue pair.
#[test]
fn perftest_gets_no_queue_pair_that_a_mac_does_not_have() {
    let mac = on("transports", "tb5");
    for words in
        ["ib_send_bw -c RC", "ib_send_bw -c UD", "ib_read_bw", "ib_atomic_bw", "ib_send_bw -c UC -q 11 -s 64"]
    {
        for output in outputs_of(&mac, &format!("{words} -d rdma_en2 -x 1 -n 200"), &ETHERNET) {
            let printed = text(&output);
            assert!(
                !output.status.success() && printed.contains("Failed to create QP"),
                "{words}: {printed}"
            );
        }
    }
}

/// Catches a program that fails because of a WRITE and is not told which rule of the device is the reason.
#[test]
fn an_rdma_write_that_is_refused_is_reported_once_with_its_rule() {
    // The IPv4 entry stands at index 2 there.
    let words = "ib_write_bw -d rdma_en2 -x 2 -c UC -m 1024 -s 4096 -n 200";
    let [_, client] = outputs_of(&on("refused-write", "tb5-strict"), words, &ETHERNET);
    let printed = text(&client);
    assert!(printed.contains("Couldn't post send: qp 0 scnt=0"), "{printed}");
    let lines = printed.lines().filter(|line| line.starts_with("librdma: "));
    let line = "librdma: ibv_post_send: an RDMA WRITE is refused (rule uc-write); post a SEND instead";
    assert_eq!(lines.collect::<Vec<_>>(), [line]);
}

/// Catches a program that waits for ever because of a WRITE, and is not told which rule of the device is the reason.
#[test]
fn an_rdma_write_that_travels_like_a_send_is_reported_with_its_rule() {
    let hosts = on("sent-write", "tb5");
    let (port, _held) = held_port();
    let words = format!("{ON_A_PAIR} -m 1024 -s 4096 -n 200 -p {port}");
    // These programs never end: no `timeout` stands between them and the test, which kills them.
    let start = |host, peer: &[&str]| {
        let mut program = hosts.command("ib_write_bw", host);
        program.args(words.split_whitespace()).args(peer).envs(ETHERNET).env("LD_PRELOAD", library());
        Running(program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let mut server = start("a", &[]);
    wait_for_listener(port, &mut server.0);
    let mut client = start("b", &["localhost"]);
    let lines = lines_of(client.0.stderr.take().unwrap());
    let line = loop {
        let line = lines.recv_timeout(Duration::from_secs(60)).expect("the rule is named within a minute");
        if line.starts_with("librdma: ") {
            break line;
        }
    };
    let warning = "librdma: ibv_post_send: an RDMA WRITE travels like a SEND and places nothing at the peer (rule \
                   uc-write); post a SEND instead";
    assert_eq!(line, warning);
}

/// Catches a warning on devices that do place an RDMA WRITE.
#[test]
fn an_rdma_write_is_measured_on_the_roce_profile() {
    let words = format!("ib_write_bw {ON_A_PAIR} -m 1024 -s 4096 -n 200");
    let [server, client] = between(&on("placed-write", "roce"), &words, &ETHERNET);
    assert!(has_result(&client, 4096) && !(server + &client).contains("librdma: "), "{client}");
}
