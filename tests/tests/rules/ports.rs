//! Ports, addresses and cables

use std::time::Duration;

use rdma_core::{Cause, CompletionQueue, Device, PortState, QpAttr, QpInit, QpState, QueuePair, Verb};
use rdma_sim::{LineRate, Model, Sim, Topology};
use rdma_tests::DEVICE;

use super::{bare, device, errno, happen, on_pair, pair, passes, rest, under};
use crate::counting::{Simulate, value_of};

#[test]
fn a_port_is_active_while_rdma_is_enabled_at_both_ends() {
    use PortState::{Active, Down};
    Sim::new().simulate(async |net| {
        let states = || ["a", "b"].map(|host| net.port(host, DEVICE).unwrap().state);
        assert_eq!(states(), [Active; 2]);
        assert_eq!(net.port("a", "rdma_en3").unwrap().state, Down, "without a cable");
        for (fault, expected) in [
            ("b rdma-off", Down),
            ("b rdma-on", Active),
            ("a:rdma_en2 unplug", Down),
            ("b:rdma_en2 replug", Active),
            ("a sleep", Down),
            ("a wake", Active),
        ] {
            happen(&net, fault).await;
            assert_eq!(states(), [expected; 2], "{fault}");
        }
    });
}

#[test]
fn a_down_port_can_be_queried_and_nothing_can_be_created_on_it() {
    Sim::new().simulate(async |net| {
        let open = device(&net, "a");
        happen(&net, "b rdma-off").await;
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Down);
        assert_eq!(net.port("a", DEVICE).unwrap().bits_per_second, 0);
        assert!(!net.gids("a", DEVICE).unwrap().is_empty());
        assert_eq!(open.port().unwrap().state, PortState::Down);
        assert_eq!(open.create_cq(1).unwrap_err().cause, Cause::DeviceGone, "it was opened before");
        let context = net.open_context("a", DEVICE).unwrap();
        assert_eq!(context.port().unwrap().state, PortState::Down);
        assert!(!context.gids().unwrap().is_empty());
        let refused = [context.alloc_pd().unwrap_err(), context.create_cq(1).unwrap_err()];
        assert_eq!(refused.map(|error| error.verb), [Verb::AllocPd, Verb::CreateCq]);
        assert_eq!(refused.map(|error| (error.cause, error.errno())), [(Cause::PortDown, 22); 2]);
    });
}

#[test]
fn devices_trade_names_after_a_restart() {
    Sim::new().simulate(async |net| {
        let gids = net.gids("a", DEVICE).unwrap();
        happen(&net, "a renumber").await;
        assert_eq!(
            net.port("a", DEVICE).unwrap().state,
            PortState::Down,
            "the cable is in another device now"
        );
        let found = ["rdma_en3", "rdma_en4"].into_iter().find(|name| net.gids("a", name).unwrap() == gids);
        assert_eq!(net.port("a", found.unwrap()).unwrap().state, PortState::Active);
        assert_eq!(errno(net.open("a", "rdma_en9").map_err(rdma_core::Error::from)), 22);
    });
}

#[test]
fn gid_tables_mirror_addresses() {
    Sim::new().simulate(async |net| {
        let [a, b] = ["a", "b"].map(|host| net.gids(host, DEVICE).unwrap());
        for gids in [&a, &b] {
            assert_eq!(gids.len(), 3);
            assert_eq!(gids[0].0[..2], [0xfe, 0x80], "the EUI-64 of the port comes first");
            assert_eq!(gids[0].0[11..13], [0xff, 0xfe], "{}", gids[0]);
            assert!(gids[1].ipv4().is_some_and(|address| address.is_link_local()));
            assert_eq!(gids[2].0[..2], [0xfe, 0x80], "the secured address");
        }
        assert!(a.iter().all(|gid| !b.contains(gid)));
    });
}

