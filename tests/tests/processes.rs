//! Fabrics in shared memory: several processes, which may come, go and die at any moment
//!
//! Mutants that these tests were seen to catch. Records are taken in whatever their stamp says. Nobody is introduced to who has
//! come. A successor keeps the incarnation of its predecessor. What waits for room is not gone on with. The head of a lane is
//! published before the bytes. Data fills the last receive instead of the oldest that is open. Messages are counted in bytes. A host
//! is taken although its lock is held. Faults that happen within a post are not followed. Whoever asks for a fault does not go on
//! with who is stopped. A forked child ends for its parent.
//!
//! Caught elsewhere: counters of predecessors forgotten, by `programs.rs`; a tail that is never moved, by the tests of lanes; used
//! memory made anew, and a maker that was killed, by those of places; a pipe that blocks, by those of channels.

use std::path::Path;
use std::time::Duration;

use rdma_sim::{MacModel, Topology};
use rdma_sim_verbs::shared::{FabricError, Settings, SharedFabric};
use rdma_tests::hosts::{Hosts, Peer};

const PEER: &str = env!("CARGO_BIN_EXE_peer");
const DEVICE: &str = "rdma_en2";

fn pair(name: &str) -> Hosts {
    Hosts::new(name, &Settings::new(Topology::pair()), PEER)
}

/// Connects them; each sends to the other, until it ends
fn talking(hosts: &Hosts, [a, b]: [&mut Peer; 2]) -> [usize; 2] {
    let [to_b, to_a] = hosts.connect([a, b], [DEVICE; 2], 255, 1 << 20);
    a.ask(&format!("talk {to_b}"));
    b.ask(&format!("talk {to_a}"));
    [to_b, to_a]
}

/// Whether a process ends because its device cannot be opened
fn is_refused(mut peer: Peer) -> bool {
    peer.say(&format!("open {DEVICE} 15 1048576")).is_err() || !peer.end()
}

fn count(peer: &mut Peer, link: usize) -> u64 {
    peer.ask(&format!("count {link}")).parse().unwrap()
}

/// Waits until `peer` has received so many messages more than by now
fn goes_on(peer: &mut Peer, link: usize, more: u64) {
    let start = count(peer, link);
    receives(peer, link, start + more);
}

/// Waits until `peer` has received so many messages in all
fn receives(peer: &mut Peer, link: usize, wanted: u64) {
    let mut received = 0;
    for _ in 0..6_000 {
        received = count(peer, link);
        if received >= wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{received} messages of {wanted} came within half a minute");
}

/// Whether the directory of that fabric exists
fn is_there(name: &str) -> bool {
    SharedFabric::list().unwrap().contains(&name.to_owned())
}

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order() {
    let hosts = pair("sizes");
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, to_a] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 500);
    goes_on(&mut b, to_a, 500);
    assert!(a.end() && b.end());
}

/// A send waits for its receive whoever comes first, and messages of a megabyte, of which eight wait, pass a lane of one.
#[test]
fn long_messages_pass_and_wait_for_their_receives() {
    let hosts = pair("long");
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let len = 1 << 20;
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 4095, 8 * len);
    // The first is sent long before anybody looks.
    a.say(&format!("send {to_b} 20 {len}")).unwrap();
    b.ask(&format!("take {to_a} 20 {len}"));
    assert!(a.answer().is_some());
    let sent = hosts.fabric.sent();
    assert!(a.end() && b.end());
    assert_eq!(sent.len(), 6);
    let sent = hosts.fabric.sent();
    assert_eq!((sent[0].messages, sent[0].payload_bytes), (20, 20 * len as u64), "{sent:?}");
}

/// Catches records of a process that is gone, which its successor takes for its own, and receives that were announced to it.
#[test]
fn a_process_that_is_killed_at_any_moment_harms_nobody_else() {
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
        // Whatever it does by now is interrupted.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((state >> 33) % 20_000));
        if round % 4 == 3 {
            goes_on(&mut a, ab, 1);
        }
        b.kill();
        a.ask(&format!("drop {ab}"));
        if round % 8 == 0 {
            goes_on(&mut a, ac, 10);
            goes_on(&mut c, ca, 10);
        }
    }
    goes_on(&mut a, ac, 100);
    goes_on(&mut c, ca, 100);
    assert!(a.end() && c.end());
}

#[test]
fn nothing_is_left_of_a_fabric_when_the_last_one_has_left() {
    for number in 0..10 {
        let hosts = pair(&format!("left{number}"));
        let name = hosts.fabric.name().to_owned();
        let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
        hosts.connect([&mut a, &mut b], [DEVICE; 2], 15, 1 << 20);
        drop(hosts);
        assert!(is_there(&name), "two processes are in it");
        assert!(a.end());
        assert!(is_there(&name), "a process is in it");
        // The last one cleans up, or whoever looks after it if it was killed.
        if number % 2 == 0 {
            assert!(b.end());
            let base = Path::new("/dev/shm").is_dir().then(|| format!("/dev/shm/rdma-sim-{}/{name}", user()));
            assert!(base.is_none_or(|path| !Path::new(&path).exists()), "{name}");
        } else {
            b.kill();
        }
        assert!(!is_there(&name));
    }
}

