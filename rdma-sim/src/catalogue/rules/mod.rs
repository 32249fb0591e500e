//! Every rule that a program can observe through the verbs, by subject

mod delivery;
mod devices;
mod limits;
mod losses;
mod memory;
mod roce;
mod rule;
mod states;
mod time;

pub use self::rule::{Rule, RuleStatus, Switch};

/// The rules by subject
pub const SECTIONS: &[(&str, &[Rule])] = &[
    ("Devices, ports and addresses", devices::RULES),
    ("Limits, queues and operations", limits::RULES),
    ("Connecting", states::RULES),
    ("Memory", memory::RULES),
    ("Delivery", delivery::RULES),
    ("Losses", losses::RULES),
    ("Time", time::RULES),
    ("Network adapters that speak RoCE", roce::RULES),
];

/// All rules
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    SECTIONS.iter().flat_map(|(_, rules)| *rules)
}