#[test]
fn the_ipv4_entry_may_be_anywhere() {
    Sim::new().simulate(async |net| {
        happen(&net, "a:rdma_en2 gid-at 4").await;
        let gids = net.gids("a", DEVICE).unwrap();
        assert_eq!(gids.iter().position(|gid| gid.ipv4().is_some()), Some(4));
        assert!(gids[3].is_zero(), "entries that are not set are zeros");
        // A program that searches for the entry connects; a program that uses index 1 does not.
        let (mut a, mut b) = (bare(&net, "a"), bare(&net, "b"));
        let (attr, mask) = QpAttr::ready_to_receive(&b.qp().address(), 1, 1024);
        let other = bare(&net, "a");
        assert_eq!(errno(other.qp().modify_attr(&attr, mask)), 22);
        a.connect(&b).unwrap();
        assert!(passes(&net, &mut a, &mut b).await);
    });
}

#[test]
fn a_captured_port_has_no_gids() {
    Sim::new().simulate(async |net| {
        happen(&net, "a:rdma_en2 no-gids").await;
        assert_eq!(net.gids("a", DEVICE).unwrap(), []);
        let [a, b] = ["a", "b"].map(|host| bare(&net, host));
        assert_eq!(a.qp().connect(&b.qp().address()).unwrap_err().cause, Cause::GidTableEmpty);
    });
}

/// Catches a secured link-local address that stays.
#[test]
fn a_captured_port_may_keep_its_first_entry() {
    Sim::new().simulate(async |net| {
        let before = net.gids("a", DEVICE).unwrap();
        happen(&net, "a:rdma_en2 captured").await;
        assert_eq!(net.gids("a", DEVICE).unwrap(), before[..1]);
        let [a, b] = ["a", "b"].map(|host| bare(&net, host));
        assert_eq!(a.qp().connect(&b.qp().address()).unwrap_err().cause, Cause::NoUsableGid);
    });
}

#[test]
fn a_port_without_an_address_has_no_usable_gid() {
    Sim::new().simulate(async |net| {
        happen(&net, "a:rdma_en2 link-local-gids").await;
        let [a, b] = ["a", "b"].map(|host| bare(&net, host));
        assert!(net.gids("a", DEVICE).unwrap().iter().all(|gid| gid.ipv4().is_none()));
        assert_eq!(a.qp().connect(&b.qp().address()).unwrap_err().cause, Cause::NoUsableGid);
    });
}

#[test]
fn an_interface_that_is_down_stops_only_new_connections() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "a:rdma_en2 interface-down").await;
        assert!(passes(&net, &mut a, &mut b).await);
        let [c, d] = ["a", "b"].map(|host| bare(&net, host));
        assert_eq!(errno(c.qp().connect(&d.qp().address())), 60);
        assert_eq!(errno(d.qp().connect(&c.qp().address())), 60);
        happen(&net, "a:rdma_en2 resolvable").await;
        let [c, d] = ["a", "b"].map(|host| bare(&net, host));
        c.qp().connect(&d.qp().address()).unwrap();
    });
}

/// Regression: `resolvable` changed the named port only while the cable was out, and the other port stayed unresolvable for ever.
#[test]
fn a_cable_becomes_resolvable_at_both_ends_while_it_is_out() {
    on_pair(async |net, _| {
        for fault in
            ["a:rdma_en2 unresolvable", "a:rdma_en2 unplug", "a:rdma_en2 resolvable", "a:rdma_en2 replug"]
        {
            happen(&net, fault).await;
        }
        let [c, d] = ["a", "b"].map(|host| bare(&net, host));
        c.qp().connect(&d.qp().address()).unwrap();
        d.qp().connect(&c.qp().address()).unwrap();
    });
}

/// `a` – `b` – `c`
fn chain() -> Topology {
    let macs = Topology::new().host("a", 3).host("b", 3).host("c", 3);
    macs.cable(("a", 0), ("b", 0), LineRate::TB5).cable(("b", 1), ("c", 0), LineRate::TB5)
}

