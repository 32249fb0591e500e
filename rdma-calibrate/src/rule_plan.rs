//! The rules of the simulator's catalogue that a calibration checks beside the fields of the model, and the reasons for which it leaves
//! the others

use std::collections::BTreeSet;

use crate::conformance::RULES;
use crate::plan::{NEEDS_REBOOT, NEEDS_UNPLUG};

/// Rules that stages other than the behaviours decide
const BY_STAGES: [&str; 3] = ["full-duplex", "rtr-neighbour", "turns"];

/// The rules that a calibration checks, by their names in the catalogue: those that behaviours show, and those of other experiments
pub fn checked_rules() -> BTreeSet<&'static str> {
    RULES.iter().map(|(rule, _)| *rule).chain(BY_STAGES).collect()
}

/// Those of [`checked_rules`] whose experiment runs only with [`Options::risk_reboot`](crate::Options::risk_reboot)
pub(crate) const OPTIONAL_RULES: &[&str] = &["rtr-neighbour"];

const LIBRARY: &str = "the traits of the library have no verb that shows it";
const INIT: &str =
    "the library sets it in the transition to INIT, and the traits of the library have no other value";
const RTR: &str = "a transition to RTR has to fail, and some ports were reported to wedge after several";
const SETTINGS: &str = "the settings of the Mac have to be changed";
const PROCESS: &str = "a process has to end or to stop";
const DAMAGE: &str = "it takes a damaged cable or a broken driver";

/// Rules that no experiment checks, each with the reason; rules that a field of the model switches have theirs in the [plan](crate::PLAN)
pub const UNCHECKED_RULES: &[(&str, &str)] = &[
    ("boot-link", NEEDS_REBOOT),
    ("bridge-capture", SETTINGS),
    ("bridge-storm", SETTINGS),
    ("corruption", DAMAGE),
    ("cq-overrun", "it damages a completion queue, which no source shows to be harmless"),
    ("deregistered", "a device that does otherwise writes to memory that is not registered"),
    ("destroy", "a device that does otherwise writes to memory that the program uses"),
    ("device-guids", LIBRARY),
    ("device-names", NEEDS_REBOOT),
    ("down-port", NEEDS_UNPLUG),
    ("frame-credits", "rules.frame_match and rules.queue_unit have what programs see of it"),
    ("gid-index", SETTINGS),
    ("half-connected", RTR),
    ("init-access", INIT),
    ("interface-down", SETTINGS),
    (
        "lid-psn",
        "the library sets both in the transitions, and the traits of the library have no other values",
    ),
    ("link-rate", "it takes a cable of another rate; the page has that of each cable that was measured"),
    (
        "masks",
        "the traits of the library name a state alone: it sets the attributes of each transition, and asks with no others",
    ),
    ("no-delivery-receipt", "rules.send_completion has what programs see of it"),
    ("no-ipv4", SETTINGS),
    ("no-loopback", RTR),
    ("one-hop", RTR),
    ("peer-death", PROCESS),
    ("peer-stop", PROCESS),
    ("port-and-pkey", INIT),
    ("port-state", SETTINGS),
    ("reboot", NEEDS_REBOOT),
    ("replug-stale", NEEDS_UNPLUG),
    ("roce-room", "it is of network adapters"),
    ("rtr-busy", "another process has to hold the receive queue of the port"),
    ("rtr-no-gids", SETTINGS),
    ("rtr-source", RTR),
    ("sleep", SETTINGS),
    ("timer-path", SETTINGS),
    ("unplug", NEEDS_UNPLUG),
    ("unplug-silence", NEEDS_UNPLUG),
    ("wedge", DAMAGE),
];

#[cfg(test)]
mod tests {
    use rdma_sim::catalogue::{self, Switch};

    use super::*;
    use crate::plan::PLAN;

    /// Catches a new rule of the catalogue that the calibration neither checks nor leaves for a reason, and a rule with both.
    #[test]
    fn every_rule_of_the_catalogue_is_checked_or_left_for_a_reason() {
        let known: Vec<_> =
            checked_rules().into_iter().chain(UNCHECKED_RULES.iter().map(|(rule, _)| *rule)).collect();
        let listed: BTreeSet<_> = known.iter().copied().collect();
        assert_eq!(listed.len(), known.len(), "each rule is listed once");
        let all: BTreeSet<_> = catalogue::rules().map(|rule| rule.name).collect();
        assert_eq!(listed.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new());
        // A field of the model has its own entry in the plan, with a reason if nothing decides it.
        let is_planned = |switch: &Switch| {
            let name = switch.name().replace("::", ".").to_lowercase();
            matches!(switch, Switch::Field { .. }) && PLAN.iter().any(|plan| plan.field == name)
        };
        for rule in catalogue::rules() {
            assert!(
                listed.contains(rule.name) || is_planned(&rule.switch),
                "{} ({}) is neither checked nor left for a reason",
                rule.name,
                rule.switch.name()
            );
        }
    }
}
