//! Several processes of one host: what they share, and what each has for itself
//!
//! Mutants that these tests were seen to catch: MUTANTS

use std::time::Duration;

use rdma_sim::Topology;
use rdma_sim_verbs::shared::{Settings, SharedFabric};
use rdma_tests::hosts::{Hosts, Peer};

const PEER: &str = env!("CARGO_BIN_EXE_peer");
const DEVICE: &str = "rdma_en2";

fn pair(name: &str) -> Hosts {
    Hosts::new(name, &Settings::new(Topology::pair()), PEER)
}

/// Connects both; each sends to the other for ever
fn talking(hosts: &Hosts, [one, other]: [&mut Peer; 2]) -> [usize; 2] {
    let links = hosts.connect([one, other], [DEVICE; 2], 255, 1 << 20);
    one.ask(&format!("talk {}", links[0]));
    other.ask(&format!("talk {}", links[1]));
    links
}

fn count(peer: &mut Peer, link: usize) -> u64 {
    peer.ask(&format!("count {link}")).parse().unwrap()
}

/// Waits until `peer` has received so many messages more than by now
fn goes_on(peer: &mut Peer, link: usize, more: u64) {
    let wanted = count(peer, link) + more;
    for _ in 0..6_000 {
        if count(peer, link) >= wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{more} messages did not come within half a minute");
}

/// How many queue pairs of the device a process can create
fn fill(peer: &mut Peer) -> u32 {
    peer.ask(&format!("fill {DEVICE}")).parse().unwrap()
}

/// Catches numbers of queue pairs that two processes have, messages that go to another process of the host than the one with the
/// queue pair, and counters that one process overwrites for another.
#[test]
fn two_processes_of_a_host_talk_to_two_of_another_over_one_cable() {
    let hosts = pair("two-by-two");
    let [mut a0, mut a1, mut b0, mut b1] = ["a", "a", "b", "b"].map(|host| hosts.start(host));
    let pairs = [
        talking(&hosts, [&mut a0, &mut b0]),
        talking(&hosts, [&mut a1, &mut b1]),
        talking(&hosts, [&mut a0, &mut b1]),
        talking(&hosts, [&mut a1, &mut b0]),
    ];
    let [[a0_b0, b0_a0], [a1_b1, b1_a1], [a0_b1, b1_a0], [a1_b0, b0_a1]] = pairs;
    for (peer, links) in [
        (&mut a0, [a0_b0, a0_b1]),
        (&mut a1, [a1_b1, a1_b0]),
        (&mut b0, [b0_a0, b0_a1]),
        (&mut b1, [b1_a1, b1_a0]),
    ] {
        links.into_iter().for_each(|link| goes_on(peer, link, 200));
    }
    let mut pids = hosts.fabric.processes_of(0);
    pids.sort_unstable();
    let mut expected = [a0.pid(), a1.pid()];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    // All that both have received is counted before it arrives.
    let received: u64 = [(&mut b0, [b0_a0, b0_a1]), (&mut b1, [b1_a1, b1_a0])]
        .into_iter()
        .map(|(peer, links)| links.map(|link| count(peer, link)).iter().sum::<u64>())
        .sum();
    let sent = hosts.fabric.sent()[0].messages;
    assert!(sent >= received, "{sent} were sent, and {received} received");
    assert!([a0, a1, b0, b1].into_iter().all(Peer::end));
    assert!(hosts.fabric.sent()[0].messages >= sent);
}

/// Catches limits that each process has for itself, objects of a killed process that count for ever, and those of a process that
/// lives and are forgotten.
#[test]
fn the_limits_of_a_device_hold_for_all_processes_of_its_host_together() {
    let hosts = pair("limits");
    let [mut first, mut second, mut b] = ["a", "a", "b"].map(|host| hosts.start(host));
    assert_eq!(fill(&mut first), 10);
    assert_eq!(fill(&mut second), 0);
    assert_eq!(fill(&mut b), 10, "another host has a limit of its own");
    for link in [0, 4, 7] {
        first.ask(&format!("drop {link}"));
    }
    assert_eq!(fill(&mut second), 3);
    assert_eq!(fill(&mut first), 0);
    first.kill();
    assert_eq!(fill(&mut second), 7);
    let mut third = hosts.start("a");
    assert_eq!(fill(&mut third), 0);
    assert!(second.end());
    assert_eq!(fill(&mut third), 10);
    assert!(third.end() && b.end());
}

/// Catches a process that takes the queue pairs of another with it when it ends, and receives of a killed process that its successor
/// seems to have.
#[test]
fn a_killed_process_takes_nothing_of_another_one_of_its_host_along() {
    let hosts = pair("siblings");
    let [mut a0, mut a1, mut b0, mut b1] = ["a", "a", "b", "b"].map(|host| hosts.start(host));
    let [_, b0_a0] = talking(&hosts, [&mut a0, &mut b0]);
    let [a1_b1, b1_a1] = talking(&hosts, [&mut a1, &mut b1]);
    let [a1_b0, b0_a1] = talking(&hosts, [&mut a1, &mut b0]);
    goes_on(&mut b0, b0_a0, 10);
    let mut victim = a0;
    let mut link = b0_a0;
    for round in 0..20_u64 {
        std::thread::sleep(Duration::from_micros(round * 7_919 % 9_000));
        victim.kill();
        // The peer of the killed process gets no error, and no message.
        let received = count(&mut b0, link);
        goes_on(&mut a1, a1_b1, 5);
        goes_on(&mut b1, b1_a1, 5);
        goes_on(&mut a1, a1_b0, 5);
        goes_on(&mut b0, b0_a1, 5);
        assert!(count(&mut b0, link) - received <= 8, "what was under way, at most");
        b0.ask(&format!("drop {link}"));
        victim = hosts.start("a");
        [_, link] = talking(&hosts, [&mut victim, &mut b0]);
        goes_on(&mut b0, link, 5);
    }
    assert!([victim, a1, b0, b1].into_iter().all(Peer::end));
}

#[test]
fn a_host_has_as_many_processes_as_there_are_places() {
    let hosts = pair("places");
    let open = format!("open {DEVICE} 15 16384");
    let start = || {
        let mut peer = hosts.start("a");
        peer.say(&open).unwrap();
        let is_accepted = peer.answer().is_some();
        (peer, is_accepted)
    };
    let mut peers: Vec<_> = (0..SharedFabric::MAX_PROCESSES).map(|_| start()).collect();
    assert!(peers.iter().all(|(_, is_accepted)| *is_accepted));
    assert_eq!(hosts.fabric.processes_of(0).len(), SharedFabric::MAX_PROCESSES);
    let (refused, is_accepted) = start();
    assert!(!is_accepted && !refused.end());
    // A killed process, and one that ends, leave their places.
    peers.remove(0).0.kill();
    assert!(peers.remove(1).0.end());
    peers.extend([start(), start()]);
    assert!(peers.iter().all(|(_, is_accepted)| *is_accepted));
    assert!(peers.into_iter().all(|(peer, _)| peer.end()));
}

/// A device does not reach itself, whichever process its queue pairs are in.
#[test]
fn two_processes_of_one_host_do_not_reach_each_other() {
    let hosts = pair("loopback");
    let [mut one, mut other] = ["a", "a"].map(|host| hosts.start(host));
    let open = format!("open {DEVICE} 15 16384");
    one.ask(&open);
    let address = other.ask(&open);
    let (_, address) = address.split_once(' ').unwrap();
    one.say(&format!("connect 0 {address}")).unwrap();
    assert_eq!(one.answer(), None);
    assert!(!one.end() && other.end());
}

/// Catches a fault of a host that concerns one of its processes alone, a process that joins a paused host and runs, and one that ends the
/// others because it joins.
#[test]
fn faults_of_a_host_concern_all_of_its_processes() {
    let hosts = pair("faults");
    let fault = |what: &str| hosts.fabric.add_fault(&format!("at 0s {what}")).unwrap();
    let [mut a0, mut a1, mut b] = ["a", "a", "b"].map(|host| hosts.start(host));
    let [a0_b, b_a0] = talking(&hosts, [&mut a0, &mut b]);
    let [a1_b, b_a1] = talking(&hosts, [&mut a1, &mut b]);
    fault("a pause");
    [&a0, &a1].into_iter().for_each(wait_until_stopped);
    let mut joining = hosts.start("a");
    joining.say(&format!("open {DEVICE} 255 1048576")).unwrap();
    wait_until_stopped(&joining);
    fault("a resume");
    assert!(joining.answer().is_some());
    goes_on(&mut a0, a0_b, 50);
    goes_on(&mut a1, a1_b, 50);
    [b_a0, b_a1].into_iter().for_each(|link| goes_on(&mut b, link, 50));
    fault("a kill");
    for dead in [a0, a1, joining] {
        assert_eq!(dead.answer(), None);
        assert!(!dead.end());
    }
    // Those that come at once restart the host once.
    let [mut a0, mut a1] = ["a", "a"].map(|host| hosts.start(host));
    a0.say(&format!("open {DEVICE} 15 16384")).unwrap();
    a1.say(&format!("open {DEVICE} 15 16384")).unwrap();
    assert!(a0.answer().is_some() && a1.answer().is_some());
    let [_, b_a0] = talking(&hosts, [&mut a0, &mut b]);
    let [_, b_a1] = talking(&hosts, [&mut a1, &mut b]);
    goes_on(&mut b, b_a0, 50);
    goes_on(&mut b, b_a1, 50);
    assert!(a0.end() && a1.end() && b.end());
}

/// Waits until the system says that a process is stopped
fn wait_until_stopped(peer: &Peer) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", peer.pid())).ok()?;
        stat.rsplit_once(')')?.1.trim().chars().next()
    };
    while std::path::Path::new("/proc/self/stat").exists() && state() != Some('T') {
        std::thread::yield_now();
    }
}

/// Catches a child that takes the place of its parent, or leaves the fabric for it.
#[test]
fn a_child_that_was_forked_before_the_first_verb_is_a_process_of_its_own() {
    let hosts = pair("split");
    let [mut a, mut b] = ["a", "b"].map(|host| hosts.start(host));
    assert_eq!(a.ask(&format!("split {DEVICE}")), "0", "the child has created a queue pair");
    let [a_b, b_a] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, a_b, 50);
    let mut sibling = hosts.start("a");
    let [sibling_b, _] = talking(&hosts, [&mut sibling, &mut b]);
    assert_eq!(a.ask(&format!("fork {a_b}")), "0", "a child of a process with queue pairs is refused");
    goes_on(&mut sibling, sibling_b, 50);
    goes_on(&mut b, b_a, 50);
    assert!(a.end() && sibling.end() && b.end());
}