#[test]
fn a_device_reaches_only_the_mac_at_its_cable() {
    Sim::new().topology(chain()).simulate(async |net| {
        let [a, c] = ["a", "c"].map(|host| bare(&net, host));
        assert_eq!(a.qp().connect(&c.qp().address()).unwrap_err().cause, Cause::PeerUnreachable);
        // Nor does the right Mac answer at its wrong port.
        let cq = net.open("b", "rdma_en3").unwrap();
        let cq = cq.create_cq(8).unwrap();
        let wrong = cq.create_qp(&QpInit::with_frames(7)).unwrap();
        let a = bare(&net, "a");
        assert_eq!(errno(a.qp().connect(&wrong.address())), 60);
    });
}

#[test]
fn a_queue_pair_cannot_reach_its_own_device() {
    Sim::new().simulate(async |net| {
        let [one, two] = [(); 2].map(|()| bare(&net, "a"));
        assert_eq!(errno(one.qp().connect(&two.qp().address())), 60);
        assert_eq!(one.qp().state(), QpState::Init);
    });
}

#[test]
fn a_sleeping_mac_takes_its_ports_along() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "b sleep").await;
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Down);
        assert_eq!(a.send(1, 0..1).unwrap_err().cause, Cause::DeviceGone);
        happen(&net, "b wake").await;
        assert_eq!(b.recv(1, 0..1).unwrap_err().cause, Cause::DeviceGone, "the old connection has ended");
        drop((a, b));
        let [mut a, mut b] = pair(&net);
        assert!(passes(&net, &mut a, &mut b).await);
    });
}

#[test]
fn a_link_that_looks_up_may_have_no_protection_domains() {
    Sim::new().simulate(async |net| {
        happen(&net, "a:rdma_en2 no-pds").await;
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Active);
        let refused = rdma_core::Error::from(net.open("a", DEVICE).unwrap_err());
        assert_eq!((refused.verb, refused.errno()), (Verb::AllocPd, 12));
        happen(&net, "a:rdma_en2 flap 1ms").await;
        rest(&net, Duration::from_millis(2)).await;
        net.open("a", DEVICE).unwrap();
    });
}

#[test]
fn ports_of_40_gbps_have_devices_or_none() {
    use rdma_sim::topology::MacModel;

    let older = MacModel::ALL.into_iter().find(|mac| mac.line_rate() == LineRate::TB4).unwrap();
    for has_devices in [true, false] {
        let mut model = Model::tb5();
        model.rules.tb4_devices = has_devices;
        let sim = Sim::new().model(model).topology(Topology::line(2, older).unwrap());
        sim.simulate(async |net| {
            let opened = net.open_context("a", "rdma_en2");
            assert_eq!(opened.is_ok(), has_devices, "{opened:?}");
        });
    }
}

/// Sources: the listing in Apple TN3205, and mlx#3389. Addresses that the topology sets stay where it sets them.
#[test]
fn the_ipv4_entry_begins_at_either_index() {
    let begins = |index, set: &[&str]| {
        let mut topology = Topology::pair();
        if !set.is_empty() {
            let addresses = set.iter().map(|address| address.parse().unwrap());
            topology.set_addresses(("a", DEVICE), addresses).unwrap();
        }
        value_of(under(|rules| rules.ipv4_gid_index = index).topology(topology), async |net| {
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            a.connect(&b).unwrap();
            net.gids("a", DEVICE).unwrap().iter().position(|gid| gid.ipv4().is_some())
        })
    };
    assert_eq!([1, 2].map(|index| begins(index, &[])), [Some(1), Some(2)]);
    assert_eq!([1, 2].map(|index| begins(index, &["fe80::1", "169.254.7.7", "fe80::2"])), [Some(1), Some(1)]);
    assert_eq!([1, 2].map(|index| begins(index, &["169.254.7.7"])), [Some(0), Some(0)]);
}

