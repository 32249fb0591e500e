//! Devices that do not return from a verb: one port of one node, and every other session goes on

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_async::{
    CloseError, ConnectError, DeviceCall, Node, NodeOptions, PathStatus, RecvError, SessionError,
};
use rdma_sim::{LineRate, Net, Sim, SimDevice, SlowableVerb};
use rdma_tests::{DEVICE, Pair, connect, connected_over, message, node_over, options};

use super::figures::cables;

/// The port of the session that must not notice anything
const OTHER: &str = "rdma_en3";
/// How long a device may take
const LIMIT: Duration = Duration::from_secs(1);
/// Within what a blocked call is reported: the silence of a peer may have to be noticed before
const REPORTED: Duration = Duration::from_secs(4);

fn limited() -> NodeOptions {
    options().device_timeout(LIMIT)
}

/// What happens to the session over the port whose verb hangs
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Connecting,
    Reconnecting,
    Teardown,
}

/// Verbs without a bound: the task that drives a node calls them
const TRAFFIC: [&str; 3] = ["poll_cq", "post_recv", "post_send"];

/// The verbs that a node calls in a phase
fn is_called(phase: Phase, verb: &str) -> bool {
    let makes = ["alloc_pd", "create_cq", "create_qp", "modify_qp", "open_device", "query_port", "reg_mr"];
    let ends = ["close_device", "dealloc_pd", "dereg_mr", "destroy_cq", "destroy_qp"];
    match phase {
        Phase::Connecting => makes.contains(&verb),
        Phase::Reconnecting => makes.contains(&verb) || ends.contains(&verb),
        // The node keeps the device open.
        Phase::Teardown => ["dereg_mr", "destroy_qp"].contains(&verb),
    }
}

async fn inject(net: &Net, fault: &str) {
    net.inject(format!("at 0s a:{DEVICE} {fault}").parse().unwrap());
    net.sleep(Duration::from_nanos(1)).await;
}

/// Sends a megabyte over the other port and returns how long it took
async fn send_other(net: &Net, pair: &Pair) -> Duration {
    const LEN: usize = 1 << 20;
    let start = net.now();
    let sent = async {
        let mut lease = pair.ab.alloc(LEN).await.unwrap();
        lease.extend_from_slice(&message(1, LEN));
        pair.ab.send(lease).delivered().await.unwrap();
    };
    let ((), got) = join(sent, pair.ba.recv()).await;
    assert!(*got.unwrap().unwrap() == message(1, LEN));
    net.now() - start
}

/// Sends over the other port, again and again while `beside` runs, and closes; how long the first message and the slowest took
async fn slowest_beside(net: &Net, pair: &Pair, beside: impl Future<Output = ()>) -> [Duration; 2] {
    let usual = send_other(net, pair).await;
    let mut slowest = usual;
    let mut beside = pin!(beside);
    loop {
        slowest = slowest.max(send_other(net, pair).await);
        let rest = pin!(net.sleep(Duration::from_millis(50)));
        if let Either::Left(((), _)) = select(beside.as_mut(), rest).await {
            break;
        }
    }
    let (closed, end) = join(pair.ab.close(), pair.ba.recv()).await;
    closed.unwrap();
    assert!(end.unwrap().is_none());
    [usual, slowest]
}

/// Lets `verb` hang at a port in `phase`; whether the node says so in time, and how the session over that port ended
async fn hang(net: &Net, phase: Phase, verb: &str) -> (Node<SimDevice>, bool) {
    let [a, b] = ["a", "b"].map(|host| node_over(net, host, &[DEVICE], &limited()));
    let is_blocked = |a: &Node<SimDevice>| a.device_stats().blocked_calls > 0;
    match phase {
        Phase::Connecting => {
            inject(net, &format!("hang {verb}")).await;
            inject(net, "replug").await;
            let start = net.now();
            let connected = connect(&a, &b).await;
            let waited = net.now() - start;
            match connected {
                Ok(_) => assert!(!is_blocked(&a)),
                Err(error) => {
                    assert!(matches!(error, ConnectError::Blocked(_)), "{error}");
                    assert!(waited <= LIMIT + Duration::from_millis(1), "{waited:?}");
                }
            }
        }
        Phase::Reconnecting => {
            let (ab, _ba) = connect(&a, &b).await.unwrap();
            inject(net, &format!("hang {verb}")).await;
            inject(net, "flap 5ms").await;
            net.sleep(REPORTED).await;
            let snapshot = ab.snapshot();
            // Calls that close the old handle of a device belong to no path.
            if is_blocked(&a) && !["close_device", "dealloc_pd", "destroy_cq"].contains(&verb) {
                assert!(snapshot.paths[0].blocked.is_some(), "{snapshot}");
            }
        }
        Phase::Teardown => {
            let (ab, ba) = connect(&a, &b).await.unwrap();
            inject(net, &format!("hang {verb}")).await;
            ab.close().await.unwrap();
            drop((ab, ba));
            let start = net.now();
            a.wait_idle().await;
            assert!(net.now() - start <= LIMIT + Duration::from_millis(10), "a peer counts no longer");
        }
    }
    let is_reported = is_blocked(&a);
    (a, is_reported)
}

