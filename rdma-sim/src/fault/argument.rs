//! What can follow the name of a fault, as text

use std::fmt;
use std::time::Duration;

use super::error::FaultReason;
use super::verb::{SlowVerb, SlowableVerb};

/// A kind of argument, with how it is read and written
pub(crate) struct Argument<T> {
    /// How MODEL.md writes it
    pub(super) placeholder: &'static str,
    pub(crate) parse: fn(&str) -> Result<T, FaultReason>,
    pub(crate) write: fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// How many
pub(super) const COUNT: Argument<u32> = Argument {
    placeholder: "N",
    parse: |text| text.parse().map_err(|_| FaultReason::Count(text.to_owned())),
    write: fmt::Display::fmt,
};

/// The name of a device
pub(super) const DEVICE: Argument<String> =
    Argument { placeholder: "DEVICE", parse: |text| Ok(text.to_owned()), write: fmt::Display::fmt };

/// An index of a GID table
pub(super) const INDEX: Argument<u8> = Argument {
    placeholder: "N",
    parse: |text| text.parse().map_err(|_| FaultReason::Index(text.to_owned())),
    write: fmt::Display::fmt,
};

/// A share of 1 to 100 percent
pub(super) const PERCENT: Argument<u32> = Argument {
    placeholder: "PERCENT",
    parse: |text| {
        let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
        number
            .filter(|number| (1..=100).contains(number))
            .ok_or_else(|| FaultReason::Percent(text.to_owned()))
    },
    write: |percent, f| write!(f, "{percent}%"),
};

/// A whole number of a unit of time
pub(crate) const TIME: Argument<Duration> = Argument {
    placeholder: "TIME",
    parse: |text| {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
        let ns = unit.and_then(|(_, size)| digits.parse::<u64>().ok()?.checked_mul(*size));
        ns.map(Duration::from_nanos).ok_or_else(|| FaultReason::Duration(text.to_owned()))
    },
    write: |time, f| {
        // A time beyond 584 years is written in full, and refused when it is read.
        let ns = time.as_nanos();
        let mut units = UNITS.map(|(unit, size)| (unit, u128::from(size))).into_iter();
        let (unit, size) = units.find(|(_, size)| ns.is_multiple_of(*size)).unwrap_or(("ns", 1));
        write!(f, "{}{unit}", ns / size)
    },
};

/// A verb of connecting or of teardown, a post or a poll
pub(super) const VERB: Argument<SlowableVerb> = Argument {
    placeholder: "VERB",
    parse: |text| SlowableVerb::find(text).ok_or_else(|| FaultReason::Verb(text.to_owned())),
    write: fmt::Display::fmt,
};

/// A verb, and how much longer it takes
pub(super) const VERB_TIME: Argument<SlowVerb> = Argument {
    placeholder: "VERB=TIME",
    parse: |text| {
        let (verb, time) = text.split_once('=').ok_or_else(|| FaultReason::VerbTime(text.to_owned()))?;
        Ok(SlowVerb { verb: (VERB.parse)(verb)?, time: (TIME.parse)(time)? })
    },
    write: |slow, f| {
        write!(f, "{}=", slow.verb)?;
        (TIME.write)(&slow.time, f)
    },
};

/// The units of time, longest first
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
