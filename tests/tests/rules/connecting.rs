//! How the step to ready-to-receive fails

use rdma_core::{Cause, Device, QpAttr, QpInit, QpState, QueuePair, Transition};
use rdma_sim::Sim;
use rdma_sim::rules::SourceGid;
use rdma_tests::DEVICE;

use super::{bare, errno, happen, pair, under};
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
    let connect = |will_do| {
        value_of(under(|rules| rules.link_local_source = will_do), async |net| {
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            assert!(a.qp().address().gid.ipv4().unwrap().is_link_local());
            a.qp().connect(&b.qp().address()).map_err(|error| error.errno())
        })
    };
    assert_eq!(connect(true), Ok(()));
    assert_eq!(connect(false), Err(60));
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
