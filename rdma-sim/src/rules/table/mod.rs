//! Every rule, with its source and its test
//!
//! The tables are data, so that [`MODEL.md`](super::book::model_md) and the tests read the same.

mod delivery;
mod devices;
mod limits;
mod losses;
mod memory;
mod roce;
mod states;

use std::fmt;

/// Something that a program can observe through the verbs
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Its name
    pub name: &'static str,
    /// What happens
    pub says: &'static str,
    /// Where that is known from
    pub source: &'static str,
    /// How well it is known
    pub status: RuleStatus,
    /// What the switch says under [`Model::tb5`](crate::Model::tb5); `–` if there is none
    pub default: &'static str,
    /// The field of [`Rules`](crate::Rules), `Caps` or [`Timing`](crate::Timing) that decides it, or the fault that brings it
    /// about; `–` if there is none
    pub switch: &'static str,
    /// The test that shows it
    pub test: &'static str,
}

/// How well a rule is known
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RuleStatus {
    /// Nobody says so: it was chosen
    Assumed,
    /// Sources disagree
    Disputed,
    /// Apple, or the vendor, says so
    Documented,
    /// Somebody measured it, and says how
    Measured,
    /// Somebody met it in the field, or programs are written as if it were so
    Reported,
}

impl fmt::Display for RuleStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Assumed => "assumed",
            Self::Disputed => "disputed",
            Self::Documented => "documented",
            Self::Measured => "measured",
            Self::Reported => "reported",
        })
    }
}

/// The rules by subject
pub const SECTIONS: &[(&str, &[Rule])] = &[
    ("Devices, ports and addresses", &devices::RULES),
    ("Limits, queues and operations", &limits::RULES),
    ("Connecting", &states::RULES),
    ("Memory", &memory::RULES),
    ("Delivery", &delivery::RULES),
    ("Losses", &losses::RULES),
    ("Network adapters that speak RoCE", &roce::RULES),
];

/// All rules
pub const RULES: &[Rule] = &all();

const COUNT: usize = {
    let (mut count, mut section) = (0, 0);
    while section < SECTIONS.len() {
        count += SECTIONS[section].1.len();
        section += 1;
    }
    count
};

const fn all() -> [Rule; COUNT] {
    let mut all = [SECTIONS[0].1[0]; COUNT];
    let (mut count, mut section) = (0, 0);
    while section < SECTIONS.len() {
        let (_, rules) = SECTIONS[section];
        let mut rule = 0;
        while rule < rules.len() {
            all[count] = rules[rule];
            count += 1;
            rule += 1;
        }
        section += 1;
    }
    all
}
