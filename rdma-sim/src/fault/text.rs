//! The text of faults: `at 5ms a:rdma_en2 unplug`

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rdma_core::Time;

use super::{Fault, FaultKind, FaultPlan, Target, Trigger};

/// The text is no fault, or the fault has no place
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("fault {text:?}: {why}")]
pub struct FaultError {
    text: String,
    why: String,
}

impl FaultError {
    pub(super) fn new(text: &str, why: impl Into<String>) -> Self {
        Self { text: text.to_owned(), why: why.into() }
    }
}

/// What follows the name of a fault
#[derive(Clone, Copy)]
enum Argument {
    Count(fn(u32) -> FaultKind),
    Device(fn(String) -> FaultKind),
    Duration(fn(Duration) -> FaultKind),
    None(fn() -> FaultKind),
    Percent(fn(u32) -> FaultKind),
}

/// All faults by name; the argument tells how to read and write the rest.
const FAULTS: [(&str, Argument); 36] = {
    use Argument::{Count, Device, Duration, None, Percent};
    [
        ("boundary", None(|| FaultKind::Boundary)),
        ("busy", None(|| FaultKind::Busy)),
        ("corrupt", Count(|frames| FaultKind::Corrupt { frames })),
        ("cross", Device(|with| FaultKind::Cross { with })),
        ("delay", Duration(|by| FaultKind::Delay { by })),
        ("flap", Duration(|down| FaultKind::Flap { down })),
        ("gid-at", Count(|index| FaultKind::GidAt { index: if index > 255 { 255 } else { index as u8 } })),
        ("idle-death", None(|| FaultKind::IdleDeath)),
        ("interface-down", None(|| FaultKind::InterfaceDown)),
        ("kill", None(|| FaultKind::Kill)),
        ("leak-cqs", Count(|count| FaultKind::LeakCqs { count })),
        ("leak-mrs", Count(|count| FaultKind::LeakMrs { count })),
        ("leak-pds", Count(|count| FaultKind::LeakPds { count })),
        ("leak-qps", Count(|count| FaultKind::LeakQps { count })),
        ("link-local-gids", None(|| FaultKind::LinkLocalGids)),
        ("lose", Count(|frames| FaultKind::Lose { frames })),
        ("no-gids", None(|| FaultKind::NoGids)),
        ("no-pds", None(|| FaultKind::NoPds)),
        ("overflow", None(|| FaultKind::Overflow)),
        ("pause", None(|| FaultKind::Pause)),
        ("rdma-off", None(|| FaultKind::RdmaOff)),
        ("rdma-on", None(|| FaultKind::RdmaOn)),
        ("reboot", Duration(|down| FaultKind::Reboot { down })),
        ("renumber", None(|| FaultKind::Renumber)),
        ("replug", None(|| FaultKind::Replug)),
        ("resolvable", None(|| FaultKind::Resolvable)),
        ("restart", None(|| FaultKind::Restart)),
        ("resume", None(|| FaultKind::Resume)),
        ("sleep", None(|| FaultKind::Sleep)),
        ("slow", Percent(|percent| FaultKind::Slow { percent })),
        ("slow-receive", None(|| FaultKind::SlowReceive)),
        ("storm", Percent(|percent| FaultKind::Storm { percent })),
        ("unplug", None(|| FaultKind::Unplug)),
        ("unresolvable", None(|| FaultKind::Unresolvable)),
        ("wake", None(|| FaultKind::Wake)),
        ("wedge", None(|| FaultKind::Wedge)),
    ]
};

/// The names of all faults
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FAULTS.iter().map(|(name, _)| *name)
}

