//! Cables that are pulled, peers that die, queue pairs that rest

use std::time::Duration;

use rdma_core::{Cause, CompletionQueue, Device, PortState, QpInit, QueuePair};
use rdma_sim::rules::SpoiledRtr;
use rdma_sim::{Net, Sim, Stalled};
use rdma_tests::DEVICE;

use super::{Bare, bare, device, errno, happen, on_pair, pair, passes, rest, under, within_a_second};
use crate::counting::{Simulate, value_of};

#[test]
fn the_death_of_a_peer_is_silent() {
    let run = Sim::new().try_run(async |net| {
        let [mut a, _b] = pair(&net);
        a.recv(1, 0..8).unwrap();
        happen(&net, "b kill").await;
        a.send(2, 8..16).unwrap();
        assert_eq!(within_a_second(&net, &mut a).await, []);
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Active);
        assert_eq!(a.qp().state(), rdma_core::QpState::ReadyToSend);
        a.completion().await.unwrap();
    });
    assert!(matches!(run.unwrap_err(), rdma_sim::RunError::Stalled(Stalled::Deadlock { .. })));
}

#[test]
fn the_kernel_reclaims_the_objects_of_a_dead_process() {
    on_pair(async |net, [_a, mut b]| {
        let full: Vec<_> = std::iter::from_fn(|| net.open("b", DEVICE).ok()).collect();
        assert_eq!(full.len(), 10);
        happen(&net, "b kill").await;
        assert_eq!(b.recv(1, 0..8).unwrap_err().cause, Cause::DeviceGone);
        drop(full);
        drop(b);
        let fresh: Vec<_> = std::iter::from_fn(|| net.open("b", DEVICE).ok()).collect();
        assert_eq!(fresh.len(), 11);
        let cq = fresh[0].create_cq(8).unwrap();
        assert!((0..10).all(|_| cq.create_qp(&QpInit::with_frames(7)).map(std::mem::forget).is_ok()));
    });
}

#[test]
fn after_unplugging_everything_is_refused() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "a:rdma_en2 unplug").await;
        for qp in [&mut a, &mut b] {
            let refused = qp.send(1, 0..8).unwrap_err();
            assert_eq!((refused.cause, refused.errno()), (Cause::DeviceGone, 6));
            assert_eq!(qp.recv(2, 8..16).unwrap_err().cause, Cause::DeviceGone);
            assert_eq!(qp.device().create_cq(8).unwrap_err().cause, Cause::DeviceGone);
            let peer = qp.qp().address();
            assert_eq!(qp.qp().connect(&peer).unwrap_err().cause, Cause::DeviceGone);
        }
        assert_eq!(errno(net.open("a", DEVICE).map_err(rdma_core::Error::from)), 22);
    });
}

#[test]
fn an_unplugged_cable_completes_nothing() {
    on_pair(async |net, [mut a, mut b]| {
        b.recv(1, 0..1 << 20).unwrap();
        a.send(1, 0..1 << 20).unwrap();
        rest(&net, Duration::from_micros(50)).await;
        happen(&net, "a:rdma_en2 unplug").await;
        assert_eq!(within_a_second(&net, &mut a).await, []);
        assert_eq!(within_a_second(&net, &mut b).await, []);
        let sent = net.cable_stats("a", DEVICE).unwrap()[0].frames;
        assert!((50..256).contains(&sent), "{sent}");
    });
}

#[test]
fn old_objects_are_useless_after_a_replug() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "a:rdma_en2 flap 1ms").await;
        rest(&net, Duration::from_millis(2)).await;
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Active);
        assert_eq!(a.send(1, 0..8).unwrap_err().cause, Cause::DeviceGone);
        assert_eq!(b.recv(1, 0..8).unwrap_err().cause, Cause::DeviceGone);
        assert_eq!(a.device().create_cq(8).unwrap_err().cause, Cause::DeviceGone);
        let [mut c, mut d] = pair(&net);
        assert_ne!(
            c.qp().address().qpn,
            a.qp().address().qpn,
            "the old one keeps its number until it is destroyed"
        );
        assert!(passes(&net, &mut c, &mut d).await);
        drop((a, b));
        assert!(passes(&net, &mut c, &mut d).await);
    });
}

