//! What happens to sessions when cables, peers and processes fail

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, select};
use rdma_async::{Device, Node, PathStatus, RecvError, SendError, SessionError};
use rdma_core::Time;
use rdma_sim::{LineRate, Model, Net, Sim};
use rdma_tests::{
    DEVICE, Hooks, connect, connected, connected_over, hooked_node_over, node_over, nodes, options, zeros,
};

use super::exchange;
use super::figures::cables;

const TWO_PORTS: [&str; 2] = [DEVICE, "rdma_en3"];

/// Catches messages that are lost, repeated or misplaced when they change the cable.
#[test]
fn a_session_goes_on_over_the_other_cable() {
    for at in ["600us", "1ms", "2ms"] {
        for port in TWO_PORTS {
            let faults = format!("at {at} b:{port} unplug");
            let run = Sim::new().topology(cables(&[LineRate::TB5; 2])).faults(faults.parse().unwrap()).run(
                async |net| {
                    let pair = connected_over(&net, &TWO_PORTS, &options()).await;
                    let lens: Vec<_> = (0..60).map(|number| [1 << 20, 100, 30_000][number % 3]).collect();
                    exchange(&pair, &lens).await;
                    // 21 MB over one cable, the time until the port is seen to be down, and some round trips.
                    assert!(net.now().as_nanos() < 10_000_000, "{faults}: {}", net.now());
                },
            );
            assert_eq!(run.findings, [], "{faults}");
        }
    }
}

/// A cable that is back is used again: UCX looks every five seconds.
#[test]
fn a_transfer_goes_on_within_20_ms_of_the_replug() {
    for (out, back) in [(1, 8), (1, 100), (2, 1500)] {
        let faults = format!("at {out}ms b:rdma_en2 unplug; at {back}ms b:rdma_en2 replug");
        Sim::new().faults(faults.parse().unwrap()).run(async |net| {
            let pair = connected(&net, &options()).await;
            exchange(&pair, &[1 << 20; 20]).await;
            let end = net.now().as_nanos();
            // 20 MiB take 2.3 ms.
            assert!((back..back + 23).contains(&(end / 1_000_000)), "{faults}: {}", net.now());
        });
    }
}

/// Regression: an outage between two looks at the port was noticed by the next heartbeat, 250 ms later, if nothing was posted.
/// Catches a receiver of a long message that does not ask when nothing comes.
#[test]
fn an_outage_too_short_to_be_seen_costs_no_more_than_20_ms() {
    const LENS: [&[usize]; 3] = [&[1 << 20; 12], &[30_000; 300], &[100; 3_000]];
    for (number, lens) in LENS.into_iter().enumerate() {
        for at in (500..1_500).step_by(61) {
            let host = ["a", "b"][at % 2];
            let back = at + [150, 1_000, 2_000, 3_300][(at + number) % 4];
            let faults = format!("at {at}us {host}:rdma_en2 unplug; at {back}us {host}:rdma_en2 replug");
            Sim::new().faults(faults.parse().unwrap()).run(async |net| {
                let pair = connected(&net, &options()).await;
                exchange(&pair, lens).await;
                assert!(net.now().as_nanos() < 20_000_000, "{lens:?}, {faults}: {}", net.now());
            });
        }
    }
}

/// Catches a drill that one side alone learns of, that spares a cable, or after which something is lost, repeated or waits.
#[test]
fn broken_paths_are_made_again_and_nothing_is_lost() {
    const LENS: [&[usize]; 4] = [&[100; 3_000], &[30_000; 300], &[1 << 20; 12], &[0, 4 << 20, 64, 68_545]];
    for lens in LENS {
        for (cable_count, is_sender) in [(1, true), (1, false), (2, true), (2, false)] {
            let ports = &TWO_PORTS[..cable_count];
            let run = Sim::new().topology(cables(&[LineRate::TB5; 2][..cable_count])).run(async |net| {
                let pair = connected_over(&net, ports, &options()).await;
                // Paths of the second cable are made while the session is used.
                net.sleep(Duration::from_millis(10)).await;
                let breaking = async {
                    for _ in 0..3 {
                        net.sleep(Duration::from_micros(150)).await;
                        if is_sender { &pair.ab } else { &pair.ba }.break_paths();
                    }
                };
                let start = net.now();
                join(exchange(&pair, lens), breaking).await;
                let took = net.now() - start;
                assert!(took < Duration::from_millis(20), "{lens:?}, {cable_count}, {is_sender}: {took:?}");
                for session in [&pair.ab, &pair.ba] {
                    for path in session.snapshot().paths {
                        assert!(path.counts.made >= 2, "{lens:?}, {cable_count}, {is_sender}: {path:?}");
                    }
                }
            });
            assert_eq!(run.findings, []);
        }
    }
}

