//! The strict profile: which side it takes of each disputed rule

use std::collections::BTreeMap;

use rdma_bare::BareQp;
use rdma_core::QpInit;
use rdma_sim::catalogue::{RuleStatus, rules};
use rdma_sim::{Model, Sim, Topology};
use rdma_tests::DEVICE;

use crate::counting::Simulate;

/// Each disputed rule: the value of its switch under `tb5-strict`, and why that is its strict side.
const STRICT: [(&str, &str, &str); 19] = [
    ("completion-channels", "false", "a program that waits for events waits for ever"),
    ("gid-table-length", "true", "a program that takes unset entries for zeros fails"),
    ("idle-death-spoils", "true", "a program that rests connects no more"),
    ("ipv4-gid-index", "2", "programs take index 1 for granted"),
    ("large-mtu", "false", "a path MTU of 4096 times out"),
    ("link-local-source", "false", "an address of 169.254.0.0/16 times out"),
    ("multi-sge", "Refused", "a request with several elements is refused"),
    ("queue-grant", "Exact", "a queue accepts no more than was asked for"),
    ("queue-read-back", "Limit", "a program that believes the depth overruns the queue"),
    ("reboot-addresses", "true", "addresses that were kept are wrong"),
    ("receives-before-rts", "FromReadyToSend", "receives are refused before"),
    ("registration-access", "false", "memory for local writing alone is refused"),
    ("ring-overflow", "Corrupts", "data is damaged and no error says so"),
    ("rtr-unresolved", "NotPermitted", "neither is stricter: fewer programs expect 1 than 60"),
    ("send-completion", "HandOff", "a send completes before its bytes have left"),
    ("source-gid", "Ipv4", "other entries are refused"),
    ("spoiled-rtr", "GidTableEmpty", "neither is stricter: fewer programs expect 96 than 22"),
    ("tb4-devices", "false", "ports of 40 Gb/s have no devices"),
    ("uc-write", "Refused", "an RDMA WRITE is refused"),
];

/// Catches a disputed rule that the strict profile leaves on its lax side, such as `link-local-source` until it had another address.
#[test]
fn each_disputed_rule_is_on_its_strict_side() {
    let disputed = rules().filter(|rule| rule.status == RuleStatus::Disputed);
    let found: BTreeMap<_, _> =
        disputed.map(|rule| (rule.name, rule.switch.value(&Model::tb5_strict()))).collect();
    let expected = STRICT.map(|(name, value, why)| {
        assert!(why.split(' ').count() > 3, "{name}");
        (name, value.to_owned())
    });
    assert_eq!(
        found,
        BTreeMap::from(expected),
        "a disputed rule needs its strict side in the table, and on the profile"
    );
}

/// Catches a profile that allows what a Mac under macOS 26.2 refuses.
#[test]
fn the_strict_profile_has_the_limits_of_macos_26_2() {
    let [strict, old] = [Model::tb5_strict(), Model::tb5_macos_26_2()];
    assert_eq!(strict.caps, old.caps);
    assert!(old.caps.max_message < Model::tb5().caps.max_message);
    assert!(strict.rules.surplus_region_crashes && strict.rules.crashes);
}

/// Catches a strict side on which no program connects.
#[test]
fn macs_of_the_strict_profile_connect_by_addresses_that_are_not_link_local() {
    let mesh = Topology::mesh(3, 3).unwrap();
    Sim::new().model(Model::tb5_strict()).topology(mesh.clone()).simulate(async |net| {
        for link in mesh.links() {
            let [a, b] = link.ends.map(|end| {
                let device = net.open(end.host, end.device).unwrap();
                BareQp::new(device, &QpInit::with_frames(64), 1 << 18).unwrap()
            });
            a.connect(&b).unwrap();
        }
        let gids = net.gids("a", DEVICE).unwrap();
        let addresses: Vec<_> =
            gids.iter().map(|gid| gid.ipv4().map(|address| address.to_string())).collect();
        assert_eq!(addresses, [None, None, Some("192.168.1.1".to_owned())]);
    });
}