/// Catches a verb on the task of a session or of the reactor, a call without a bound, and one that keeps the peerings of other ports.
#[test]
fn a_verb_that_hangs_stops_no_other_session() {
    for phase in [Phase::Connecting, Phase::Reconnecting, Phase::Teardown] {
        let names = SlowableVerb::ALL.map(|verb| verb.to_string());
        for verb in names.into_iter().filter(|verb| !TRAFFIC.contains(&&**verb)) {
            let what = format!("{verb} hangs in {phase:?}");
            let faults = if phase == Phase::Connecting { "at 0s a:rdma_en2 unplug" } else { "" };
            let sim = Sim::new().topology(cables(&[LineRate::TB5; 2])).faults(faults.parse().unwrap());
            let run = sim.run(async |net| {
                net.sleep(Duration::from_nanos(1)).await;
                let other = connected_over(&net, &[OTHER], &limited()).await;
                let mut kept = None;
                let beside = async { kept = Some(hang(&net, phase, &verb).await) };
                let [usual, slowest] = slowest_beside(&net, &other, beside).await;
                assert!(slowest <= usual + Duration::from_micros(10), "{what}: {usual:?} {slowest:?}");
                let (_node, is_reported) = kept.unwrap();
                assert_eq!(is_reported, is_called(phase, &verb), "{what}");
            });
            assert_eq!(run.findings, [], "{what}");
        }
    }
}

/// Posts and polls have no bound: they run on the task that drives the node, or that uses a session of it, and cost too little to be moved to
/// another thread. Catches a fault that does not reach them, a node that claims to have noticed, and one that takes along its peer, or the
/// sessions of other nodes.
#[test]
fn a_post_or_poll_that_hangs_stops_the_tasks_of_its_node_alone() {
    for verb in TRAFFIC {
        let run = Sim::new().topology(cables(&[LineRate::TB5; 2])).run(async |net| {
            let other = connected_over(&net, &[OTHER], &limited()).await;
            let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &[DEVICE], &limited()));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            inject(&net, &format!("hang {verb}")).await;
            let (sender, mut outcome) = futures::channel::oneshot::channel();
            let of_task = ab.clone();
            net.spawn(async move {
                let sent = of_task.send_bytes(&message(1, 1 << 20)).await;
                let _ = sender.send(sent);
            });
            let beside = async {
                let end = pin!(ba.recv());
                let end = match select(end, pin!(net.sleep(REPORTED))).await {
                    Either::Left((end, _)) => Some(end.map(|message| message.is_some())),
                    Either::Right(_) => None,
                };
                let is_lost = matches!(end, Some(Err(RecvError::Lost(SessionError::PeerLost(_)))));
                // A node that polls no more still makes paths, and what it posts on them reaches the peer.
                assert_eq!((is_lost, end.is_none()), (verb != "poll_cq", verb == "poll_cq"), "{verb}");
            };
            let [usual, slowest] = slowest_beside(&net, &other, beside).await;
            assert!(slowest <= usual + Duration::from_micros(10), "{verb}: {usual:?} {slowest:?}");
            net.sleep(Duration::from_secs(60)).await;
            assert!(outcome.try_recv().is_ok_and(|sent| sent.is_none()), "{verb}: the task stands still");
            assert_eq!((a.device_stats().blocked_calls, a.device_stats().abandoned), (0, 0), "{verb}");
            // Closing would call the verb on the task of the test.
            std::mem::forget((a, ab));
        });
        assert_eq!(run.findings, [], "{verb}");
    }
}

