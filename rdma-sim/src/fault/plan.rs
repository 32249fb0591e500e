//! Faults and lists of them, and their text: `at 5ms a:rdma_en2 unplug`

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rdma_core::Time;

use super::argument::TIME;
use super::error::{FaultError, FaultReason};
use super::kind::{FaultKind, TargetKind};
use crate::topology::{Host, Topology};

/// An event that damages the fabric, or repairs it again
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// When it fires
    pub trigger: Trigger,
    /// The host or port that it happens to
    pub target: Target,
    /// What happens
    pub kind: FaultKind,
}

/// When a fault fires
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Trigger {
    /// Once the port has sent this many frames; for a host, its first port with a cable counts
    AfterFrames(u64),
    /// At this virtual time
    At(Time),
}

/// The host or port that a fault happens to
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Target {
    /// A host
    Host(String),
    /// A port, and with it the cable in it
    Port {
        /// The host
        host: String,
        /// The device of the port
        device: String,
    },
}

impl Target {
    /// The host
    pub fn host(&self) -> &str {
        match self {
            Self::Host(host) | Self::Port { host, .. } => host,
        }
    }
}

impl From<&str> for Target {
    /// A host, or `HOST:DEVICE`
    fn from(text: &str) -> Self {
        match text.split_once(':') {
            Some((host, device)) => Self::Port { host: host.to_owned(), device: device.to_owned() },
            None => Self::Host(text.to_owned()),
        }
    }
}

/// Faults in the order in which they were written
///
/// ```
/// use rdma_sim::{Fault, FaultKind, FaultPlan, Sim};
///
/// let plan: FaultPlan = "at 5ms a:rdma_en2 unplug".parse()?;
/// let at = rdma_core::Time::from_nanos(9_000_000);
/// let plan = plan.and(Fault::at_port(at, "a", "rdma_en2", FaultKind::Replug));
/// assert_eq!(plan.to_string(), "at 5ms a:rdma_en2 unplug; at 9ms a:rdma_en2 replug");
/// assert!(plan.iter().all(|fault| fault.to_string().contains("a:rdma_en2")));
/// Sim::new().faults(plan).run(async |_| ());
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FaultPlan(pub Vec<Fault>);

impl FaultPlan {
    /// No faults
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether there are no faults
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults, in the order in which they were added
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.0.iter()
    }

    /// Adds a fault
    #[must_use]
    pub fn and(mut self, fault: Fault) -> Self {
        self.0.push(fault);
        self
    }

    /// Checks that the topology has every target, and that the faults can happen to them
    ///
    /// # Errors
    ///
    /// For the first fault that cannot fire: [`FaultReason::UnknownHost`] or [`FaultReason::UnknownDevice`] if its host, port or
    /// other cable is missing, [`FaultReason::NeedsHost`] or [`FaultReason::NeedsPort`] if it happens to the other kind of target,
    /// [`FaultReason::Percent`] or [`FaultReason::Duration`] if its argument is out of range, so that a replay could not be read.
    pub fn check(&self, topology: &Topology) -> Result<(), FaultError> {
        self.0.iter().try_for_each(|fault| {
            fault.check(topology).map_err(|reason| FaultError { text: fault.to_string(), reason })
        })
    }
}

impl<'a> IntoIterator for &'a FaultPlan {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for FaultPlan {
    type Item = Fault;
    type IntoIter = std::vec::IntoIter<Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<Fault> for FaultPlan {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        Self(faults.into_iter().collect())
    }
}

impl Fault {
    /// `kind` happens to the port `device` of `host` at `time`
    pub fn at_port(time: Time, host: &str, device: &str, kind: FaultKind) -> Self {
        let target = Target::Port { host: host.to_owned(), device: device.to_owned() };
        Self { trigger: Trigger::At(time), target, kind }
    }

    /// `kind` happens to `host` at `time`
    pub fn at_host(time: Time, host: &str, kind: FaultKind) -> Self {
        Self { trigger: Trigger::At(time), target: Target::Host(host.to_owned()), kind }
    }

