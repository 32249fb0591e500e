//! Durations in scenarios and arguments: `5ms`, `23m`

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

/// A duration of at most a day
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Period(pub(crate) Duration);

/// The units, longest first
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Period {
    pub(crate) const DAY: Self = Self(Duration::from_hours(24));

    pub(crate) const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let (_, size) = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
        let ns = digits.parse::<u64>().ok()?.checked_mul(*size)?;
        let period = Self(Duration::from_nanos(ns));
        (period <= Self::DAY).then_some(period)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos() as u64;
        let fitting = UNITS.iter().find(|(_, size)| ns > 0 && ns.is_multiple_of(*size));
        let (unit, size) = fitting.unwrap_or(&("s", 1));
        write!(f, "{}{unit}", ns / size)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let why =
                "is not a time: write a whole number of h, m, s, ms, us or ns up to a day, such as \"5ms\"";
            D::Error::custom(format!("{text:?} {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_parsed_and_displayed_alike() {
        for text in ["24h", "23m", "90s", "5ms", "1500us", "7ns", "0s"] {
            assert_eq!(Period::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "5", "ms", "5 ms", "-1s", "1.5s", "25h", "99999999999999999999ns", "5d", "５s"] {
            assert_eq!(Period::parse(text), None, "{text}");
        }
    }
}
