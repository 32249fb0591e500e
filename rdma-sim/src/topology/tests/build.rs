use rdma_core::Device;

use super::two_minis;
use crate::topology::{MacModel, Shape, Topology, TopologyError};
use crate::{LineRate, Sim};

#[test]
fn ports_are_given_by_position_or_by_device() {
    let by_position = two_minis().cable(("left", 1), ("right", 3), LineRate::TB5);
    let by_device = two_minis().cable(("left", "rdma_en3"), ("right", "rdma_en5"), LineRate::TB5);
    assert_eq!(by_position, by_device);
    let ends: Vec<_> = by_device.links().next().unwrap().ends.map(|end| (end.host, end.device)).into();
    assert_eq!(ends, [("left", "rdma_en3"), ("right", "rdma_en5")]);
}

#[test]
fn the_slowest_of_cable_and_ports_sets_the_rate() {
    let (tb4, tb5) = (MacModel::MacMiniM4, MacModel::MacMiniM4Pro);
    let slow = LineRate { bits_per_second: 10_000_000_000 };
    for (a, b, cable, rate) in [
        (tb5, tb5, LineRate::TB5, LineRate::TB5),
        (tb5, tb5, LineRate::TB4, LineRate::TB4),
        (tb4, tb5, LineRate::TB5, LineRate::TB4),
        (tb5, tb4, LineRate::TB5, LineRate::TB4),
        (tb4, tb4, slow, slow),
    ] {
        let topology = Topology::new().host("a", a).host("b", b).cable(("a", 0), ("b", 0), cable);
        let link = topology.links().next().unwrap();
        assert_eq!((link.cable_rate, link.rate), (cable, rate));
    }
}

#[test]
#[should_panic(expected = "left has no port 3: it has rdma_en2, rdma_en3, rdma_en4")]
fn the_chaining_form_panics_with_the_message_of_the_error() {
    let _ = two_minis().cable(("left", 3), ("right", 0), LineRate::TB5);
}

/// Asserts that a change is refused with `message`
fn assert_refused(message: &str, change: impl Fn(&mut Topology) -> Result<&mut Topology, TopologyError>) {
    let before = two_minis().cable(("left", 0), ("right", 1), LineRate::TB5);
    let mut topology = before.clone();
    assert_eq!(change(&mut topology).unwrap_err().to_string(), message);
    assert_eq!(topology, before, "a failure leaves the topology alone");
}

#[test]
fn an_impossible_topology_error_names_host_and_port() {
    type Attempt = fn(&mut Topology) -> Result<&mut Topology, TopologyError>;
    let table: [(Attempt, &str); 12] = [
        (
            |t| t.add_cable(("left", 0), ("right", "rdma_en4"), LineRate::TB5),
            "rdma_en2 of left has a cable to rdma_en3 of right already; free ports of left: rdma_en3, rdma_en4",
        ),
        (
            |t| t.add_cable(("left", 1), ("right", "rdma_en3"), LineRate::TB5),
            "rdma_en3 of right has a cable to rdma_en2 of left already; \
             free ports of right: rdma_en2, rdma_en4, rdma_en5",
        ),
        (
            |t| t.add_cable(("left", 1), ("right", "rdma_en6"), LineRate::TB5),
            "right has no port rdma_en6: it has rdma_en2, rdma_en3, rdma_en4, rdma_en5; \
             free of them: rdma_en2, rdma_en4, rdma_en5",
        ),
        (
            |t| t.add_cable(("left", 3), ("right", 0), LineRate::TB5),
            "left has no port 3: it has rdma_en2, rdma_en3, rdma_en4; free of them: rdma_en3, rdma_en4",
        ),
        (
            |t| t.add_cable(("left", 1), ("left", "rdma_en3"), LineRate::TB5),
            "both ends of a cable are in rdma_en3 of left: a cable joins two ports",
        ),
        (
            |t| t.add_cable(("left", 1), ("left", 2), LineRate::TB5),
            "a cable from rdma_en3 to rdma_en4 of left would join the Mac to itself: choose a port of another one",
        ),
        (
            |t| t.add_cable(("left", 1), ("wrong", 2), LineRate::TB5),
            "no host is called \"wrong\"; there are: left, right",
        ),
        (
            |t| t.add_cable(("left", 1), ("right", 2), LineRate { bits_per_second: 0 }),
            "the cable from rdma_en3 of left cannot run at 0 bit/s: give 1 bit/s to 1000 Gb/s",
        ),
        (|t| t.add_host("left", 3), "two hosts are called left: give one of them another name"),
        (|t| t.add_host("none", 0), "none cannot have 0 ports: a simulated Mac has 1 to 32"),
        (|t| t.add_host("many", 33), "many cannot have 33 ports: a simulated Mac has 1 to 32"),
        (
            |t| {
                t.set_addresses(
                    ("left", 2),
                    ["169.254.7.7", "::ffff:169.254.7.7"].map(|a| a.parse().unwrap()),
                )
            },
            "rdma_en4 of left has the address 169.254.7.7 twice: leave one of them out",
        ),
    ];
    for (attempt, message) in table {
        assert_refused(message, attempt);
    }
    let names = "a name has at least one character, and neither spaces, quotes, ':' nor ';'";
    for name in ["", "a:b", "a b", "a;b", "a's"] {
        assert_refused(&format!("\"{name}\" names no host: {names}"), |t| t.add_host(name, 3));
    }
}

#[test]
fn a_fifth_cable_on_a_mac_with_four_ports_says_that_none_is_free() {
    let mut star = Topology::star(5, 4).unwrap().host("f", 3);
    let error = star.add_cable(("a", "rdma_en6"), ("f", 0), LineRate::TB5).unwrap_err();
    let message = "a has no port rdma_en6: it has rdma_en2, rdma_en3, rdma_en4, rdma_en5; free of them: none";
    assert_eq!(error.to_string(), message);
}

#[test]
fn names_of_models_and_shapes_that_do_not_exist_are_answered_by_those_that_do() {
    let model = "mac-pro".parse::<MacModel>().unwrap_err().to_string();
    assert!(
        model.starts_with("no Mac model is called \"mac-pro\"; there are: mac-mini-m4, mac-mini-m4-pro,"),
        "{model}"
    );
    assert!(model.ends_with("mac-studio-m3-ultra, and generic-N with N ports"), "{model}");
    let shape = "torus".parse::<Shape>().unwrap_err().to_string();
    assert_eq!(shape, "no shape is called \"torus\"; there are: line, mesh, pair, ring, star");
}

#[test]
fn simulated_devices_have_the_rates_and_gids_of_the_topology() {
    let mut topology = Topology::new().host("a", MacModel::MacMiniM4).host("b", 3).cable(
        ("a", "rdma_en3"),
        ("b", "rdma_en2"),
        LineRate::TB5,
    );
    topology.set_addresses(("b", 0), ["169.254.9.9".parse().unwrap()]).unwrap();
    let expected = topology.clone();
    Sim::new().topology(topology).run(async move |net| {
        for (host, device) in [("a", "rdma_en3"), ("b", "rdma_en2")] {
            let opened = net.open(host, device).unwrap();
            let port = expected.find_host(host).unwrap().port(device).unwrap();
            assert_eq!(opened.gids().unwrap(), port.gids());
            assert_eq!(opened.port().unwrap().bits_per_second, LineRate::TB4.bits_per_second);
        }
    });
}