impl FaultKind {
    /// Its name, as plans write it
    pub fn name(&self) -> &'static str {
        match self {
            Self::Boundary => "boundary",
            Self::Busy => "busy",
            Self::Corrupt { .. } => "corrupt",
            Self::Cross { .. } => "cross",
            Self::Delay { .. } => "delay",
            Self::Flap { .. } => "flap",
            Self::GidAt { .. } => "gid-at",
            Self::IdleDeath => "idle-death",
            Self::InterfaceDown => "interface-down",
            Self::Kill => "kill",
            Self::LeakCqs { .. } => "leak-cqs",
            Self::LeakMrs { .. } => "leak-mrs",
            Self::LeakPds { .. } => "leak-pds",
            Self::LeakQps { .. } => "leak-qps",
            Self::LinkLocalGids => "link-local-gids",
            Self::Lose { .. } => "lose",
            Self::NoGids => "no-gids",
            Self::NoPds => "no-pds",
            Self::Overflow => "overflow",
            Self::Pause => "pause",
            Self::RdmaOff => "rdma-off",
            Self::RdmaOn => "rdma-on",
            Self::Reboot { .. } => "reboot",
            Self::Renumber => "renumber",
            Self::Replug => "replug",
            Self::Resolvable => "resolvable",
            Self::Restart => "restart",
            Self::Resume => "resume",
            Self::Sleep => "sleep",
            Self::Slow { .. } => "slow",
            Self::SlowReceive => "slow-receive",
            Self::Storm { .. } => "storm",
            Self::Unplug => "unplug",
            Self::Unresolvable => "unresolvable",
            Self::Wake => "wake",
            Self::Wedge => "wedge",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Corrupt { frames: n } | Self::Lose { frames: n } => write!(f, " {n}"),
            Self::LeakCqs { count: n }
            | Self::LeakMrs { count: n }
            | Self::LeakPds { count: n }
            | Self::LeakQps { count: n } => write!(f, " {n}"),
            Self::GidAt { index } => write!(f, " {index}"),
            Self::Slow { percent } | Self::Storm { percent } => write!(f, " {percent}%"),
            Self::Delay { by: time } | Self::Flap { down: time } | Self::Reboot { down: time } => {
                f.write_str(" ")?;
                write_duration(f, *time)
            }
            Self::Cross { with } => write!(f, " {with}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.trigger {
            Trigger::AfterFrames(frames) => write!(f, "after {frames} frames")?,
            Trigger::At(time) => {
                f.write_str("at ")?;
                write_duration(f, Duration::from_nanos(time.as_nanos()))?;
            }
        }
        write!(f, " {} {}", self.target, self.kind)
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
    fn from_str(text: &str) -> Result<Self, FaultError> {
        text.split(';').map(str::trim).filter(|fault| !fault.is_empty()).map(str::parse).collect()
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let fail = |why: String| FaultError::new(text, why);
        let shape =
            "write `at TIME PLACE NAME` or `after N frames PLACE NAME`, such as `at 5ms a:rdma_en2 unplug`";
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or_else(|| fail(format!("something is missing: {shape}")));
        let trigger = match next()? {
            "at" => {
                let time = parse_duration(next()?).map_err(fail)?;
                Trigger::At(Time::ZERO + time)
            }
            "after" => {
                let count = next()?;
                let frames =
                    count.parse().map_err(|_| fail(format!("{count:?} is not a number of frames")))?;
                if next()? != "frames" {
                    return Err(fail(format!("the moment is unclear: {shape}")));
                }
                Trigger::AfterFrames(frames)
            }
            other => return Err(fail(format!("{other:?} is not a moment: {shape}"))),
        };
        let target = next()?;
        let target = match target.split_once(':') {
            Some((host, device)) => Target::Port { host: host.to_owned(), device: device.to_owned() },
            None => Target::Host(target.to_owned()),
        };
        let name = next()?;
        let Some((_, argument)) = FAULTS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = names().collect();
            return Err(fail(format!("{name:?} is no fault; there are: {}", known.join(", "))));
        };
        let kind = match argument {
            Argument::None(kind) => kind(),
            Argument::Device(kind) => kind(next()?.to_owned()),
            Argument::Duration(kind) => kind(parse_duration(next()?).map_err(fail)?),
            Argument::Count(kind) => {
                let count = next()?;
                kind(count.parse().map_err(|_| fail(format!("{count:?} is not a number")))?)
            }
            Argument::Percent(kind) => {
                let percent = next()?;
                let number = percent.strip_suffix('%').unwrap_or(percent).parse();
                match number {
                    Ok(number @ 1..=100) => kind(number),
                    _ => return Err(fail(format!("{percent:?} is not 1% to 100%"))),
                }
            }
        };
        if let Some(more) = words.next() {
            return Err(fail(format!("{more:?} is too much")));
        }
        match (kind.is_of_host(), &target) {
            (true, Target::Port { host, .. }) => Err(fail(format!("{name} happens to a host: write {host}"))),
            (false, Target::Host(host)) => {
                Err(fail(format!("{name} happens to a port: write {host}:DEVICE, such as {host}:rdma_en2")))
            }
            _ => Ok(Self { trigger, target, kind }),
        }
    }
}

