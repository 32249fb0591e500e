//! The faults of a copy between two simulated Macs

use std::borrow::Cow;
use std::time::Duration;

use rdma_core::Time;
use rdma_sim::fault::Target;
use rdma_sim::{Fault, FaultKind, FaultPlan, Net, Trigger};

use crate::failure::Failure;
use crate::run::has_fired;
use crate::{fault_text, mac};

/// Faults of the ports at both ends of the cables
#[derive(Debug)]
pub(crate) struct Faults(FaultPlan);

impl Faults {
    /// Parses the texts of all options
    pub(crate) fn parse(texts: &[String], cables: u8) -> Result<Self, Failure> {
        let topology = mac::topology(cables);
        let plans = texts.iter().map(|text| fault_text::parse(&with_ports(text), 0, &topology));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let faults: Vec<_> = plans.into_iter().flat_map(|FaultPlan(faults)| faults).collect();
        faults.iter().try_for_each(|fault| require_cable(fault, cables))?;
        Ok(FaultPlan(faults).into())
    }

    pub(crate) fn plan(&self) -> FaultPlan {
        self.0.clone()
    }

    /// Time after which no fault that fires at a set time changes anything
    pub(crate) fn end(&self) -> Time {
        let end = |fault: &Fault| match fault.trigger {
            Trigger::At(time) => time + outage(fault),
            _ => Time::ZERO,
        };
        self.0.0.iter().map(end).max().unwrap_or(Time::ZERO)
    }

    /// Longest outage of the faults that wait for frames: it may begin at any time
    pub(crate) fn longest_outage(&self) -> Duration {
        let waits_for_frames = |fault: &&Fault| matches!(fault.trigger, Trigger::AfterFrames(_));
        self.0.0.iter().filter(waits_for_frames).map(outage).max().unwrap_or_default()
    }

    /// The faults, and which of them have not fired by now, at the end of the copy
    pub(crate) fn describe(&self, net: &Net) -> String {
        let text = |fault: &Fault| {
            let sent = || match &fault.target {
                Target::Port { host, device } => {
                    net.cable_stats(host, device).map_or(0, |[sent, _]| sent.frames)
                }
                _ => 0,
            };
            let fired = has_fired(fault, net.now(), sent);
            let missing = if fired { "" } else { " (did not fire during the copy)" };
            format!("{fault}{missing}")
        };
        self.0.0.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

impl From<FaultPlan> for Faults {
    fn from(plan: FaultPlan) -> Self {
        Self(plan)
    }
}

/// The text as all faults are written, if it is a short one: `KIND@TIME`, separated by commas, each at the first port of the sender
fn with_ports(text: &str) -> Cow<'_, str> {
    let at_first_port = |fault: &str| {
        let (kind, time) = fault.trim().split_once('@')?;
        Some(format!("at {} a:{} {}", time.trim(), mac::device(0), kind.trim()))
    };
    let faults: Option<Vec<_>> = text.split(',').map(at_first_port).collect();
    faults.map_or(Cow::Borrowed(text), |faults| Cow::Owned(faults.join("; ")))
}

/// Time for which a fault by itself puts the cable out
fn outage(fault: &Fault) -> Duration {
    match fault.kind {
        FaultKind::Flap { down } => down,
        _ => Duration::ZERO,
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

    /// Catches options after the first that are left out, and outages that are taken for shorter.
    #[test]
    fn faults_of_all_options_count() {
        let faults = parse(&["at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug", "b:rdma_en3 lose 3"], 2);
        let faults = faults.unwrap();
        assert_eq!((faults.end(), faults.longest_outage()), (Time::from_nanos(8_000_000), Duration::ZERO));
        let flaps =
            ["at 3ms a:rdma_en2 flap 2s", "after 5 frames b:rdma_en2 flap 30s", "at 1s a:rdma_en2 lose 1"];
        let faults = parse(&flaps, 1).unwrap();
        assert_eq!(faults.end(), Time::from_nanos(2_003_000_000));
        assert_eq!(faults.longest_outage(), Duration::from_secs(30));
        assert_eq!(parse(&[], 1).unwrap().end(), Time::ZERO);
    }

    /// Catches a short form that another port than the first understands, or at another time.
    #[test]
    fn faults_at_the_first_cable_have_a_short_form() {
        for (short, long) in [
            ("unplug@2ms", "at 2ms a:rdma_en2 unplug"),
            ("unplug@2ms,replug@8ms", "at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug"),
            (" flap 1ms @ 2ms , lose 3@50us", "at 2ms a:rdma_en2 flap 1ms; at 50us a:rdma_en2 lose 3"),
        ] {
            assert_eq!(parse(&[short], 2).unwrap().plan(), parse(&[long], 2).unwrap().plan(), "{short}");
        }
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
            ("unplug@2", 1, "fault \"at 2 a:rdma_en2 unplug\""),
            ("unplug@2ms,replug", 1, "fault \"unplug@2ms,replug\""),
            ("@2ms", 1, "fault \"at 2ms a:rdma_en2\": the text ends too early"),
        ] {
            let error = parse(&[text], cables).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
