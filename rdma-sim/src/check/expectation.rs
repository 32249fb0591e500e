//! The names of what a check expects its runs to reach

use rdma_core::probe::ProtocolState;
use strsim::osa_distance;

use crate::catalogue;
use crate::fault::FAULTS;
use crate::model::Model;

/// The check expects something that no run of it can reach
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ExpectationError {
    #[error(
        "`Check::reaches` names {name:?}, which no run of this model can exercise: remove it, or check another model"
    )]
    OtherModel { name: String },
    #[error("`Check::reaches` names {name:?}, which reports do not count: {reason}; remove it")]
    Uncounted { name: String, reason: &'static str },
    #[error("`Check::reaches` names {name:?}, and there is no {kind} of that name; near: {}", near.join(", "))]
    Unknown { name: String, kind: &'static str, near: Vec<String> },
}

/// Refuses a name that begins as those of rules, faults or states of the protocol do, and is none of a device of `model`
pub(super) fn check_name(name: &str, model: &Model) -> Result<(), ExpectationError> {
    let Some((kind, rest)) = name.split_once(' ') else { return Ok(()) };
    let (kind, is_known) = match kind {
        "protocol" => ("state of the protocol", ProtocolState::ALL.iter().any(|state| state.name() == rest)),
        "fault" => ("fault", FAULTS.iter().any(|fault| fault.name == rest)),
        "rule" => match catalogue::rules().find(|rule| rule.name == rest) {
            Some(rule) if !rule.applies_to(model) => {
                return Err(ExpectationError::OtherModel { name: name.to_owned() });
            }
            Some(rule) => match rule.uncounted {
                Some(reason) => return Err(ExpectationError::Uncounted { name: name.to_owned(), reason }),
                None => ("rule", true),
            },
            None => ("rule", false),
        },
        _ => return Ok(()),
    };
    if is_known {
        return Ok(());
    }
    let near = nearest(name, fixed_names(model));
    Err(ExpectationError::Unknown { name: name.to_owned(), kind, near })
}

/// Why a name that no run has reached is probably misspelt, as words that follow it; nothing if it is one of `labels` or fixed
///
/// `covered` are names of the report that were reached.
pub(super) fn doubt<'a>(
    name: &str,
    labels: impl Iterator<Item = &'a str>,
    covered: impl Iterator<Item = &'a str>,
    model: &Model,
) -> String {
    let labels: Vec<_> = labels.collect();
    if labels.contains(&name) || fixed_names(model).any(|known| known == name) {
        return String::new();
    }
    let seen = labels.into_iter().chain(covered).map(str::to_owned);
    let near = nearest(name, seen.chain(fixed_names(model)));
    format!(
        ": no rule, fault or state has that name, and no statement that was evaluated; near: {}",
        near.join(", ")
    )
}

/// The names that do not depend on the test
fn fixed_names(model: &Model) -> impl Iterator<Item = String> {
    let rules = catalogue::rules().filter(|rule| rule.uncounted.is_none() && rule.applies_to(model));
    let rules = rules.map(|rule| format!("rule {}", rule.name));
    let faults = FAULTS.iter().map(|fault| format!("fault {}", fault.name));
    let states = ProtocolState::ALL.iter().map(|state| format!("protocol {state}"));
    rules.chain(faults).chain(states)
}

/// How many near names are printed
const MOST: usize = 3;

/// The `names` that are most like `name`, quoted
fn nearest(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    // What comes before the first space is often forgotten.
    let distance_to = |known: &str| {
        let bare = known.split_once(' ').map_or(known, |(_, bare)| bare);
        osa_distance(name, known).min(osa_distance(name, bare))
    };
    let mut by_distance: Vec<_> = names.map(|known| (distance_to(&known), known)).collect();
    by_distance.sort();
    by_distance.dedup();
    by_distance.into_iter().take(MOST).map(|(_, known)| format!("{known:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_refused_with_those_that_are_near() {
        let refused = |name: &str| check_name(name, &Model::tb5()).unwrap_err().to_string();
        let text = refused("rule frame-macth");
        assert!(text.contains("there is no rule of that name; near: \"rule frame-match\", "), "{text}");
        assert!(refused("fault unplgu").contains("no fault of that name; near: \"fault unplug\", "));
        let text = refused("protocol message waits for roo");
        assert!(
            text.contains(
                "no state of the protocol of that name; near: \"protocol message waits for room\", "
            ),
            "{text}"
        );
        assert!(refused("rule latency").contains("reports do not count: every message has it"));
        assert!(refused("rule roce-drops").contains("no run of this model can exercise"));
        assert_eq!(check_name("rule roce-drops", &Model::roce()), Ok(()));
        for name in
            ["rule frame-match", "fault unplug", "protocol path proven", "state leader", "a label", "label"]
        {
            assert_eq!(check_name(name, &Model::tb5()), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_known_is_not_doubted() {
        let doubt = |name| {
            let (labels, covered) = (["the cable is out"].into_iter(), ["state leader"].into_iter());
            doubt(name, labels, covered, &Model::tb5())
        };
        assert_eq!(doubt("rule frame-match"), "");
        assert_eq!(doubt("the cable is out"), "");
        let text = doubt("state leadr");
        assert!(text.contains("no rule, fault or state has that name"), "{text}");
        assert!(text.contains("near: \"state leader\", "), "{text}");
        assert!(doubt("the cable is off").contains("near: \"the cable is out\", "));
        assert!(doubt("unplugg").contains("near: \"fault unplug\", "));
    }
}
