//! Several processes of one host: what they share, and what each has for itself
//!
//! Mutants that these tests were seen to catch. All processes of a host number their queue pairs alike. The end of a process, or a new
//! one, concerns the queue pairs of its whole host. An object is counted for its process alone, or still counts after a kill. All
//! processes of a host have the same counters of a port. A process that joins a paused host restarts it, or does not stop. A fault
//! wakes only the first of the processes that are stopped. Each process fires a fault that waits for frames.
//!
//! Caught elsewhere: processes that reclaim objects at once and hinder each other, by the tests of objects; unchecked numbers in the
//! memory, by those of fabrics; a process that speaks for the queue pairs of another one, by `remote_hosts.rs`.

use std::time::Duration;

use rdma_sim::Topology;
use rdma_sim::profile::Profile;
use rdma_sim_verbs::shared::{Settings, SharedFabric};
use rdma_tests::hosts::{Hosts, Peer};

const PEER: &str = env!("CARGO_BIN_EXE_peer");
const DEVICE: &str = "rdma_en2";

fn pair(name: &str) -> Hosts {
    Hosts::new(name, &Settings::new(Topology::pair()), PEER)
}

/// How many queue pairs of the device a process can create
fn fill(peer: &mut Peer) -> u32 {
    peer.ask(&format!("fill {DEVICE}")).parse().unwrap()
}

/// Catches numbers of queue pairs that two processes have, and messages that go to another process of the host than the one with the
/// queue pair.
#[test]
fn two_processes_of_a_host_talk_to_two_of_another_over_one_cable() {
    let hosts = pair("two-by-two");
    let [mut a0, mut a1, mut b0, mut b1] = ["a", "a", "b", "b"].map(|host| hosts.start(host));
    let pairs = [
        hosts.talk([&mut a0, &mut b0], DEVICE),
        hosts.talk([&mut a1, &mut b1], DEVICE),
        hosts.talk([&mut a0, &mut b1], DEVICE),
        hosts.talk([&mut a1, &mut b0], DEVICE),
    ];
    let [[a0_b0, b0_a0], [a1_b1, b1_a1], [a0_b1, b1_a0], [a1_b0, b0_a1]] = pairs;
    for (peer, links) in [
        (&mut a0, [a0_b0, a0_b1]),
        (&mut a1, [a1_b1, a1_b0]),
        (&mut b0, [b0_a0, b0_a1]),
        (&mut b1, [b1_a1, b1_a0]),
    ] {
        links.into_iter().for_each(|link| peer.goes_on(link, 200));
    }
    let mut pids = hosts.fabric.processes_of(0);
    pids.sort_unstable();
    let mut expected = [a0.pid(), a1.pid()];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    assert!([a0, a1, b0, b1].into_iter().all(Peer::end));
}

