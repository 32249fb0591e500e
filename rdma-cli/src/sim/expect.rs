//! The expectations of a scenario, and their check

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::invalid::Invalid;
use super::log::Measured;
use super::outcome::{End, Outcome};
use super::period::Period;
use super::port::Port;

/// `[expect]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// Expected end of all programs.
    outcome: Outcome,
    /// Expected ends of single programs, by host or port.
    #[serde(default)]
    ends: BTreeMap<Spanned<String>, Outcome>,
    /// Part of the error of a program that ends with `outcome`.
    error: Option<String>,
    /// By when all programs have ended.
    #[serde(default = "a_minute")]
    within: Period,
    min_goodput_bytes_per_second: Option<f64>,
    max_goodput_bytes_per_second: Option<f64>,
    /// Bounds of the slowest round trip.
    min_rtt: Option<Period>,
    max_rtt: Option<Period>,
}

fn a_minute() -> Period {
    Period::from_secs(60)
}

impl Expect {
    /// Time for which the programs are observed
    pub(crate) fn within(&self) -> Period {
        self.within
    }

    pub(super) fn check(&self, links: &[[Port; 2]]) -> Result<(), Invalid> {
        for name in self.ends.keys() {
            let is_named = |port: &Port| port.host == *name.get_ref() || port.to_string() == *name.get_ref();
            if !links.iter().flatten().any(is_named) {
                let why = format!("no program runs at {:?}: write a host or port of links", name.get_ref());
                return Err(Invalid::at(name, why));
            }
        }
        Ok(())
    }

    /// Expected end of the program at `port`
    fn outcome_at(&self, port: &Port) -> Outcome {
        let own = self.ends.get(port.to_string().as_str());
        *own.or_else(|| self.ends.get(port.host.as_str())).unwrap_or(&self.outcome)
    }

    /// The expectations that were not met
    pub(crate) fn check_run(&self, ends: &[End], measured: &Measured) -> Vec<String> {
        let mut wrong = Vec::new();
        for end in ends {
            let expected = self.outcome_at(&end.port);
            if end.outcome != expected {
                wrong.push(format!("{}: expected {expected}, found {end}", end.port));
            }
        }
        if let Some(text) = &self.error {
            let mut expected = ends.iter().filter(|end| end.outcome == self.outcome);
            if !expected.any(|end| end.why.contains(text)) {
                wrong.push(format!(
                    "expected an error with {text:?}, found none at an end that {}",
                    self.outcome
                ));
            }
        }
        let goodput = measured.goodput_bytes_per_second;
        let bytes_per_second = |bytes: f64| format!("{bytes:.0} bytes per second");
        let [min, max] = [self.min_goodput_bytes_per_second, self.max_goodput_bytes_per_second];
        wrong.extend(outside("a goodput of", goodput, min, max, bytes_per_second));
        let rtt = measured.slowest_rtt.map(Period);
        let text = |period: Period| period.to_string();
        wrong.extend(outside("the slowest round trip to take", rtt, self.min_rtt, self.max_rtt, text));
        wrong
    }
}

/// Describes a value outside of `min..=max`, and on which side: a check takes texts in which only numbers differ for the same failure
fn outside<T: Copy + PartialOrd>(
    what: &str,
    found: Option<T>,
    min: Option<T>,
    max: Option<T>,
    text: impl Fn(T) -> String,
) -> Option<String> {
    // Written so that NaN is outside.
    let is_inside = |found: T| min.is_none_or(|min| found >= min) && max.is_none_or(|max| found <= max);
    if min.is_none() && max.is_none() || found.is_some_and(is_inside) {
        return None;
    }
    let bound = |word: &str, bound: Option<T>| bound.map(|bound| format!(" {word} {}", text(bound)));
    let [least, most] = [bound("at least", min), bound("at most", max)].map(Option::unwrap_or_default);
    let is_less = |found: T| min.is_some_and(|min| found < min);
    let side = |found: T| if is_less(found) { "less" } else { "more" };
    let found = found.map_or_else(
        || "nothing was measured".to_owned(),
        |found| format!("found {}, which is {}", text(found), side(found)),
    );
    Some(format!("expected {what}{least}{most}, {found}"))
}