/// The units of time, longest first
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

fn write_duration(f: &mut fmt::Formatter<'_>, time: Duration) -> fmt::Result {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (unit, size) = UNITS.iter().find(|(_, size)| ns.is_multiple_of(*size)).unwrap_or(&UNITS[3]);
    write!(f, "{}{unit}", ns / size)
}

/// Reads a whole number and a unit
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let size = UNITS.iter().find(|(known, _)| *known == unit).map(|(_, size)| *size);
    let ns = digits.parse::<u64>().ok().zip(size).and_then(|(number, size)| number.checked_mul(size));
    ns.map(Duration::from_nanos).ok_or_else(|| {
        format!("{text:?} is not a time: write a whole number of s, ms, us or ns, such as 5ms")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_reads_as_it_is_written() {
        for (name, argument) in FAULTS {
            let (kind, rest) = match argument {
                Argument::None(what) => (what(), ""),
                Argument::Count(what) => (what(7), " 7"),
                Argument::Device(what) => (what("rdma_en3".to_owned()), " rdma_en3"),
                Argument::Duration(what) => (what(std::time::Duration::from_micros(30)), " 30us"),
                Argument::Percent(what) => (what(50), " 50%"),
            };
            let target = if kind.is_of_host() { "a" } else { "a:rdma_en2" };
            for trigger in ["at 1500us", "at 2s", "after 9 frames"] {
                let text = format!("{trigger} {target} {name}{rest}");
                assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn what_is_no_fault_says_why() {
        let table = [
            ("at 5ms a:rdma_en2 unplugg", "is no fault; there are: boundary, busy"),
            ("5ms a:rdma_en2 unplug", "is not a moment"),
            ("at 5 a:rdma_en2 unplug", "is not a time"),
            ("at 5ms a unplug", "write a:DEVICE"),
            ("at 5ms a:rdma_en2 kill", "happens to a host: write a"),
            ("at 5ms a:rdma_en2 corrupt", "something is missing"),
            ("at 5ms a:rdma_en2 corrupt x", "is not a number"),
            ("at 5ms a:rdma_en2 slow 0%", "is not 1% to 100%"),
            ("at 5ms a:rdma_en2 unplug now", "is too much"),
            ("after x frames a:rdma_en2 unplug", "is not a number of frames"),
            ("after 3 messages a:rdma_en2 unplug", "the moment is unclear"),
            ("at 99999999999999999999s a pause", "is not a time"),
        ];
        for (text, why) in table {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
        let plan = "at 1s c:rdma_en2 unplug; at 1s a:rdma_en9 unplug; at 1s a:rdma_en2 cross rdma_en7";
        for (fault, why) in
            plan.parse::<FaultPlan>().unwrap().0.into_iter().zip(["no host", "rdma_en9", "rdma_en7"])
        {
            let error = FaultPlan(vec![fault]).check(&crate::Topology::pair()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