#[test]
fn each_replug_costs_a_protection_domain() {
    let left = |leaks| {
        value_of(under(|rules| rules.replug_leaks_pds = leaks), async |net| {
            for _ in 0..3 {
                happen(&net, "a:rdma_en2 flap 1ms").await;
                rest(&net, Duration::from_millis(2)).await;
            }
            ["a", "b"]
                .map(|host| std::iter::from_fn(|| net.open(host, DEVICE).ok()).collect::<Vec<_>>().len())
        })
    };
    assert_eq!(left(0), [11, 11]);
    assert_eq!(left(1), [8, 8]);
    assert_eq!(left(2), [5, 5]);
}

/// Regression: a host whose RDMA was enabled, or that woke up, lost protection domains even where no link came up.
#[test]
fn only_a_link_that_comes_up_costs_a_protection_domain() {
    Sim::new().simulate(async |net| {
        for fault in [
            "a rdma-on",
            "a wake",
            "a:rdma_en2 replug",
            "a rdma-off",
            "a sleep",
            "a wake",
            "a:rdma_en2 unplug",
        ] {
            happen(&net, fault).await;
        }
        happen(&net, "a rdma-on").await;
        happen(&net, "b sleep").await;
        happen(&net, "a:rdma_en2 replug").await;
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Down);
        happen(&net, "b wake").await;
        let opened: Vec<_> = std::iter::from_fn(|| net.open("a", DEVICE).ok()).collect();
        assert_eq!(opened.len(), 10, "the link came up once");
    });
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn a_queue_pair_that_rests_too_long_is_dead() {
    let survives = |limit, pause| {
        value_of(under(|rules| rules.idle_death = limit), async |net| {
            let [mut a, mut b] = pair(&net);
            assert!(passes(&net, &mut a, &mut b).await);
            rest(&net, pause).await;
            passes(&net, &mut a, &mut b).await
        })
    };
    let measured = Some(23 * MINUTE);
    assert_eq!(rdma_sim::Rules::tb5().idle_death, measured);
    assert!(survives(measured, 22 * MINUTE));
    assert!(!survives(measured, 24 * MINUTE), "without an error");
    assert!(survives(None, 600 * MINUTE));
}

#[test]
fn a_message_a_minute_keeps_a_queue_pair_alive() {
    on_pair(async |net, [mut a, mut b]| {
        for _ in 0..120 {
            assert!(passes(&net, &mut a, &mut b).await);
            rest(&net, MINUTE).await;
        }
    });
}

#[test]
fn a_dead_queue_pair_takes_posts_and_completes_nothing() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "b:rdma_en2 idle-death").await;
        a.recv(2, 24..32).unwrap();
        b.send(2, 16..24).unwrap();
        assert!(!passes(&net, &mut a, &mut b).await);
        assert_eq!(a.poll().unwrap(), None);
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Active);
        let [mut a, mut b] = pair(&net);
        assert!(passes(&net, &mut a, &mut b).await, "a new one lives");
    });
}

#[test]
fn crossed_cables_lead_elsewhere() {
    use rdma_sim::{LineRate, Topology};
    let macs = Topology::new().host("a", 3).host("b", 3);
    let two = macs.cable(("a", 0), ("b", 0), LineRate::TB5).cable(("a", 1), ("b", 1), LineRate::TB5);
    Sim::new().topology(two).simulate(async |net| {
        let [mut a, mut b] = pair(&net);
        happen(&net, "a:rdma_en2 cross rdma_en3").await;
        assert_eq!(a.send(1, 0..8).unwrap_err().cause, Cause::DeviceGone);
        assert_eq!(b.send(1, 0..8).unwrap_err().cause, Cause::DeviceGone);
        let [a, b] = ["a", "b"].map(|host| bare(&net, host));
        assert_eq!(
            errno(a.qp().connect(&b.qp().address())),
            60,
            "the same names are not neighbours any more"
        );
        let far = net.open("b", "rdma_en3").unwrap();
        let mut far = super::Bare::new(far, &QpInit::with_frames(7), 1 << 16).unwrap();
        let mut near = super::Bare::new(device(&net, "a"), &QpInit::with_frames(7), 1 << 16).unwrap();
        near.connect(&far).unwrap();
        assert!(passes(&net, &mut near, &mut far).await);
    });
}

