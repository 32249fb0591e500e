//! Fabrics in shared memory: several processes, which may come, go and die at any moment
//!
//! Mutants that these tests were seen to catch. Records are applied whatever their stamp is. A host is not announced to a new
//! process. A successor keeps the incarnation of its predecessor. Messages that wait for room are not sent later. The head of a
//! ring is published before the bytes. Data fills the last receive instead of the oldest that is open. Messages are counted in
//! bytes. Faults that fire within a post are not followed. A process that adds a fault does not continue a stopped one. A forked
//! child leaves the fabric for its parent.
//!
//! Caught elsewhere: counters of predecessors forgotten, by `programs.rs`; a tail that is never moved, by the tests of rings; used
//! memory made anew, and a maker that was killed, by those of fabrics; a pipe that blocks, by those of wake pipes.

use std::time::Duration;

use rdma_sim::{MacModel, Topology};
use rdma_sim_verbs::shared::{FabricError, Settings, SharedFabric};
use rdma_tests::hosts::{Hosts, Peer};

const PEER: &str = env!("CARGO_BIN_EXE_peer");
const DEVICE: &str = "rdma_en2";

fn pair(name: &str) -> Hosts {
    Hosts::new(name, &Settings::new(Topology::pair()), PEER)
}

/// Both hosts of a pair
fn started(name: &str) -> (Hosts, Peer, Peer) {
    let hosts = pair(name);
    let (a, b) = (hosts.start("a"), hosts.start("b"));
    (hosts, a, b)
}

/// Whether a process ends because its device cannot be opened, as soon as it has learnt of a fault
fn is_refused(mut peer: Peer) -> bool {
    // Fewer times than a device has queue pairs.
    let is_refused = (0..5).any(|_| {
        let is_refused = peer.say(&format!("open {DEVICE} 15 1048576")).is_err() || peer.answer().is_none();
        if !is_refused {
            std::thread::sleep(Duration::from_millis(100));
        }
        is_refused
    });
    is_refused && !peer.end()
}

/// Whether the directory of that fabric exists
fn is_there(name: &str) -> bool {
    SharedFabric::list().unwrap().contains(&name.to_owned())
}

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order() {
    let (hosts, mut a, mut b) = started("sizes");
    let [to_b, to_a] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(to_b, 500);
    b.goes_on(to_a, 500);
    assert!(a.end() && b.end());
}

/// A send waits for a receive that is posted later, and eight messages of a megabyte pass a ring of one megabyte.
#[test]
fn long_messages_pass_a_short_ring_and_wait_for_their_receives() {
    let (hosts, mut a, mut b) = started("long");
    let len = 1 << 20;
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 4095, 8 * len);
    // The first is sent long before its receive is posted.
    a.say(&format!("send {to_b} 20 {len}")).unwrap();
    b.ask(&format!("take {to_a} 20 {len}"));
    assert!(a.answer().is_some());
    let sent = hosts.fabric.sent();
    assert!(a.end() && b.end());
    assert_eq!(sent.len(), 6);
    let sent = hosts.fabric.sent();
    assert_eq!((sent[0].messages, sent[0].payload_bytes), (20, 20 * len as u64), "{sent:?}");
}

/// Catches a device that fills receives only while its program polls: what is longer than the ring would wait for that.
#[test]
fn a_program_that_naps_between_polls_does_not_hold_up_its_peer() {
    let (hosts, mut a, mut b) = started("naps");
    let len = 1 << 20;
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 4095, 8 * len);
    for round in 0..5 {
        assert_eq!(b.ask(&format!("expect {to_a} 8 {len}")), (8 * round).to_string());
        // The peer polls again only after all of these have left.
        a.ask(&format!("send {to_b} 8 {len}"));
    }
    assert_eq!(b.ask(&format!("expect {to_a} 0 {len}")), "40");
    assert!(a.end() && b.end());
}

/// Regression: they were those of up to 100 ms before, when a thread had published them.
#[test]
fn the_counters_of_a_killed_process_are_those_of_its_end() {
    let (hosts, mut a, mut b) = started("counted");
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 255, 1 << 20);
    a.say(&format!("send {to_b} 500 4096")).unwrap();
    b.ask(&format!("take {to_a} 500 4096"));
    assert!(a.answer().is_some());
    a.kill();
    let sent = hosts.fabric.sent()[0];
    assert_eq!((sent.messages, sent.payload_bytes), (500, 500 * 4096));
    assert_eq!(hosts.fabric.lateness(0), None, "these cables have no pace");
    assert!(b.end());
}

