//! What can follow the name of a fault, as text

use std::fmt;
use std::time::Duration;

use super::error::FaultReason;

/// A kind of argument, with how it is read and written
pub(super) trait Argument {
    type Value;
    /// How MODEL.md writes it
    const PLACEHOLDER: &'static str;

    fn parse(text: &str) -> Result<Self::Value, FaultReason>;
    fn write(value: &Self::Value, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// How many
pub(super) struct Count;
/// The name of a device
pub(super) struct Device;
/// An index of a GID table
pub(super) struct Index;
/// A share of 1 to 100 percent
pub(super) struct Percent;
/// A whole number of a unit of time
pub(super) struct Time;

impl Argument for Count {
    type Value = u32;
    const PLACEHOLDER: &'static str = "N";

    fn parse(text: &str) -> Result<u32, FaultReason> {
        text.parse().map_err(|_| FaultReason::Count(text.to_owned()))
    }

    fn write(count: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{count}")
    }
}

impl Argument for Device {
    type Value = String;
    const PLACEHOLDER: &'static str = "DEVICE";

    fn parse(text: &str) -> Result<String, FaultReason> {
        Ok(text.to_owned())
    }

    fn write(device: &String, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(device)
    }
}

impl Argument for Index {
    type Value = u8;
    const PLACEHOLDER: &'static str = "N";

    fn parse(text: &str) -> Result<u8, FaultReason> {
        text.parse().map_err(|_| FaultReason::Index(text.to_owned()))
    }

    fn write(index: &u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{index}")
    }
}

impl Argument for Percent {
    type Value = u32;
    const PLACEHOLDER: &'static str = "PERCENT";

    fn parse(text: &str) -> Result<u32, FaultReason> {
        let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
        number
            .filter(|number| (1..=100).contains(number))
            .ok_or_else(|| FaultReason::Percent(text.to_owned()))
    }

    fn write(percent: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{percent}%")
    }
}

/// The units of time, longest first
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl Argument for Time {
    type Value = Duration;
    const PLACEHOLDER: &'static str = "TIME";

    fn parse(text: &str) -> Result<Duration, FaultReason> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
        let ns = unit.and_then(|(_, size)| digits.parse::<u64>().ok()?.checked_mul(*size));
        ns.map(Duration::from_nanos).ok_or_else(|| FaultReason::Duration(text.to_owned()))
    }

    fn write(time: &Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (unit, size) = UNITS.iter().find(|(_, size)| ns.is_multiple_of(*size)).unwrap_or(&UNITS[3]);
        write!(f, "{}{unit}", ns / size)
    }
}
