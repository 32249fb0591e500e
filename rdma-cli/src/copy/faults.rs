//! The faults of a copy between two simulated Macs

use rdma_core::Time;
use rdma_sim::fault::Target;
use rdma_sim::{Fault, FaultPlan, Trigger};

use crate::failure::Failure;
use crate::{fault_text, mac};

/// Faults of the ports at both ends of the cables
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Parses the texts of all options
    pub(crate) fn parse(texts: &[String], cables: u8) -> Result<Self, Failure> {
        let topology = mac::topology(cables);
        let plans = texts.iter().map(|text| fault_text::parse(text, 0, &topology));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let faults: Vec<_> = plans.into_iter().flat_map(|FaultPlan(faults)| faults).collect();
        faults.iter().try_for_each(|fault| require_cable(fault, cables))?;
        Ok(Self(faults))
    }

    pub(crate) fn plan(&self) -> FaultPlan {
        FaultPlan(self.0.clone())
    }

    /// When the last of them fires, as far as that is known before
    pub(crate) fn end(&self) -> Time {
        self.0.iter().map(time).max().unwrap_or(Time::ZERO)
    }

    /// The faults, and which of them came after the copy had ended at `end`
    pub(crate) fn describe(&self, end: Time) -> String {
        let text = |fault: &Fault| {
            let late = if time(fault) > end { " (after the copy)" } else { "" };
            format!("{fault}{late}")
        };
        self.0.iter().map(text).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn time(fault: &Fault) -> Time {
    match fault.trigger {
        Trigger::At(time) => time,
        _ => Time::ZERO,
    }
}

/// Fails unless the fault is one of a port with a cable: a copy has no programs that a fault of a host could end
fn require_cable(fault: &Fault, cables: u8) -> Result<(), Failure> {
    let known: Vec<_> = (0..cables).map(mac::device).collect();
    let why = match &fault.target {
        Target::Port { device, .. } if known.contains(device) => return Ok(()),
        Target::Port { device, .. } => format!("{device} has no cable here"),
        target => format!("a copy has no program on {}", target.host()),
    };
    Err(Failure::Usage(format!(
        "fault \"{fault}\": {why}: write a port with a cable, which {}; --cables adds others",
        match &known[..] {
            [one] => format!("is {one} of a or b"),
            several => format!("are {} of a or b", several.join(", ")),
        }
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str], cables: u8) -> Result<Faults, Failure> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        Faults::parse(&texts, cables)
    }

    #[test]
    fn faults_of_all_options_count() {
        let faults = parse(&["at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug", "b:rdma_en3 lose 3"], 2);
        let faults = faults.unwrap();
        assert_eq!(faults.end(), Time::from_nanos(8_000_000));
        let described = faults.describe(Time::from_nanos(3_000_000));
        let expected =
            "at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug (after the copy); at 0s b:rdma_en3 lose 3";
        assert_eq!(described, expected);
        assert!(parse(&[], 1).unwrap().is_empty());
    }

    /// Catches faults that would have no effect.
    #[test]
    fn faults_without_an_effect_are_refused() {
        for (text, cables, why) in [
            (
                "a:rdma_en3 unplug",
                1,
                "rdma_en3 has no cable here: write a port with a cable, which is rdma_en2 of a or b",
            ),
            (
                "at 1s b:rdma_en4 unplug",
                2,
                "rdma_en4 has no cable here: write a port with a cable, which are rdma_en2, rdma_en3",
            ),
            ("at 1s a kill", 1, "a copy has no program on a"),
            ("unplug@2ms", 1, "fault \"unplug@2ms\": the text ends too early"),
        ] {
            let error = parse(&[text], cables).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