/// Catches lateness that is not noticed, or not published.
#[test]
fn a_host_that_does_not_keep_pace_says_how_late_it_was() {
    let hosts = Hosts::new("late", &Settings::new(Topology::pair()).paced(true), PEER);
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 255, 1 << 20);
    b.say(&format!("take {to_a} 100000000 65536")).unwrap();
    a.say(&format!("send {to_b} 100000000 65536")).unwrap();
    let is_late = || hosts.fabric.lateness(0).is_some_and(|late| late.worst.as_millis() >= 100);
    // A process that waits for its peer at that moment has nothing to be late with.
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(10));
        a.signal(libc::SIGSTOP);
        a.wait_until_stopped();
        std::thread::sleep(Duration::from_millis(150));
        a.signal(libc::SIGCONT);
        if is_late() {
            break;
        }
    }
    assert!(is_late());
    let late = hosts.fabric.lateness(0).unwrap();
    assert!(late.behind >= Duration::from_millis(100), "{late:?}");
}

/// Catches records and announced receives of a process that has ended, which are taken for those of its successor.
#[test]
fn a_process_that_is_killed_at_any_moment_harms_no_other() {
    let topology = Topology::mesh(3, MacModel::from(3)).unwrap();
    let hosts = Hosts::new("killed", &Settings::new(topology.clone()), PEER);
    let device = |from: &str, to: &str| {
        let mut links = topology.links();
        let link = links.find(|link| link.ends.iter().all(|end| end.host == from || end.host == to)).unwrap();
        link.ends.iter().find(|end| end.host == from).unwrap().device.to_owned()
    };
    let (mut a, mut c) = (hosts.start("a"), hosts.start("c"));
    let [ac, ca] = hosts.connect([&mut a, &mut c], [&device("a", "c"), &device("c", "a")], 255, 1 << 20);
    a.ask(&format!("talk {ac}"));
    c.ask(&format!("talk {ca}"));
    let rounds = std::env::var("RDMA_TEST_KILLS").map_or(200, |count| count.parse().unwrap());
    let mut state = 7_u64;
    for round in 0..rounds {
        let mut b = hosts.start("b");
        let [ab, ba] = hosts.connect([&mut a, &mut b], [&device("a", "b"), &device("b", "a")], 255, 1 << 20);
        a.ask(&format!("talk {ab}"));
        b.ask(&format!("talk {ba}"));
        // The kill interrupts it at a random moment.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((state >> 33) % 20_000));
        if round % 4 == 3 {
            a.goes_on(ab, 1);
        }
        b.kill();
        a.ask(&format!("drop {ab}"));
        if round % 8 == 0 {
            a.goes_on(ac, 10);
            c.goes_on(ca, 10);
        }
    }
    a.goes_on(ac, 100);
    c.goes_on(ca, 100);
    assert!(a.end() && c.end());
}

#[test]
fn nothing_is_left_of_a_fabric_after_its_last_process() {
    for number in 0..10 {
        let hosts = pair(&format!("left{number}"));
        let (name, directory) = (hosts.fabric.name().to_owned(), hosts.fabric.directory().to_owned());
        let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
        hosts.connect([&mut a, &mut b], [DEVICE; 2], 15, 1 << 20);
        drop(hosts);
        assert!(is_there(&name), "two processes are in it");
        assert!(a.end());
        assert!(is_there(&name), "a process is in it");
        // The last process removes the fabric; if it was killed, a process that lists fabrics does.
        if number % 2 == 0 {
            assert!(b.end());
            assert!(!directory.exists(), "{directory:?}");
        } else {
            b.kill();
        }
        assert!(!is_there(&name));
    }
}

#[test]
fn fabrics_are_separate() {
    let (one, other) = (pair("one"), pair("other"));
    let (mut a, mut b) = (one.start("a"), other.start("b"));
    let open = format!("open {DEVICE} 255 1048576");
    assert!(a.ask(&open).starts_with("0 "));
    assert!(b.ask(&open).starts_with("0 "));
    // A message to an address of another fabric never arrives.
    let address = b.ask(&open);
    let address = address.split_once(' ').unwrap().1;
    a.ask(&format!("connect 0 {address}"));
    a.ask("talk 0");
    // Time for a message to arrive, if it went anywhere.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(b.count(0), 0);
    assert!(a.end() && b.end());
}

#[test]
fn invalid_names_settings_and_faults_are_refused_with_a_reason() {
    let settings = Settings::new(Topology::pair());
    assert!(matches!(SharedFabric::open("never-made"), Err(FabricError::Missing(_))));
    for name in ["", ".", "../x", "a/b", "a b", &"x".repeat(65)] {
        assert!(matches!(SharedFabric::create(name, &settings), Err(FabricError::Name(_))), "{name:?}");
    }
    let hosts = pair("sense");
    let name = hosts.fabric.name();
    let others = [
        settings.clone().paced(true),
        settings.clone().seed(3),
        settings.clone().profile("roce").unwrap(),
        Settings::new(Topology::mesh(3, MacModel::from(3)).unwrap()),
    ];
    for other in &others {
        let refused = SharedFabric::create(name, other).unwrap_err();
        assert!(matches!(refused, FabricError::Other(..)), "{refused}");
    }
    SharedFabric::create(name, &settings).unwrap();
    for fault in ["unplug", "at 0s a:rdma_en9 unplug", "at 0s a:rdma_en2 explode"] {
        assert!(matches!(hosts.fabric.add_fault(fault), Err(FabricError::Settings(_))), "{fault}");
    }
    let nowhere = pair("nowhere");
    let mut stranger = nowhere.start("z");
    assert!(stranger.say("open rdma_en2 15 1048576").is_err() || stranger.answer().is_none());
    assert!(!stranger.end());
}