    /// Whether the kind of fault can happen to such a target
    pub(crate) fn check_target(&self) -> Result<(), FaultReason> {
        let kind = self.kind.name();
        match (self.kind.target(), &self.target) {
            (TargetKind::Host, Target::Port { host, .. }) => {
                Err(FaultReason::NeedsHost { kind, host: host.clone() })
            }
            (TargetKind::Port, Target::Host(host)) => {
                Err(FaultReason::NeedsPort { kind, host: host.clone() })
            }
            _ => Ok(()),
        }
    }

    fn check(&self, topology: &Topology) -> Result<(), FaultReason> {
        self.check_target()?;
        let Some(host) = topology.find_host(self.target.host()) else {
            return Err(FaultReason::UnknownHost {
                host: self.target.host().to_owned(),
                hosts: topology.hosts().iter().map(|host| host.name().to_owned()).collect(),
            });
        };
        if let Target::Port { device, .. } = &self.target {
            check_device(host, device)?;
            if let FaultKind::Cross { with } = &self.kind {
                check_device(host, with)?;
                if device == with {
                    return Err(FaultReason::CrossedWithItself);
                }
            }
        }
        self.check_text()
    }

    /// Fails if the fault's text could not be read again, as a replay must be
    pub(crate) fn check_text(&self) -> Result<(), FaultReason> {
        self.to_string().parse::<Self>().map(drop).map_err(|error| error.reason)
    }
}

fn check_device(host: &Host, device: &str) -> Result<(), FaultReason> {
    if host.port(device).is_some() {
        return Ok(());
    }
    let devices = host.ports().iter().map(|port| port.device().to_owned()).collect();
    Err(FaultReason::UnknownDevice { host: host.name().to_owned(), device: device.to_owned(), devices })
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Port { host, device } => write!(f, "{host}:{device}"),
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfterFrames(frames) => write!(f, "after {frames} frames"),
            Self::At(time) => {
                f.write_str("at ")?;
                (TIME.write)(&Duration::from_nanos(time.as_nanos()), f)
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.trigger, self.target, self.kind)
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl FromStr for FaultPlan {
    type Err = FaultError;

    /// Reads faults that are separated by semicolons
    ///
    /// # Errors
    ///
    /// As reading a [`Fault`].
    fn from_str(text: &str) -> Result<Self, FaultError> {
        text.split(';').map(str::trim).filter(|fault| !fault.is_empty()).map(str::parse).collect()
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    /// Reads a fault, such as `at 5ms a:rdma_en2 unplug`
    ///
    /// # Errors
    ///
    /// [`FaultError`] with any [`FaultReason`] but [`FaultReason::UnknownHost`] and [`FaultReason::UnknownDevice`].
    fn from_str(text: &str) -> Result<Self, FaultError> {
        parse(text).map_err(|reason| FaultError { text: text.to_owned(), reason })
    }
}

fn parse(text: &str) -> Result<Fault, FaultReason> {
    let mut words = text.split_whitespace();
    let mut next = || words.next().ok_or(FaultReason::Incomplete);
    let trigger = match next()? {
        "at" => Trigger::At(Time::ZERO + (TIME.parse)(next()?)?),
        "after" => {
            let count = next()?;
            let frames = count.parse().map_err(|_| FaultReason::Frames(count.to_owned()))?;
            match next()? {
                "frames" => Trigger::AfterFrames(frames),
                unit => return Err(FaultReason::Trigger(format!("after {frames} {unit}"))),
            }
        }
        other => return Err(FaultReason::Trigger(other.to_owned())),
    };
    let target = Target::from(next()?);
    let kind = FaultKind::parse(next()?, &mut words)?;
    if let Some(more) = words.next() {
        return Err(FaultReason::Trailing(more.to_owned()));
    }
    let fault = Fault { trigger, target, kind };
    fault.check_target()?;
    Ok(fault)
}

#[cfg(test)]
mod tests {
    use super::super::kind::FAULTS;
    use super::*;

    #[test]
    fn every_fault_reads_as_it_is_written() {
        for info in FAULTS {
            let argument = match info.argument {
                "–" => "",
                "N" => " 3",
                "TIME" => " 30us",
                "PERCENT" => " 50%",
                "DEVICE" => " rdma_en3",
                "VERB" => " create_qp",
                "VERB=TIME" => " create_qp=5ms",
                other => panic!("{other}"),
            };
            let target = if info.target == TargetKind::Host { "a" } else { "a:rdma_en2" };
            for trigger in ["at 1500us", "at 2s", "after 9 frames"] {
                let text = format!("{trigger} {target} {}{argument}", info.name);
                assert_eq!(text.parse::<FaultPlan>().unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn a_text_that_is_not_a_fault_is_refused_with_the_reason() {
        let table = [
            ("at 5ms a:rdma_en2 unplugg", "no fault is called \"unplugg\"; there are: boundary, busy"),
            ("5ms a:rdma_en2 unplug", "\"5ms\" does not say when"),
            ("at 5 a:rdma_en2 unplug", "is not a time"),
            ("at 5ms a unplug", "write a:DEVICE"),
            ("at 5ms a:rdma_en2 kill", "happens to a host: write a"),
            ("at 5ms a:rdma_en2", "ends too early: write `at TIME TARGET NAME`"),
            ("at 5ms a:rdma_en2 corrupt", "ends too early: write corrupt N"),
            ("at 5ms a:rdma_en2 flap", "ends too early: write flap TIME"),
            ("at 5ms a:rdma_en2 corrupt x", "\"x\" is not a whole number up to 4294967295"),
            ("after -1 frames a:rdma_en2 unplug", "\"-1\" is not a whole number of frames up to 1844"),
            ("at 5ms a:rdma_en2 gid-at 256", "write 0 to 255"),
            ("at 5ms a:rdma_en2 slow 0%", "write 1% to 100%"),
            ("at 5ms a:rdma_en2 unplug now", "\"now\" follows the fault"),
            ("after x frames a:rdma_en2 unplug", "is not a whole number"),
            ("after 3 messages a:rdma_en2 unplug", "\"after 3 messages\" does not say when"),
            ("at 99999999999999999999s a pause", "up to 584 years"),
        ];
        for (text, why) in table {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }

    /// Regression: such faults passed, and the replay line of a run with them was refused.
    #[test]
    fn an_argument_whose_text_cannot_be_read_is_refused() {
        let longest = Duration::from_nanos(u64::MAX);
        let percent = |text: &str| Some(FaultReason::Percent(text.to_owned()));
        let table = [
            (FaultKind::Slow { percent: 0 }, percent("0%")),
            (FaultKind::Slow { percent: 1 }, None),
            (FaultKind::Storm { percent: 0 }, percent("0%")),
            (FaultKind::Storm { percent: 100 }, None),
            (FaultKind::Storm { percent: 101 }, percent("101%")),
            (FaultKind::Delay { by: Duration::ZERO }, None),
            (FaultKind::Flap { down: longest }, None),
            (
                FaultKind::Flap { down: longest + Duration::from_nanos(1) },
                Some(FaultReason::Duration("18446744073709551616ns".to_owned())),
            ),
        ];
        for (kind, reason) in table {
            let plan = FaultPlan::none().and(Fault::at_port(Time::ZERO, "a", "rdma_en2", kind));
            let text = plan.to_string();
            let found = plan.check(&Topology::pair());
            match reason {
                Some(reason) => assert_eq!(found, Err(FaultError { text, reason })),
                None => assert_eq!((found, text.parse::<FaultPlan>()), (Ok(()), Ok(plan))),
            }
        }
    }

    #[test]
    fn a_plan_needs_targets_that_exist() {
        let table = [
            ("at 1s c:rdma_en2 unplug", "the topology has no host \"c\"; its hosts are a, b"),
            (
                "at 1s a:rdma_en9 unplug",
                "no device \"rdma_en9\"; its devices are rdma_en2, rdma_en3, rdma_en4",
            ),
            ("at 1s a:rdma_en2 cross rdma_en7", "no device \"rdma_en7\""),
            ("at 1s a:rdma_en2 cross rdma_en2", "name the device of another cable"),
        ];
        for (text, why) in table {
            let plan: FaultPlan = text.parse().unwrap();
            let error = plan.check(&Topology::pair()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
