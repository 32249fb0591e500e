//! The faults of a copy, as its arguments name them: `KIND@TIME[@CABLE]`

use std::fmt;

use rdma_core::Time;
use rdma_sim::fault::{FAULTS, FaultReason, TargetKind, suggestion};
use rdma_sim::{Fault, FaultPlan, Trigger};

use crate::failure::Failure;
use crate::mac;

/// Faults of the cables, at the side of the Mac that sends
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Each with the text of the user.
    faults: Vec<(String, Fault)>,
}

const FORM: &str = "write KIND@TIME, or KIND@TIME@CABLE, such as unplug@2ms";

impl Faults {
    /// Parses faults that are separated by commas
    pub(crate) fn parse(text: &str, cables: u8) -> Result<Self, Failure> {
        let parts = text.split(',').map(str::trim);
        let faults = parts.map(|part| Ok((part.to_owned(), parse_one(part, cables)?)));
        let faults = Self { faults: faults.collect::<Result<_, Failure>>()? };
        faults.plan().check(&mac::topology(cables)).map_err(Failure::usage)?;
        Ok(faults)
    }

    pub(crate) fn plan(&self) -> FaultPlan {
        FaultPlan(self.faults.iter().map(|(_, fault)| fault.clone()).collect())
    }

    /// When the last of them fires
    pub(crate) fn end(&self) -> Time {
        self.faults.iter().map(|(_, fault)| time(fault)).max().unwrap_or(Time::ZERO)
    }

    /// The faults, and which of them came after the copy had ended at `end`
    pub(crate) fn describe(&self, end: Time) -> String {
        let text = |(text, fault): &(String, Fault)| {
            let late = if time(fault) > end { " (after the copy)" } else { "" };
            format!("{text}{late}")
        };
        self.faults.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

fn time(fault: &Fault) -> Time {
    match fault.trigger {
        Trigger::At(time) => time,
        _ => Time::ZERO,
    }
}

fn parse_one(part: &str, cables: u8) -> Result<Fault, Failure> {
    let refuse = |why: &dyn fmt::Display| Failure::Usage(format!("--fault: {part:?}: {why}"));
    if part.contains(';') {
        return Err(refuse(&"separate faults with commas, as in unplug@2ms,replug@8ms"));
    }
    if ["at ", "after "].iter().any(|begin| part.starts_with(begin)) {
        return Err(refuse(&format!("that is how `tb5 run` takes faults; {FORM}")));
    }
    let (kind, time, cable) = match part.split('@').map(str::trim).collect::<Vec<_>>()[..] {
        [kind, time] if !kind.is_empty() && !time.is_empty() => (kind, time, "0"),
        [kind, time, cable] if !kind.is_empty() && !time.is_empty() => (kind, time, cable),
        _ => return Err(refuse(&FORM)),
    };
    let number = cable.parse::<u8>().ok().filter(|number| *number < cables);
    let number = number.ok_or_else(|| match cables {
        1 => refuse(&format!("there is no cable {cable:?}: the only one is 0; --cables adds others")),
        _ => refuse(&format!("there is no cable {cable:?}: write 0 to {}", cables - 1)),
    })?;
    let text = format!("at {time} a:{} {kind}", mac::device(number));
    text.parse::<Fault>().map_err(|error| refuse(&reason(&error.reason)))
}

/// What is wrong with a fault, in the words of its form here
fn reason(reason: &FaultReason) -> String {
    let kinds = || {
        let of_ports = FAULTS.iter().filter(|info| info.target == TargetKind::Port);
        let kinds = of_ports.map(|info| match info.argument {
            "–" => info.name.to_owned(),
            argument => format!("{} {argument}", info.name),
        });
        kinds.collect::<Vec<_>>().join(", ")
    };
    match reason {
        FaultReason::UnknownKind { name, .. } => {
            format!("no fault of a cable is called {name:?}; there are: {}{}", kinds(), suggestion(name))
        }
        FaultReason::NeedsHost { kind, .. } => {
            format!("{kind} happens to a Mac, not to a cable; there are: {}", kinds())
        }
        FaultReason::Incomplete | FaultReason::Trigger(_) => FORM.to_owned(),
        FaultReason::Trailing(text) => format!("{text:?} follows the fault: separate faults with commas"),
        reason => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_cables_are_faults_of_ports() {
        let table = [
            ("unplug@2ms", 1, "at 2ms a:rdma_en2 unplug"),
            ("unplug@2ms, replug@8ms", 1, "at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug"),
            ("unplug@2ms@1", 2, "at 2ms a:rdma_en3 unplug"),
            ("flap 5ms@1s@2,slow 50%@0s", 3, "at 1s a:rdma_en4 flap 5ms; at 0s a:rdma_en2 slow 50%"),
        ];
        for (text, cables, expected) in table {
            assert_eq!(Faults::parse(text, cables).unwrap().plan().to_string(), expected);
        }
    }

    #[test]
    fn wrong_parts_are_named_with_a_remedy() {
        let table = [
            ("", "--fault: \"\": write KIND@TIME, or KIND@TIME@CABLE, such as unplug@2ms"),
            ("unplug", "--fault: \"unplug\": write KIND@TIME"),
            ("@2ms", "write KIND@TIME"),
            ("unplug@", "write KIND@TIME"),
            ("unplug@2ms,", "--fault: \"\": write KIND@TIME"),
            ("unplug@1@2@3", "write KIND@TIME"),
            ("at 2ms a:rdma_en2 unplug", "that is how `tb5 run` takes faults; write KIND@TIME"),
            ("unplug@2ms;replug@8ms", "separate faults with commas, as in unplug@2ms,replug@8ms"),
            ("unplug@2", "\"2\" is not a time: write a whole number of s, ms, us or ns, such as 5ms"),
            ("unplug@2ms@1", "there is no cable \"1\": the only one is 0; --cables adds others"),
            (
                "unplugg@2ms",
                "no fault of a cable is called \"unplugg\"; there are: boundary, busy, corrupt N,",
            ),
            ("unplugg@2ms", "unresolvable, wedge; did you mean unplug?"),
            ("kill@2ms", "kill happens to a Mac, not to a cable; there are: "),
            ("flap@2ms", "the text ends too early: write flap TIME"),
            ("flap 1ms 2ms@2ms", "\"2ms\" follows the fault: separate faults with commas"),
        ];
        for (text, why) in table {
            let error = Faults::parse(text, 1).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let error = Faults::parse("unplug@2ms@3", 3).unwrap_err().to_string();
        assert_eq!(error, "--fault: \"unplug@2ms@3\": there is no cable \"3\": write 0 to 2");
    }
}