/// Catches a session that ends because of a drill while no message is under way.
#[test]
fn a_drill_at_rest_does_not_end_a_session() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        for round in 0..5 {
            pair.ab.break_paths();
            pair.ba.break_paths();
            net.sleep(Duration::from_secs(round * 3)).await;
        }
        exchange(&pair, &[1 << 20, 100]).await;
    });
}

/// Catches a peer that is given up later than its timeout says.
#[test]
fn a_peer_that_is_killed_is_lost_within_the_timeout() {
    for timeout in [Duration::from_millis(100), Duration::from_secs(2)] {
        Sim::new().faults("at 5ms b kill".parse().unwrap()).run(async |net| {
            let pair = connected(&net, &options().peer_timeout(timeout)).await;
            let start = net.now();
            let lost = SessionError::PeerLost(timeout);
            assert_eq!(pair.ab.recv().await.unwrap_err(), RecvError::Lost(lost.clone()));
            let took = net.now() - start;
            assert!(took <= timeout + Duration::from_millis(15), "{took:?} of {timeout:?}");
            assert_eq!(pair.ab.send_bytes(b"too late").await, Err(SendError::Lost(lost)));
        });
    }
}

/// Catches a peer that is given up before its timeout is over.
#[test]
fn a_session_survives_a_pause_of_its_peer() {
    for (pause, resume) in [(1, 300), (1, 900), (2, 1400)] {
        let faults = format!("at {pause}ms b pause; at {resume}ms b resume");
        let run = Sim::new().faults(faults.parse().unwrap()).run(async |net| {
            let pair = connected(&net, &options()).await;
            exchange(&pair, &[1 << 20; 20]).await;
        });
        assert_eq!(run.findings, [], "{faults}");
    }
}

/// Regression: each side looked at its port 250 times a second, which was most of what a simulation did. Catches
/// looks at a port whose device tells of changes.
#[test]
fn a_session_at_rest_is_polled_only_for_its_heartbeats() {
    let run = Sim::new().run(async |net| {
        let _pair = connected(&net, &options()).await;
        net.sleep(Duration::from_mins(1)).await;
    });
    assert!(run.steps < 5_000, "{} polls in a minute", run.steps);
}

/// A device that does not tell of changes of its port
struct Untold;

impl Hooks for Untold {
    fn is_port_watched(&self) -> bool {
        false
    }
}

/// Asserts that a session at rest has lost a path `within` so long after faults, and not before
async fn assert_noticed<D: Device>(net: &Net, a: Node<D>, b: Node<D>, at: u64, within: Duration, plan: &str) {
    let (ab, _ba) = connect(&a, &b).await.unwrap();
    net.sleep_until(Time::from_nanos(at * 1_000 - 1)).await;
    let status = || ab.snapshot().paths[0].status;
    assert_eq!(status(), PathStatus::Up, "{plan}");
    net.sleep_until(Time::from_nanos(at * 1_000) + within).await;
    assert_eq!(status(), PathStatus::Down, "{plan}");
}

/// Catches a device that wakes no task when its port changes, a look at the ports that waits for the next one by the clock, and ports of other
/// devices that are not looked at.
#[test]
fn a_port_that_goes_down_is_noticed_at_once_or_within_4_ms_by_the_device() {
    for fault in ["b:rdma_en2 unplug", "b rdma-off", "b sleep", "b reboot 1s"] {
        for at in [20_300, 23_900] {
            let plan = format!("at {at}us {fault}");
            let sim = || Sim::new().topology(cables(&[LineRate::TB5; 2])).faults(plan.parse().unwrap());
            sim().run(async |net| {
                let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &TWO_PORTS, &options()));
                assert_noticed(&net, a, b, at, Duration::from_micros(20), &plan).await;
            });
            sim().run(async |net| {
                let node = |host| hooked_node_over(&net, host, &TWO_PORTS, &Arc::new(Untold), &options());
                assert_noticed(&net, node("a"), node("b"), at, Duration::from_micros(4_100), &plan).await;
            });
        }
    }
}