/// A path whose end hangs takes its peering along only if nothing is left: catches packets that wait for the device to stop.
#[test]
fn a_session_goes_on_over_another_path_when_the_end_of_one_hangs() {
    for verb in ["destroy_qp", "dereg_mr"] {
        Sim::new().topology(cables(&[LineRate::TB5; 2])).run(async |net| {
            let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &[DEVICE, OTHER], &limited()));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            inject(&net, &format!("hang {verb}")).await;
            inject(&net, "unplug").await;
            for number in 0..100 {
                let (sent, got) = join(ab.send_bytes(&message(number, 300_000)), ba.recv()).await;
                sent.unwrap();
                assert!(*got.unwrap().unwrap() == message(number, 300_000));
                net.sleep(Duration::from_millis(30)).await;
            }
            assert_eq!((a.device_stats().blocked_calls, a.device_stats().abandoned), (1, 1), "{verb}");
            assert_eq!(ab.snapshot().paths[0].blocked.unwrap().call, DeviceCall::Stop);
        });
    }
}

/// Catches memory that is used again although its device has not stopped, and a session that waits for it for ever.
#[test]
fn a_session_ends_when_the_end_of_its_only_path_hangs() {
    let run = Sim::new().run(async |net| {
        let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &[DEVICE], &limited()));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let reads = async { while ba.recv().await.is_ok_and(|message| message.is_some()) {} };
        let sends = async {
            while ab.send_bytes(&message(1, 1 << 20)).await.is_ok() {}
            ab.closed().await
        };
        let faults = async {
            net.sleep(Duration::from_millis(2)).await;
            inject(&net, "hang destroy_qp").await;
            inject(&net, "unplug").await;
            net.now()
        };
        let start = net.now();
        let ((), ended, _) = futures::future::join3(reads, sends, faults).await;
        let Err(CloseError::Lost(SessionError::Blocked(blocked))) = ended else { panic!("{ended:?}") };
        assert_eq!(blocked.call, DeviceCall::Stop);
        assert!(net.now() - start <= REPORTED);
        assert!(matches!(ab.recv().await, Err(RecvError::Lost(SessionError::Blocked(_)))));
        drop((ab, ba));
        net.sleep(Duration::from_secs(1)).await;
        assert!(!a.pool_stats().is_whole(), "the device may still write to what was posted");
        assert!(b.pool_stats().is_whole());
    });
    assert_eq!(run.findings, []);
}

/// Catches a device that is left alone for good, and one whose late answer changes what was given up meanwhile.
#[test]
fn a_device_is_used_again_when_it_has_returned_late() {
    for verb in ["destroy_qp", "dereg_mr", "create_qp", "modify_qp", "reg_mr", "alloc_pd", "create_cq"] {
        // With no memory for more paths than there are.
        let options = limited().peer_timeout(Duration::from_mins(1)).max_peers(1);
        let run = Sim::new().run(async |net| {
            let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &[DEVICE], &options));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            inject(&net, &format!("slow-verb {verb}=3s")).await;
            inject(&net, "flap 5ms").await;
            net.sleep(Duration::from_millis(1500)).await;
            assert_eq!(a.device_stats().blocked_calls, 1, "{verb}");
            inject(&net, &format!("slow-verb {verb}=0ns")).await;
            net.sleep(Duration::from_secs(9)).await;
            assert_eq!(a.device_stats().blocked_calls, 0, "{verb}");
            drop((ab, ba));
            net.sleep(Duration::from_mins(2)).await;
            let (ab, ba) = connect(&a, &b).await.unwrap();
            let (sent, got) = join(ab.send_bytes(b"again"), ba.recv()).await;
            sent.unwrap();
            assert_eq!(*got.unwrap().unwrap(), *b"again", "{verb}");
        });
        assert_eq!(run.findings, [], "{verb}");
    }
}