fn user() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn hosts_are_taken_once_and_fabrics_do_not_meet() {
    let (one, other) = (pair("one"), pair("other"));
    let (mut a, mut b) = (one.start("a"), other.start("b"));
    let open = format!("open {DEVICE} 255 1048576");
    assert!(a.ask(&open).starts_with("0 "));
    assert!(b.ask(&open).starts_with("0 "));
    // Another process as the same host is refused, with a word about who it is.
    let mut twin = one.start("a");
    twin.say(&open).unwrap();
    assert!(!twin.end());
    // A message to a peer that is in another fabric never comes.
    let address = b.ask(&open);
    let address = address.split_once(' ').unwrap().1;
    a.ask(&format!("connect 0 {address}"));
    a.ask("talk 0");
    assert_eq!(count(&mut a, 0), 0);
    assert!(a.end() && b.end());
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let settings = Settings::new(Topology::pair());
    assert!(matches!(SharedFabric::open("nobody-made-this"), Err(FabricError::Missing(_))));
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

/// Faults happen to all processes of a fabric: a queue pair ends with its cable, and a new one works when it is back.
#[test]
fn a_pulled_cable_is_pulled_for_everybody() {
    let hosts = pair("pulled");
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, _] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 10);
    hosts.fabric.add_fault("at 0s a:rdma_en2 unplug").unwrap();
    // Nothing can be opened now, and so both give up.
    assert!(is_refused(a) && is_refused(b));
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    hosts.fabric.add_fault("at 0s a:rdma_en2 replug").unwrap();
    let [to_b, _] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 10);
    assert!(a.end() && b.end());
}

/// Catches a child that ends the part of its parent in the fabric with its own end.
#[test]
fn a_child_that_is_forked_and_ends_is_not_the_host() {
    let hosts = pair("forked");
    let name = hosts.fabric.name().to_owned();
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, to_a] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 10);
    assert_eq!(a.ask("fork"), "0");
    assert_eq!(hosts.fabric.process_of(0), a.pid());
    goes_on(&mut b, to_a, 10);
    assert!(b.end());
    drop(hosts);
    // It alone is in the fabric now, and its lock is its child's, too.
    assert_eq!(a.ask("fork"), "0");
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
    let hosts = pair("frames");
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    hosts.fabric.add_fault("after 100 frames b kill").unwrap();
    let [to_b, _] = talking(&hosts, [&mut a, &mut b]);
    assert_eq!(b.answer(), None, "a killed process says nothing");
    assert!(!b.end(), "the process was killed");
    let peer = hosts.fabric.process_of(0);
    assert_eq!(peer, a.pid(), "the other host lives");
    receives(&mut a, to_b, 11);
    assert!(a.end());
}

/// What the system says of a process: `T` if it is stopped
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim().chars().next()
}

fn wait_until_stopped(peer: &Peer) {
    while Path::new("/proc/self/stat").exists() && state(peer.pid()) != Some('T') {
        std::thread::yield_now();
    }
}

/// Catches processes that are stopped with nobody left to go on with them, and those that are killed meanwhile.
#[test]
fn processes_that_are_all_stopped_go_on_or_are_killed() {
    let hosts = pair("stopped");
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, to_a] = hosts.connect([&mut a, &mut b], [DEVICE; 2], 255, 1 << 20);
    let fault = |what: &str| hosts.fabric.add_fault(&format!("at 0s {what}")).unwrap();
    for host in ["a pause", "b pause"] {
        fault(host);
    }
    [&a, &b].into_iter().for_each(wait_until_stopped);
    for host in ["a resume", "b resume"] {
        fault(host);
    }
    a.ask(&format!("talk {to_b}"));
    b.ask(&format!("talk {to_a}"));
    goes_on(&mut a, to_b, 10);
    fault("b pause");
    wait_until_stopped(&b);
    fault("b kill");
    assert_eq!(b.answer(), None);
    assert_ne!(state(b.pid()), Some('T'));
    assert!(a.end());
}

/// Catches a fault that only the process sees whose frames it waits for, and one that a successor has happen again.
#[test]
fn a_cable_that_is_pulled_after_so_many_frames_is_pulled_for_everybody_once() {
    let hosts = pair("after");
    hosts.fabric.add_fault("after 50 frames a:rdma_en2 unplug").unwrap();
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    talking(&hosts, [&mut a, &mut b]);
    // Who has seen it tells the others.
    while hosts.fabric.faults().len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_refused(a) && is_refused(b));
    hosts.fabric.add_fault("at 0s a:rdma_en2 replug").unwrap();
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, _] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 100);
    assert!(a.end() && b.end());
}

/// A process that a fault pauses goes on when another says so; one that it kills is dead.
#[test]
fn faults_pause_resume_and_kill_processes() {
    let hosts = pair("paused");
    let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
    let [to_b, to_a] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 10);
    hosts.fabric.add_fault("at 0s b pause").unwrap();
    wait_until_stopped(&b);
    hosts.fabric.add_fault("at 0s b resume").unwrap();
    goes_on(&mut a, to_b, 10);
    goes_on(&mut b, to_a, 10);
    hosts.fabric.add_fault("at 0s b kill").unwrap();
    assert_eq!(b.answer(), None);
    assert!(!b.end());
    // What killed one does not kill the next.
    let mut b = hosts.start("b");
    let [to_b, _] = talking(&hosts, [&mut a, &mut b]);
    goes_on(&mut a, to_b, 10);
    hosts.fabric.add_fault("at 0s b kill").unwrap();
    assert_eq!(b.answer(), None);
    assert!(a.end());
}
