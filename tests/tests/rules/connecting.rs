//! How the step to ready-to-receive fails

use std::time::Duration;

use rdma_core::{Cause, Device, QpAttr, QpInit, QpState, QueuePair, Transition};
use rdma_sim::rules::{SourceGid, Unresolved};
use rdma_sim::{Model, Sim, Topology};
use rdma_tests::DEVICE;

use super::{bare, errno, happen, pair, rest, under};
use crate::counting::{Simulate, value_of};

/// Every error number of the step to ready-to-receive, with its source.
#[test]
fn every_failing_step_has_its_errno() {
    let table = [
        ("mlx#3467", "a:rdma_en2 link-local-gids", 22, Cause::NoUsableGid),
        ("mlx#3389", "a:rdma_en2 gid-at 5", 22, Cause::NoUsableGid),
        ("exo#1847", "a:rdma_en2 unresolvable", 60, Cause::PeerUnreachable),
        ("mlx#3910", "b:rdma_en2 interface-down", 60, Cause::PeerUnreachable),
        ("mlx-jaccl-cluster, from-scratch.md", "a:rdma_en2 no-gids", 96, Cause::GidTableEmpty),
        ("mlx#3207", "a:rdma_en2 busy", 16, Cause::Busy),
    ];
    for (source, fault, errno, cause) in table {
        Sim::new().simulate(async |net| {
            happen(&net, fault).await;
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let (attr, mask) = QpAttr::ready_to_receive(&b.qp().address(), 1, 1024);
            let error = a.qp().modify_attr(&attr, mask).unwrap_err();
            assert_eq!((error.errno(), error.cause), (errno, cause), "{fault} ({source})");
            assert_eq!(a.qp().state(), QpState::Init);
        });
    }
}

/// The error numbers of the other verbs.
#[test]
fn every_failing_verb_has_its_errno() {
    let table = [
        ("mlx#4209", "a:rdma_en2 leak-qps 10", "create_qp", 16),
        ("nix-ai, rdma-protection-domains.md", "a:rdma_en2 leak-cqs 11", "create_cq", 12),
        ("mlx#3162", "a:rdma_en2 leak-mrs 100", "reg_mr", 12),
        ("nix-ai, rdma-protection-domains.md", "a:rdma_en2 leak-pds 11", "alloc_pd", 12),
        ("exo PR#1467", "a:rdma_en2 no-pds", "alloc_pd", 12),
        ("mlx PR#4530", "a:rdma_en2 unplug", "alloc_pd", 22),
        ("exo#1712", "a:rdma_en2 wedge", "alloc_pd", 16),
    ];
    for (source, fault, verb, errno) in table {
        Sim::new().simulate(async |net| {
            happen(&net, fault).await;
            let error = match net.open("a", DEVICE).map_err(rdma_core::Error::from) {
                Ok(device) => rdma_bare::BareQp::new(device, &QpInit::with_frames(7), 4096).unwrap_err(),
                Err(error) => error,
            };
            assert_eq!((error.verb.to_string().as_str(), error.errno()), (verb, errno), "{fault} ({source})");
        });
    }
}

#[test]
fn a_failed_step_cannot_be_repeated() {
    Sim::new().simulate(async |net| {
        let (a, b) = (bare(&net, "a"), bare(&net, "b"));
        happen(&net, "a:rdma_en2 unresolvable").await;
        assert_eq!(errno(a.qp().connect(&b.qp().address())), 60);
        happen(&net, "a:rdma_en2 resolvable").await;
        assert_eq!(a.qp().connect(&b.qp().address()).unwrap_err().cause, Cause::Busy);
        drop(a);
        bare(&net, "a").qp().connect(&b.qp().address()).unwrap();
    });
}

#[test]
fn repeated_failures_wedge_the_port_or_not() {
    let attempts = |limit| {
        value_of(under(|rules| rules.failed_rtr_wedges = limit), async |net| {
            let b = bare(&net, "b");
            happen(&net, "a:rdma_en2 unresolvable").await;
            for _ in 0..3 {
                assert_eq!(errno(bare(&net, "a").qp().connect(&b.qp().address())), 60);
            }
            happen(&net, "a:rdma_en2 resolvable").await;
            let refused = bare(&net, "a").qp().connect(&b.qp().address()).map_err(|error| error.errno());
            if limit.is_some() {
                happen(&net, "a reboot 30s").await;
                super::rest(&net, std::time::Duration::from_mins(1)).await;
                pair(&net);
            }
            refused
        })
    };
    assert_eq!(attempts(None), Ok(()));
    assert_eq!(attempts(Some(3)), Err(16));
}

#[test]
fn a_source_without_ipv4_is_refused_or_not() {
    let connect = |source_gid| {
        value_of(under(|rules| rules.source_gid = source_gid), async |net| {
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let (mut attr, mask) = QpAttr::ready_to_receive(&b.qp().address(), 0, 4096);
            attr.dgid = Some(net.gids("b", DEVICE).unwrap()[0]);
            a.qp().modify_attr(&attr, mask).map_err(|error| error.errno())
        })
    };
    assert_eq!(connect(SourceGid::Ipv4), Err(22));
    assert_eq!(connect(SourceGid::Any), Ok(()));
}