/// Regression, found by a schedule in which a verb took longer: while one port was tried, a node gave the blocked one up again and again
/// at the same instant.
///
/// Catches it by its end: time does not pass.
#[test]
fn a_blocked_port_is_not_given_up_again_and_again() {
    let faults = "at 0s a:rdma_en3 hang create_qp; at 0s a:rdma_en2 slow-verb create_qp=300ms; \
                  at 0s a:rdma_en2 slow-verb modify_qp=100ms";
    let sim = Sim::new().topology(cables(&[LineRate::TB5; 2])).faults(faults.parse().unwrap());
    let took = sim.run(async |net| {
        net.sleep(Duration::from_nanos(1)).await;
        let start = net.now();
        let pair = connected_over(&net, &[DEVICE, OTHER], &limited()).await;
        assert_eq!(pair.a.device_stats().blocked_calls, 1);
        send_other(&net, &pair).await;
        net.now() - start
    });
    assert!(
        took.value > LIMIT,
        "{took:?} is not beyond the limit of the port that is blocked",
        took = took.value
    );
}

/// Regression, found by the same schedule: what a call had made that returned after its limit was kept for good.
///
/// Catches a device that still counts as blocked while the late outcome of its call is given up.
#[test]
fn what_a_late_call_has_made_is_given_up() {
    for verb in ["reg_mr", "create_qp", "modify_qp"] {
        let run = Sim::new().run(async |net| {
            let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &[DEVICE], &limited()));
            inject(&net, &format!("slow-verb {verb}=2s")).await;
            let failed = connect(&a, &b).await.map(drop);
            inject(&net, &format!("slow-verb {verb}=0ns")).await;
            net.sleep(Duration::from_secs(30)).await;
            assert_eq!(a.device_stats().blocked_calls, 0, "{verb}");
            assert!(a.pool_stats().is_whole(), "{verb}: {:?}", a.pool_stats());
            matches!(failed, Err(ConnectError::Blocked(_)))
        });
        assert!(run.value, "{verb}: the call has returned in time");
        assert!(run.leaks.is_empty(), "{verb}: {:?}", run.leaks);
    }
}

/// Catches a side that gives up while the device of the other side takes its time within the limit, at first and when a path returns.
#[test]
fn a_slow_device_at_one_side_is_waited_for() {
    for (verb, longest) in [("modify_qp", 490_u64), ("create_qp", 1400), ("reg_mr", 1400)] {
        for ms in (1..=7).map(|part| longest * part / 7) {
            for side in ["a", "b"] {
                let faults = format!("at 0s {side}:{DEVICE} slow-verb {verb}={ms}ms");
                let run = Sim::new().faults(faults.parse().unwrap()).run(async |net| {
                    net.sleep(Duration::from_nanos(1)).await;
                    let Pair { a: _a, b: _b, ab, ba } = connected_over(&net, &[DEVICE], &options()).await;
                    inject(&net, "flap 5ms").await;
                    net.sleep(Duration::from_millis(6)).await;
                    let start = net.now();
                    let (sent, got) = join(ab.send_bytes(b"again"), ba.recv()).await;
                    sent.unwrap();
                    assert_eq!(*got.unwrap().unwrap(), *b"again");
                    net.now() - start
                });
                // Made once, and after the path that was given up has ended.
                assert!(run.value < Duration::from_millis(7 * ms), "{verb} {ms} {side}: {:?}", run.value);
            }
        }
    }
}

/// Catches a peer that keeps its end of a path which the other side has failed to connect, until no packet has come for long.
#[test]
fn a_peer_learns_of_a_path_that_could_not_be_connected() {
    // Two transitions make the queue pairs of a path, and four connect them: too many for the limit.
    let faults = format!("at 0s a:{DEVICE} slow-verb modify_qp=300ms").parse().unwrap();
    let run = Sim::new().topology(cables(&[LineRate::TB5; 2])).faults(faults).run(async |net| {
        net.sleep(Duration::from_nanos(1)).await;
        let pair = connected_over(&net, &[DEVICE, OTHER], &limited()).await;
        net.sleep(Duration::from_millis(1000)).await;
        assert_eq!(pair.ba.snapshot().paths[0].status, PathStatus::Unproven);
        net.sleep(Duration::from_millis(700)).await;
        pair.ba.snapshot().paths[0].status
    });
    assert_eq!(run.value, PathStatus::Down);
}
