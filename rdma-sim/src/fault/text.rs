//! The text of faults: `at 5ms a:rdma_en2 unplug`

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rdma_core::Time;

use super::{Fault, FaultPlan, Place, What, When};

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
    Count(fn(u32) -> What),
    Device(fn(String) -> What),
    Duration(fn(Duration) -> What),
    None(fn() -> What),
    Percent(fn(u32) -> What),
}

/// All faults by name; the argument tells how to read and write the rest.
const FAULTS: [(&str, Argument); 36] = {
    use Argument::{Count, Device, Duration, None, Percent};
    [
        ("boundary", None(|| What::Boundary)),
        ("busy", None(|| What::Busy)),
        ("corrupt", Count(|frames| What::Corrupt { frames })),
        ("cross", Device(|with| What::Cross { with })),
        ("delay", Duration(|by| What::Delay { by })),
        ("flap", Duration(|down| What::Flap { down })),
        ("gid-at", Count(|index| What::GidAt { index: if index > 255 { 255 } else { index as u8 } })),
        ("idle-death", None(|| What::IdleDeath)),
        ("interface-down", None(|| What::InterfaceDown)),
        ("kill", None(|| What::Kill)),
        ("leak-cqs", Count(|count| What::LeakCqs { count })),
        ("leak-mrs", Count(|count| What::LeakMrs { count })),
        ("leak-pds", Count(|count| What::LeakPds { count })),
        ("leak-qps", Count(|count| What::LeakQps { count })),
        ("link-local-gids", None(|| What::LinkLocalGids)),
        ("lose", Count(|frames| What::Lose { frames })),
        ("no-gids", None(|| What::NoGids)),
        ("no-pds", None(|| What::NoPds)),
        ("overflow", None(|| What::Overflow)),
        ("pause", None(|| What::Pause)),
        ("rdma-off", None(|| What::RdmaOff)),
        ("rdma-on", None(|| What::RdmaOn)),
        ("reboot", Duration(|down| What::Reboot { down })),
        ("renumber", None(|| What::Renumber)),
        ("replug", None(|| What::Replug)),
        ("resolvable", None(|| What::Resolvable)),
        ("restart", None(|| What::Restart)),
        ("resume", None(|| What::Resume)),
        ("sleep", None(|| What::Sleep)),
        ("slow", Percent(|percent| What::Slow { percent })),
        ("slow-receive", None(|| What::SlowReceive)),
        ("storm", Percent(|percent| What::Storm { percent })),
        ("unplug", None(|| What::Unplug)),
        ("unresolvable", None(|| What::Unresolvable)),
        ("wake", None(|| What::Wake)),
        ("wedge", None(|| What::Wedge)),
    ]
};

/// The names of all faults
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FAULTS.iter().map(|(name, _)| *name)
}

impl What {
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

impl fmt::Display for What {
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
        match self.when {
            When::AfterFrames(frames) => write!(f, "after {frames} frames")?,
            When::At(time) => {
                f.write_str("at ")?;
                write_duration(f, Duration::from_nanos(time.as_nanos()))?;
            }
        }
        write!(f, " {} {}", self.place, self.what)
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
        let when = match next()? {
            "at" => {
                let time = parse_duration(next()?).map_err(fail)?;
                When::At(Time::ZERO + time)
            }
            "after" => {
                let count = next()?;
                let frames =
                    count.parse().map_err(|_| fail(format!("{count:?} is not a number of frames")))?;
                if next()? != "frames" {
                    return Err(fail(format!("the moment is unclear: {shape}")));
                }
                When::AfterFrames(frames)
            }
            other => return Err(fail(format!("{other:?} is not a moment: {shape}"))),
        };
        let place = next()?;
        let place = match place.split_once(':') {
            Some((host, device)) => Place::Port { host: host.to_owned(), device: device.to_owned() },
            None => Place::Host(place.to_owned()),
        };
        let name = next()?;
        let Some((_, argument)) = FAULTS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = names().collect();
            return Err(fail(format!("{name:?} is no fault; there are: {}", known.join(", "))));
        };
        let what = match argument {
            Argument::None(what) => what(),
            Argument::Device(what) => what(next()?.to_owned()),
            Argument::Duration(what) => what(parse_duration(next()?).map_err(fail)?),
            Argument::Count(what) => {
                let count = next()?;
                what(count.parse().map_err(|_| fail(format!("{count:?} is not a number")))?)
            }
            Argument::Percent(what) => {
                let percent = next()?;
                let number = percent.strip_suffix('%').unwrap_or(percent).parse();
                match number {
                    Ok(number @ 1..=100) => what(number),
                    _ => return Err(fail(format!("{percent:?} is not 1% to 100%"))),
                }
            }
        };
        if let Some(more) = words.next() {
            return Err(fail(format!("{more:?} is too much")));
        }
        match (what.is_of_host(), &place) {
            (true, Place::Port { host, .. }) => Err(fail(format!("{name} happens to a host: write {host}"))),
            (false, Place::Host(host)) => {
                Err(fail(format!("{name} happens to a port: write {host}:DEVICE, such as {host}:rdma_en2")))
            }
            _ => Ok(Self { when, place, what }),
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
            let (what, rest) = match argument {
                Argument::None(what) => (what(), ""),
                Argument::Count(what) => (what(7), " 7"),
                Argument::Device(what) => (what("rdma_en3".to_owned()), " rdma_en3"),
                Argument::Duration(what) => (what(std::time::Duration::from_micros(30)), " 30us"),
                Argument::Percent(what) => (what(50), " 50%"),
            };
            let place = if what.is_of_host() { "a" } else { "a:rdma_en2" };
            for when in ["at 1500us", "at 2s", "after 9 frames"] {
                let text = format!("{when} {place} {name}{rest}");
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
