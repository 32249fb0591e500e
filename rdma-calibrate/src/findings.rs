use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use rdma_core::PortStatus;
use rdma_sim::profile::{Decided, Profile};

use crate::conformance::verdict::Behaviour;
use crate::options::Options;
use crate::plan::{How, NOT_RISKED, PLAN};
use crate::rule_plan::{OPTIONAL_RULES, UNCHECKED_RULES, checked_rules};

/// The findings of a calibration
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// The profile, for the simulator
    pub profile: Profile,
    /// The name of the device
    pub device: String,
    /// How the device was simulated; `None` for a real one
    pub(crate) simulated: Option<Simulation>,
    /// The state and the rate of its port
    pub port: PortStatus,
    /// The time that it took
    pub took: Duration,
    /// The times of messages there and back, by their length
    pub round_trips: Vec<RoundTrips>,
    /// The rates of streams, by the length of messages and by how many were posted at once
    pub goodput: Vec<Goodput>,
    /// The lengths of messages of which no stream was measured, each with the reason
    pub goodput_missing: Vec<(usize, String)>,
    /// The rates of several cables, alone and at once
    pub cables: Vec<CableRates>,
    /// Figures beside the model, each with what it is
    pub figures: Vec<(&'static str, String)>,
    /// Rules that no field of the model switches
    pub rules: Vec<RuleFinding>,
    /// Rules that no field of the model switches and that were not tested, by their names in the catalogue, each with the reason
    pub untested_rules: Vec<(&'static str, String)>,
    /// Behaviours that programs rely on, with the expectations that follow from the rules above
    pub behaviours: Vec<Behaviour>,
    /// Experiments that an unexpected answer of the device has stopped, by their stage, each with that answer
    pub stopped: Vec<(&'static str, String)>,
    /// The reason for which the calibration ended before its end, to be set by the caller of findings [so far](crate::Machine::found);
    /// `None` for a whole one
    pub ended: Option<String>,
    /// That the calibration has wedged the port, with the remedy: no program connects over it
    pub wedged: Option<String>,
    /// The least and the most that the true values of fields may be, where that is known
    pub(crate) intervals: BTreeMap<&'static str, [f64; 2]>,
}

/// How a device was simulated
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Simulation {
    /// The name of the profile
    pub profile: String,
    /// Whether its times passed in real time, so that they contain those of the machine that simulated it
    pub is_in_real_time: bool,
}

/// The answer of the device to a rule that no field of the model switches
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RuleFinding {
    /// The name of the rule in the catalogue of the simulator
    pub rule: &'static str,
    /// The behaviour of a device that does not follow the rule; `None` if it follows the rule
    pub instead: Option<String>,
}

/// The times of messages there and back
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RoundTrips {
    /// The length of a message in bytes
    pub bytes: usize,
    /// The shortest time, the median, the 90th and the 99th percentile, and the longest time, in nanoseconds
    pub ns: [f64; 5],
}

impl RoundTrips {
    /// Those of messages of `bytes` bytes, which took `times`, at least one
    pub(crate) fn of(bytes: usize, mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        // The smallest time that so many hundredths of all do not exceed.
        let percentile = |hundredths: usize| times[(times.len() * hundredths).div_ceil(100).max(1) - 1];
        Self { bytes, ns: [0, 50, 90, 99, 100].map(percentile) }
    }
}

/// The rate of a stream of messages
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Goodput {
    /// The length of a message in bytes
    pub bytes: usize,
    /// The number of messages that were posted at once
    pub depth: usize,
    /// To the other side alone, in GB/s
    pub one_way: f64,
    /// From the other side alone, in GB/s
    pub back: f64,
    /// Both ways at once: of the slower way, in GB/s
    pub both_ways: f64,
}

/// The rates of cables at once
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CableRates {
    /// The numbers of the cables, of which the first of the machine is 0
    pub cables: Vec<usize>,
    /// The sum of their rates to the other side alone, in GB/s
    pub one_way: f64,
    /// The sum of their rates from the other side alone, in GB/s
    pub back: f64,
    /// The sum of their rates each way, both ways at once: of the slower way, in GB/s
    pub both_ways: f64,
}

impl Findings {
    pub(crate) fn new(device: &str, port: PortStatus) -> Self {
        let profile = Profile::named("tb5").expect("the simulator has the profile");
        Self {
            profile,
            device: device.to_owned(),
            simulated: None,
            port,
            took: Duration::ZERO,
            round_trips: Vec::new(),
            goodput: Vec::new(),
            goodput_missing: Vec::new(),
            cables: Vec::new(),
            figures: Vec::new(),
            rules: Vec::new(),
            untested_rules: Vec::new(),
            behaviours: Vec::new(),
            stopped: Vec::new(),
            ended: None,
            wedged: None,
            intervals: BTreeMap::new(),
        }
    }

    /// Notes the least and the most that the true value of a field may be: no value between them contradicts the simulator
    pub(crate) fn know_between(&mut self, field: &'static str, least: f64, most: f64) {
        self.intervals.insert(field, [least, most]);
    }

    pub(crate) fn decide(&mut self, field: &'static str, value: impl Display) {
        let value = value.to_string();
        if let Err(why) = self.profile.set(field, &value, Decided::Measured) {
            // A device beyond every expectation, such as a wait of an hour.
            self.leave(field, &format!("measured {value}, which no profile can hold: {why}"));
        }
    }

    /// How the device was simulated; `None` for a real one
    pub fn simulated(&self) -> Option<&Simulation> {
        self.simulated.as_ref()
    }

    /// Notes how the device was simulated, and takes back what such a device does not show of its profile
    pub fn set_simulated(&mut self, simulated: Option<Simulation>) {
        const ALIGNMENT: &str = "rules.alignment";
        let in_real_time = simulated.as_ref().is_some_and(|simulated| simulated.is_in_real_time);
        if in_real_time && self.profile.value(ALIGNMENT).as_deref() == Some("4096") {
            self.leave(ALIGNMENT, "not shown: a simulated device of a fabric asks for 4096 bytes at most, also if its profile says more");
        }
        self.simulated = simulated;
    }

    /// Enters the part of a measured sum that falls to a field: [`Decided::Sum`], because no experiment shows it alone
    pub(crate) fn divide(&mut self, field: &'static str, value: f64, why: &str) {
        match self.profile.set(field, &(value.max(0.0).round() as u64).to_string(), Decided::Sum) {
            Ok(()) => self.profile.remark(field, why),
            Err(invalid) => self.leave(field, &format!("{why}; no profile can hold its part: {invalid}")),
        }
    }

    /// True if an experiment has found the value of a field, alone or as a part of a sum
    pub(crate) fn has_found(&self, field: &str) -> bool {
        matches!(self.profile.decided(field), Some(Decided::Measured | Decided::Sum))
    }

    pub(crate) fn leave(&mut self, field: &'static str, why: &str) {
        self.profile.leave(field, why).expect("the plan names fields of the model");
    }

    pub(crate) fn rule(&mut self, rule: &'static str, instead: Option<String>) {
        self.rules.push(RuleFinding { rule, instead });
    }

    pub(crate) fn leave_rule(&mut self, rule: &'static str, why: String) {
        self.untested_rules.push((rule, why));
    }

    pub(crate) fn leave_goodput(&mut self, bytes: usize, why: &str) {
        self.goodput_missing.push((bytes, why.to_owned()));
    }

    pub(crate) fn figure(&mut self, what: &'static str, value: impl Display) {
        self.figures.push((what, value.to_string()));
    }

    /// Enters each field that no experiment has decided, with the reason
    pub(crate) fn finish(&mut self, options: &Options) {
        const STOPPED: &str = "its experiments have stopped";
        let unchecked = UNCHECKED_RULES.iter().map(|(rule, why)| (*rule, (*why).to_owned()));
        self.untested_rules.extend(unchecked);
        for rule in checked_rules() {
            let is_found = self.rules.iter().any(|found| found.rule == rule);
            if !is_found && !self.untested_rules.iter().any(|(untested, _)| *untested == rule) {
                let is_left = OPTIONAL_RULES.contains(&rule) && !options.risk_reboot;
                let why = if is_left { NOT_RISKED } else { STOPPED };
                self.leave_rule(rule, why.to_owned());
            }
        }
        for plan in PLAN {
            if self.profile.decided(plan.field).is_none() {
                match plan.how {
                    How::Unseen(why) => self.leave(plan.field, why),
                    How::Optional(option) if !options.has(option) => {
                        self.leave(plan.field, &format!("not asked for: {option}"));
                    }
                    _ if !self.stopped.is_empty() => self.leave(plan.field, STOPPED),
                    _ => self.leave(plan.field, "its experiment did not decide it"),
                }
            }
        }
    }
}