/// As on the ds4 rig: after a flap the IPv4 entry stands at index 2, and index 1 is empty. Programs that ask for index 1 fail.
#[test]
fn the_ipv4_entry_moves_when_a_link_comes_up_again() {
    let indices = |moves| {
        value_of(under(|rules| rules.gids_move = moves), async |net| {
            let mut indices = Vec::new();
            for fault in
                ["a:rdma_en2 flap 1ms", "b sleep", "b wake", "a:rdma_en2 unplug", "a:rdma_en2 replug"]
            {
                happen(&net, fault).await;
                rest(&net, Duration::from_millis(2)).await;
                let found = ["a", "b"].map(|host| {
                    let gids = net.gids(host, DEVICE).unwrap();
                    assert!(
                        gids[0].0[..2] == [0xfe, 0x80]
                            && gids.iter().filter(|gid| !gid.is_zero()).count() == 3
                    );
                    gids.iter().position(|gid| gid.ipv4().is_some()).unwrap()
                });
                indices.push(found);
            }
            let (a, b) = (bare(&net, "a"), bare(&net, "b"));
            let (attr, mask) = QpAttr::ready_to_receive(&b.qp().address(), 1, 1024);
            let by_index = a.qp().modify_attr(&attr, mask).map_err(|error| error.errno());
            let (c, d) = (bare(&net, "a"), bare(&net, "b"));
            (indices, by_index, c.connect(&d))
        })
    };
    let moved = vec![[2, 2], [2, 2], [1, 1], [1, 1], [2, 2]];
    assert_eq!(indices(true), (moved, Err(22), Ok(())));
    assert_eq!(indices(false), (vec![[1, 1]; 5], Ok(()), Ok(())));
}

#[test]
fn addresses_survive_a_reboot_or_not() {
    let run = |readdresses, is_self_assigned, set: Option<&str>| {
        let change = |rules: &mut rdma_sim::Rules| {
            (rules.reboot_readdresses, rules.gids_move) = (readdresses, false);
            rules.link_local_source = is_self_assigned;
        };
        let mut topology = Topology::pair();
        if let Some(address) = set {
            topology.set_addresses(("a", DEVICE), ["fe80::1", address].map(|a| a.parse().unwrap())).unwrap();
        }
        value_of(under(change).topology(topology), async |net| {
            let tables = || net.gids("a", DEVICE).unwrap();
            let mut before = tables();
            let mut same = Vec::new();
            for _ in 0..2 {
                happen(&net, "a reboot 1s").await;
                rest(&net, Duration::from_secs(2)).await;
                let after = tables();
                assert_eq!(before[0], after[0], "it derives from the hardware address");
                assert_eq!(after[1].ipv4().unwrap().is_link_local(), is_self_assigned);
                same.push(before == after);
                before = after;
            }
            same
        })
    };
    for is_self_assigned in [true, false] {
        assert_eq!(run(false, is_self_assigned, None), [true, true]);
        assert_eq!(run(true, is_self_assigned, None), [false, false]);
    }
    assert_eq!(run(true, false, Some("192.168.5.5")), [true, true], "it was set");
}

/// Catches IP that RDMA being off cuts, and IP over a cable that is pulled, or to a Mac that sleeps.
#[test]
fn ip_passes_while_the_cable_is_plugged_in_and_both_macs_are_awake() {
    Sim::new().simulate(async |net| {
        let peer = |host, device| net.interface(host, device).unwrap().neighbour;
        let (a, b) = (("a".to_owned(), DEVICE.to_owned()), ("b".to_owned(), DEVICE.to_owned()));
        assert_eq!((peer("a", DEVICE), peer("b", DEVICE)), (Some(b), Some(a)));
        assert_eq!((peer("a", "rdma_en3"), net.interface("a", "rdma_en9")), (None, None));
        let passes = || peer("a", DEVICE).is_some();
        for (fault, expected) in [
            ("b rdma-off", true),
            ("b:rdma_en2 unplug", false),
            ("a:rdma_en2 replug", true),
            ("a sleep", false),
            ("a wake", true),
            ("a:rdma_en2 interface-down", false),
        ] {
            happen(&net, fault).await;
            assert_eq!(passes(), expected, "{fault}");
        }
        let addresses = net.interface("a", DEVICE).unwrap().addresses;
        assert!(addresses.iter().any(|address| address.to_string() == "169.254.1.1"), "{addresses:?}");
        assert!(!addresses.iter().any(std::net::IpAddr::is_unspecified), "{addresses:?}");
    });
}