/// From the third round trip on after one of two cables was pulled, as much arrives as long after. Catches a path that
/// is not lost with a post that its device refuses, nor with a change of its port.
#[test]
fn goodput_is_back_three_round_trips_after_a_port_went_down() {
    for (len, model) in [(4_000, Model::tb5()), (1 << 20, Model::tb5()), (1 << 20, Model::roce())] {
        for at in [2_000, 2_123, 3_777] {
            for end in ["a:rdma_en2", "b:rdma_en3"] {
                let plan = format!("at {at}us {end} unplug");
                let sim = Sim::new().topology(cables(&[LineRate::TB5; 2])).model(model.clone());
                sim.faults(plan.parse().unwrap()).run(async |net| {
                    let pair = connected_over(&net, &TWO_PORTS, &options()).await;
                    let sends = async { while pair.ab.send(zeros(&pair.ab, len).await).await.is_ok() {} };
                    let mut arrivals = Vec::new();
                    let receives = async {
                        while net.now() < Time::from_nanos((at + 3_000) * 1_000) {
                            drop(pair.ba.recv().await.unwrap());
                            arrivals.push(net.now().as_nanos() / 1_000);
                        }
                    };
                    select(pin!(sends), pin!(receives)).await;
                    // In the millisecond from so many microseconds after the port went down on
                    let arrived = |from: u64| {
                        let millisecond = at + from..at + from + 1_000;
                        arrivals.iter().filter(|time| millisecond.contains(time)).count()
                    };
                    let (soon, later) = (arrived(36), arrived(1_500));
                    assert!(later * len > 7_000_000, "{plan}: {later} messages");
                    // A long message may miss the end of the millisecond.
                    assert!(
                        20 * (soon + 1) >= 19 * later,
                        "{len} bytes, {plan}: {soon} messages, {later} later"
                    );
                });
            }
        }
    }
}

/// Entries of the GID table move and leave holes, interfaces give themselves other addresses, a port grants just what was asked for.
/// Catches a GID that is looked up once for all, and memory that cannot be registered.
#[test]
fn a_session_survives_flaps_and_moving_gids_on_the_strict_side_of_every_rule() {
    let faults = "at 5ms a:rdma_en2 flap 5ms; at 30ms b:rdma_en2 gid-at 4; at 40ms a:rdma_en2 flap 5ms; at 70ms b rdma-off; \
                  at 75ms b rdma-on";
    for model in [Model::tb5(), Model::tb5_strict()] {
        let run = Sim::new().model(model).faults(faults.parse().unwrap()).run(async |net| {
            let pair = connected(&net, &options()).await;
            net.sleep(Duration::from_millis(100)).await;
            exchange(&pair, &[1 << 20; 3]).await;
        });
        assert_eq!(run.findings, []);
    }
}

/// After a reboot ports have other addresses: the program that starts again finds its peer by them. Catches a simulated reboot after
/// which they are the same.
#[test]
fn a_program_connects_again_after_a_reboot_with_other_addresses() {
    let mut model = Model::tb5();
    model.rules.reboot_readdresses = true;
    Sim::new().model(model).faults("at 20ms b reboot 50ms".parse().unwrap()).run(async |net| {
        // The table has other entries as well.
        let addresses = || {
            let gids = net.gids("b", DEVICE).unwrap();
            gids.iter().filter_map(|gid| gid.ipv4()).collect::<Vec<_>>()
        };
        let before = addresses();
        drop(connected(&net, &options()).await);
        net.sleep(Duration::from_millis(200)).await;
        assert_ne!(before, addresses());
        let pair = connected(&net, &options()).await;
        exchange(&pair, &[1 << 20; 3]).await;
    });
}

/// A cable that carries nothing, and does not say so, is given up after its timeout; another one takes over.
#[test]
fn a_session_survives_a_long_loss_on_one_cable() {
    Sim::new()
        .topology(cables(&[LineRate::TB5; 2]))
        .faults("after 300 frames b:rdma_en2 lose 4000".parse().unwrap())
        .run(async |net| {
            let pair = connected_over(&net, &TWO_PORTS, &options()).await;
            exchange(&pair, &[1 << 20; 20]).await;
        });
}

/// Sessions with the same peer share paths: the eleventh needs no queue pair. Catches a session that still counts as not accepted
/// when it was accepted.
#[test]
fn many_sessions_share_the_paths_of_a_peer() {
    Sim::new().run(async |net| {
        let first = connected(&net, &options()).await;
        for number in 0..40u8 {
            let ab = first.ab.open().unwrap();
            let ba = first.b.accept().await.unwrap();
            ab.send_bytes(&[number]).await.unwrap();
            assert_eq!(*ba.recv().await.unwrap().unwrap(), [number]);
            // The peer may keep what it got.
            let (closed, end) = join(ab.close(), ba.recv()).await;
            closed.unwrap();
            assert!(end.unwrap().is_none());
        }
    });
}

/// Catches a node without peers that keeps the handle of a device which is dead after a replug.
#[test]
fn a_node_without_a_peer_connects_after_a_replug() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options());
        for _ in 0..3 {
            net.inject("at 0s b:rdma_en2 flap 5ms".parse().unwrap());
            net.sleep(Duration::from_millis(10)).await;
            let (ab, ba) = connect(&a, &b).await.unwrap();
            drop((ab, ba));
            join(a.wait_idle(), b.wait_idle()).await;
        }
    });
}