/// Faults apply to all processes of a fabric: a queue pair ends with its cable, and a new one works with a cable again.
#[test]
fn an_unplugged_cable_is_unplugged_for_both_processes() {
    let (hosts, mut a, mut b) = started("pulled");
    let [to_b, _] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(to_b, 10);
    hosts.fabric.add_fault("at 0s a:rdma_en2 unplug").unwrap();
    // No queue pair can be opened now, and both programs end.
    assert!(is_refused(a) && is_refused(b));
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    hosts.fabric.add_fault("at 0s a:rdma_en2 replug").unwrap();
    let [to_b, _] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(to_b, 10);
    assert!(a.end() && b.end());
}

/// Catches a forked child that writes to the rings of its parent, or leaves the fabric for its parent, and a child whose post waits for a thread
/// that only its parent has.
#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    let hosts = pair("forked");
    let name = hosts.fabric.name().to_owned();
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, to_a] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(to_b, 10);
    assert_eq!(a.ask(&format!("fork {to_b}")), "0", "all verbs of the child say that the device is gone");
    assert_eq!(hosts.fabric.processes_of(0), [a.pid()]);
    a.goes_on(to_b, 10);
    b.goes_on(to_a, 10);
    assert!(b.end());
    // The next post queries the port.
    a.ask(&format!("poll {to_b} 2000"));
    assert_eq!(a.ask(&format!("fork {to_b}")), "0");
    drop(hosts);
    // Only one process is in the fabric now, and its child has a copy of the lock.
    assert_eq!(a.ask(&format!("fork {to_b}")), "0");
    assert!(is_there(&name));
    assert!(a.end());
    assert!(!is_there(&name));
}

/// Catches a fault that fires within a call that posts and is not followed.
///
/// The host may be dead before this test asks for the first count, so only totals are compared: the lengths of messages are
/// such that eleven fit into 94 frames, all of which left before the kill.
#[test]
fn a_kill_after_so_many_frames_ends_the_host_that_sends_them() {
    let (hosts, mut a, mut b) = started("frames");
    hosts.fabric.add_fault("after 100 frames b kill").unwrap();
    let [to_b, _] = hosts.talk([&mut a, &mut b], DEVICE);
    assert_eq!(b.answer(), None, "a killed process says nothing");
    assert!(!b.end(), "the process was killed");
    let sent = hosts.fabric.sent()[3];
    assert!(sent.frames >= 100, "it has counted what it sent: {sent:?}");
    assert_eq!(hosts.fabric.processes_of(0), [a.pid()], "the other host lives");
    a.receives(to_b, 11);
    assert!(a.end());
}

/// Catches a fault that only the sender of the frames sees, and one that fires again for a successor.
#[test]
fn an_unplug_after_so_many_frames_applies_to_both_processes_once() {
    let hosts = pair("after");
    hosts.fabric.add_fault("after 50 frames a:rdma_en2 unplug").unwrap();
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    hosts.talk([&mut a, &mut b], DEVICE);
    // The sender adds it to the log for the others.
    while hosts.fabric.fired().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_refused(a) && is_refused(b));
    hosts.fabric.add_fault("at 0s a:rdma_en2 replug").unwrap();
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, _] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(to_b, 100);
    assert!(a.end() && b.end());
}

/// A process that a fault pauses continues with the next fault; one that a fault kills is dead.
///
/// Catches processes that stay stopped because all others are stopped, too, and a kill that does not reach a stopped one.
#[test]
fn faults_pause_resume_and_kill_processes() {
    let (hosts, mut a, mut b) = started("paused");
    let fault = |what: &str| hosts.fabric.add_fault(&format!("at 0s {what}")).unwrap();
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 255, 1 << 20);
    ["a pause", "b pause"].into_iter().for_each(fault);
    [&a, &b].into_iter().for_each(Peer::wait_until_stopped);
    ["a resume", "b resume"].into_iter().for_each(fault);
    a.ask(&format!("talk {to_b}"));
    b.ask(&format!("talk {to_a}"));
    a.goes_on(to_b, 10);
    fault("b pause");
    b.wait_until_stopped();
    fault("b resume");
    a.goes_on(to_b, 10);
    b.goes_on(to_a, 10);
    fault("b pause");
    b.wait_until_stopped();
    fault("b kill");
    assert_eq!(b.answer(), None);
    assert_ne!(b.state(), Some('T'));
    assert!(!b.end());
    // The fault that killed a process does not kill its successor; another one does, while it runs.
    let mut b = hosts.start("b");
    let [to_b, _] = hosts.talk([&mut a, &mut b], DEVICE);
    a.goes_on(to_b, 10);
    fault("b kill");
    assert_eq!(b.answer(), None);
    assert!(a.end());
}