/// Catches counters that one process overwrites for another, and those that a successor begins anew.
#[test]
fn a_port_has_sent_what_all_processes_of_its_host_have_sent() {
    let hosts = pair("sums");
    let [mut a0, mut a1, mut b] = ["a", "a", "b"].map(|host| hosts.start(host));
    let mut sent_after = |a: &mut Peer, count: u64| {
        let [a_b, b_a] = hosts.connect([a, &mut b], [DEVICE; 2], 255, 1 << 20);
        a.say(&format!("send {a_b} {count} 4096")).unwrap();
        b.ask(&format!("take {b_a} {count} 4096"));
        assert!(a.answer().is_some());
        hosts.fabric.sent()[0].messages
    };
    assert_eq!(sent_after(&mut a0, 500), 500);
    assert_eq!(sent_after(&mut a1, 300), 800);
    assert_eq!(sent_after(&mut a0, 50), 850);
    a0.kill();
    assert_eq!(sent_after(&mut hosts.start("a"), 7), 857);
    assert!(a1.end() && b.end());
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

/// A fabric of two hosts on which each end of a process leaks three objects, by this rule
fn leaking(rule: &str) -> Hosts {
    let text = format!("format = 1\nbase = \"tb5\"\n[rules]\n{rule} = 3\n");
    let profile = Profile::parse("leaking.toml", &text).unwrap();
    Hosts::new(rule, &Settings::new(Topology::pair()).with_profile(profile), PEER)
}

/// Starts a process on host `a`, counts the objects that it can create, and kills it
fn fill_and_die(hosts: &Hosts) -> u32 {
    let mut a = hosts.start("a");
    let filled = fill(&mut a);
    a.kill();
    filled
}

fn reboot(hosts: &Hosts) {
    hosts.fabric.add_fault("at 0s a reboot 1ms").unwrap();
    std::thread::sleep(Duration::from_millis(20));
}

/// Catches ends of processes that leak nothing without a fault, leaks of one process that the next one replaces, and a reboot that does
/// not free them.
#[test]
fn each_end_of_a_process_leaks_protection_domains_until_a_reboot() {
    let hosts = leaking("process_end_leaks_pds");
    let mut bystander = hosts.start("b");
    assert_eq!(
        fill(&mut bystander),
        10,
        "of queue pairs, of which a device has fewer than protection domains"
    );
    assert_eq!([(); 5].map(|()| fill_and_die(&hosts)), [10, 8, 5, 2, 0]);
    reboot(&hosts);
    assert_eq!(fill_and_die(&hosts), 10);
    assert_eq!(fill_and_die(&hosts), 8);
    let mut tidy = hosts.start("a");
    let open = format!("open {DEVICE} 15 16384");
    tidy.ask(&open);
    tidy.ask("drop 0");
    tidy.kill();
    assert_eq!(fill_and_die(&hosts), 5, "a process that has nothing leaks nothing");
    assert!(bystander.end());
}

/// As above for queue pairs: catches a rule that has no effect between processes.
#[test]
fn each_end_of_a_process_leaks_queue_pairs_until_a_reboot() {
    let hosts = leaking("process_end_leaks_qps");
    assert_eq!([(); 5].map(|()| fill_and_die(&hosts)), [10, 7, 4, 1, 0]);
    reboot(&hosts);
    assert_eq!([(); 2].map(|()| fill_and_die(&hosts)), [10, 7]);
}

/// Catches a process that takes the queue pairs of another with it when it ends, and receives of a killed process that its successor
/// seems to have.
#[test]
fn a_killed_process_does_not_harm_the_others_of_its_host() {
    let hosts = pair("siblings");
    let [mut a0, mut a1, mut b0, mut b1] = ["a", "a", "b", "b"].map(|host| hosts.start(host));
    let [_, b0_a0] = hosts.talk([&mut a0, &mut b0], DEVICE);
    let [a1_b1, b1_a1] = hosts.talk([&mut a1, &mut b1], DEVICE);
    let [a1_b0, b0_a1] = hosts.talk([&mut a1, &mut b0], DEVICE);
    b0.goes_on(b0_a0, 10);
    let mut victim = a0;
    let mut link = b0_a0;
    for round in 0..20_u64 {
        std::thread::sleep(Duration::from_micros(round * 7_919 % 9_000));
        victim.kill();
        // The peer of the killed process gets no error, and no message.
        let received = b0.count(link);
        a1.goes_on(a1_b1, 5);
        b1.goes_on(b1_a1, 5);
        a1.goes_on(a1_b0, 5);
        b0.goes_on(b0_a1, 5);
        assert!(b0.count(link) - received <= 8, "what was under way, at most");
        b0.ask(&format!("drop {link}"));
        victim = hosts.start("a");
        [_, link] = hosts.talk([&mut victim, &mut b0], DEVICE);
        b0.goes_on(link, 5);
    }
    assert!([victim, a1, b0, b1].into_iter().all(Peer::end));
}

#[test]
fn a_host_has_four_processes_and_a_fifth_is_refused() {
    let hosts = pair("slots");
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
    // A killed process, and one that ends, make room for others.
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

/// Catches a fault of a host that reaches one of its processes alone, a process that joins a paused host and runs, and one that
/// ends the others because it joins.
#[test]
fn faults_of_a_host_apply_to_all_of_its_processes() {
    let hosts = pair("faults");
    let fault = |what: &str| hosts.fabric.add_fault(&format!("at 0s {what}")).unwrap();
    let [mut a0, mut a1, mut b] = ["a", "a", "b"].map(|host| hosts.start(host));
    let [a0_b, b_a0] = hosts.talk([&mut a0, &mut b], DEVICE);
    let [a1_b, b_a1] = hosts.talk([&mut a1, &mut b], DEVICE);
    fault("a pause");
    [&a0, &a1].into_iter().for_each(Peer::wait_until_stopped);
    let mut joining = hosts.start("a");
    joining.say(&format!("open {DEVICE} 255 1048576")).unwrap();
    joining.wait_until_stopped();
    fault("a resume");
    assert!(joining.answer().is_some());
    a0.goes_on(a0_b, 50);
    a1.goes_on(a1_b, 50);
    [b_a0, b_a1].into_iter().for_each(|link| b.goes_on(link, 50));
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
    let [_, b_a0] = hosts.talk([&mut a0, &mut b], DEVICE);
    let [_, b_a1] = hosts.talk([&mut a1, &mut b], DEVICE);
    b.goes_on(b_a0, 50);
    b.goes_on(b_a1, 50);
    assert!(a0.end() && a1.end() && b.end());
}

/// Catches a fault that each process fires when it has sent the frames.
#[test]
fn a_fault_after_so_many_frames_fires_once_for_all_processes_of_its_host() {
    let hosts = pair("counted-once");
    let waiting = "after 50 frames a:rdma_en2 slow 50%";
    hosts.fabric.add_fault(waiting).unwrap();
    let [mut a0, mut a1, mut b] = ["a", "a", "b"].map(|host| hosts.start(host));
    let links = [&mut a0, &mut a1].map(|a| hosts.talk([a, &mut b], DEVICE)[1]);
    // A message has at least one frame.
    links.into_iter().for_each(|link| b.goes_on(link, 200));
    // A process adds the fault to the log after its frames have arrived.
    while hosts.fabric.fired().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    links.into_iter().for_each(|link| b.goes_on(link, 200));
    assert!(a0.end() && a1.end() && b.end());
    let texts = |faults: Vec<rdma_sim::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(hosts.fabric.faults()), [waiting]);
    assert_eq!(texts(hosts.fabric.fired()), ["at 0s a:rdma_en2 slow 50%"]);
}

/// Catches a child that takes the slot of its parent, or leaves the fabric for it.
#[test]
fn a_child_that_was_forked_before_the_first_verb_is_a_process_of_its_own() {
    let hosts = pair("split");
    let [mut a, mut b] = ["a", "b"].map(|host| hosts.start(host));
    assert_eq!(a.ask(&format!("split {DEVICE}")), "0", "the child has created a queue pair");
    let [a_b, b_a] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(a_b, 50);
    let mut sibling = hosts.start("a");
    let [sibling_b, _] = hosts.talk([&mut sibling, &mut b], DEVICE);
    assert_eq!(a.ask(&format!("fork {a_b}")), "0", "a child of a process with queue pairs is refused");
    sibling.goes_on(sibling_b, 50);
    b.goes_on(b_a, 50);
    assert!(a.end() && sibling.end() && b.end());
}