#[test]
fn a_169_254_address_will_do_or_not() {
    let connect = |will_do, set: Option<&str>| {
        let mut topology = Topology::pair();
        if let Some(address) = set {
            topology.set_addresses(("a", DEVICE), [address.parse().unwrap()]).unwrap();
        }
        value_of(under(|rules| rules.link_local_source = will_do).topology(topology), async |net| {
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let [own, peer] = [&a, &b].map(|end| end.qp().address().gid.ipv4().unwrap().is_link_local());
            (own, peer, a.qp().connect(&b.qp().address()).map_err(|error| error.errno()))
        })
    };
    assert_eq!(connect(true, None), (true, true, Ok(())));
    assert_eq!(connect(false, None), (false, false, Ok(())), "ports have addresses that work");
    assert_eq!(connect(true, Some("169.254.77.7")), (true, true, Ok(())));
    assert_eq!(connect(false, Some("169.254.77.7")), (true, false, Err(60)));
    assert_eq!(connect(false, Some("10.7.7.7")), (false, false, Ok(())));
}

#[test]
fn a_large_mtu_works_or_not() {
    let connect = |large_mtu, path_mtu| {
        value_of(under(|rules| rules.large_mtu = large_mtu), async |net| {
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let (attr, mask) = QpAttr::ready_to_receive(&b.qp().address(), 1, path_mtu);
            a.qp().modify_attr(&attr, mask).map_err(|error| error.errno())
        })
    };
    assert_eq!((connect(true, 1024), connect(true, 4096)), (Ok(()), Ok(())));
    assert_eq!((connect(false, 1024), connect(false, 4096)), (Ok(()), Err(60)));
}

#[test]
fn a_taken_receive_queue_refuses_the_step() {
    Sim::new().simulate(async |net| {
        let (a, b) = (bare(&net, "a"), bare(&net, "b"));
        happen(&net, "a:rdma_en2 busy").await;
        let step = Transition::ReadyToReceive { peer: b.qp().address() };
        assert_eq!(a.qp().modify(step).unwrap_err().cause, Cause::Busy);
        assert!(a.device().create_cq(8).is_ok(), "nothing else is refused");
    });
}

/// Sources: 60 by hellas and tmc/apple; 1 by the notes of the ds4 rig ("inet_arp_lookup failed").
#[test]
fn an_unresolved_neighbour_is_a_timeout_or_not_permitted() {
    let run = |unresolved| {
        value_of(under(|rules| rules.unresolved = unresolved), async |net| {
            happen(&net, "a:rdma_en2 unresolvable").await;
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let error = a.qp().connect(&b.qp().address()).unwrap_err();
            (error.errno(), error.cause)
        })
    };
    assert_eq!(run(Unresolved::TimedOut), (60, Cause::PeerUnreachable));
    assert_eq!(run(Unresolved::NotPermitted), (1, Cause::NoNeighbour));
}

/// Catches a transition that fails at once: programs that connect in their only thread stand still for a second on a Mac.
#[test]
fn an_unresolved_neighbour_takes_a_second() {
    let took = |model: Model| {
        value_of(Sim::new().model(model), async |net| {
            let (start, moment) = (net.now(), Duration::from_nanos(1));
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            a.qp().connect(&b.qp().address()).unwrap();
            rest(&net, moment).await;
            let connected = net.now().since(start);
            happen(&net, "a:rdma_en2 unresolvable").await;
            let (c, start) = (bare(&net, "a"), net.now());
            c.qp().connect(&b.qp().address()).unwrap_err();
            rest(&net, moment).await;
            let failed = net.now().since(start);
            // The second is over: nothing of it is left for the next verb.
            let start = net.now();
            rest(&net, moment).await;
            [connected, failed, net.now().since(start)].map(|time| time.as_nanos())
        })
    };
    let mut model = Model::tb5();
    assert_eq!(took(model.clone()), [1, 1, 1]);
    model.timing.verbs_block_tasks = true;
    assert_eq!(took(model.clone()), [1, 1_000_000_000, 1]);
    model.timing.unresolved_rtr_ns = 0;
    assert_eq!(took(model), [1, 1, 1]);
}

/// Only the task that has called the verb stands still.
#[test]
fn other_tasks_go_on_while_one_looks_for_a_neighbour() {
    let mut model = Model::tb5();
    model.timing.verbs_block_tasks = true;
    Sim::new().model(model).simulate(async |net| {
        happen(&net, "a:rdma_en2 unresolvable").await;
        let b = bare(&net, "b").qp().address();
        let of_task = net.clone();
        let (sender, receiver) = futures::channel::oneshot::channel();
        net.spawn(async move {
            bare(&of_task, "a").qp().connect(&b).unwrap_err();
            rest(&of_task, Duration::from_millis(1)).await;
            let _ = sender.send(of_task.now());
        });
        rest(&net, Duration::from_millis(10)).await;
        assert!(net.now() < rdma_core::Time::from_nanos(20_000_000), "{:?}", net.now());
        assert!(receiver.await.unwrap() >= rdma_core::Time::from_nanos(1_000_000_000));
    });
}