/// Sources: exo#1847 (22 on all nodes), exo#1973 (96 after a night).
#[test]
fn a_spoiled_port_fails_with_either_error_number() {
    let connect = |spoiled_rtr| {
        let change = |rules: &mut rdma_sim::Rules| {
            (rules.idle_death_spoils, rules.spoiled_rtr) = (true, spoiled_rtr);
        };
        value_of(under(change), async |net| {
            drop(pair(&net));
            let old = pair(&net);
            rest(&net, 24 * MINUTE).await;
            drop(old);
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let error = a.qp().connect(&b.qp().address()).unwrap_err();
            (error.errno(), error.cause)
        })
    };
    assert_eq!(connect(SpoiledRtr::NoUsableGid), (22, Cause::NoUsableGid));
    assert_eq!(connect(SpoiledRtr::GidTableEmpty), (96, Cause::GidTableEmpty));
}

/// Sources: exo#1847 and #1973, where new connections failed until a reboot; gojaccl, where they did not.
#[test]
fn idle_death_spoils_the_port_or_not() {
    /// Whether a new pair connects after idleness, and whether another does after a reboot.
    fn connects(spoils: bool, destroyed: bool) -> [Result<(), i32>; 2] {
        let change = |rules: &mut rdma_sim::Rules| rules.idle_death_spoils = spoils;
        value_of(under(change), async |net| {
            let connect = || {
                let (a, b) = (bare(&net, "a"), bare(&net, "b"));
                a.qp().connect(&b.qp().address()).map_err(|error| error.errno())
            };
            let old = pair(&net);
            rest(&net, 24 * MINUTE).await;
            if destroyed {
                drop(old);
                let first = connect();
                happen(&net, "a reboot 1s").await;
                rest(&net, Duration::from_secs(2)).await;
                return [first, connect()];
            }
            let first = connect();
            happen(&net, "a reboot 1s").await;
            rest(&net, Duration::from_secs(2)).await;
            drop(old);
            [first, connect()]
        })
    }
    assert_eq!(connects(false, false), [Ok(()), Ok(())]);
    assert_eq!(connects(true, false), [Err(22), Ok(())]);
    assert_eq!(connects(true, true), [Err(22), Ok(())], "destroying what is dead comes too late");
}

/// How many objects a host can still make after its processes have ended with so many of them, each time, and after a reboot
async fn left_after_ends<T>(net: &Net, used: &[usize], make: impl Fn() -> Option<T>) -> Vec<usize> {
    let free = || std::iter::from_fn(&make).collect::<Vec<_>>().len();
    let mut left = Vec::new();
    for &count in used {
        let _used: Vec<_> = (0..count).map(|_| make().unwrap()).collect();
        happen(net, "a restart").await;
        left.push(free());
    }
    happen(net, "a reboot 1s").await;
    rest(net, Duration::from_secs(2)).await;
    left.push(free());
    left
}

/// Sources: nix-ai and mlx#3207: "resource exhaustion after 2 to 3 launches", until a reboot.
#[test]
fn what_ends_of_processes_leak_adds_up_until_a_reboot() {
    let left = |leaks| {
        value_of(under(|rules| rules.process_end_leaks_pds = leaks), async |net| {
            left_after_ends(&net, &[2, 2, 2, 0], || net.open("a", DEVICE).ok()).await
        })
    };
    assert_eq!(left(0), [11; 5]);
    assert_eq!(left(1), [10, 9, 8, 8, 11], "an end that leaves nothing leaks nothing");
    assert_eq!(left(5), [9, 7, 5, 5, 11], "no more is leaked than there was");
}

/// Sources: mlx#3207 and nix-ai: queue pairs of crashed processes stay, and their ports refuse more.
#[test]
fn queue_pairs_that_ends_of_processes_leak_add_up_until_a_reboot() {
    let left = |leaks| {
        value_of(under(|rules| rules.process_end_leaks_qps = leaks), async |net| {
            let new = || Bare::new(net.open("a", DEVICE).ok()?, &QpInit::with_frames(7), 1).ok();
            left_after_ends(&net, &[2, 2, 0], new).await
        })
    };
    assert_eq!(left(0), [10; 4]);
    assert_eq!(left(1), [9, 8, 8, 10], "an end that leaves nothing leaks nothing");
    assert_eq!(left(5), [8, 6, 6, 10], "no more is leaked than there was");
}
