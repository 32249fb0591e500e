//! Rules of the simulator's catalogue that have no field in a profile: what behaviours say of them

use super::RULES;
use super::verdict::{Behaviour, Verdict};
use crate::findings::Findings;

/// The rule that a behaviour shows
pub(super) fn of(behaviour: &str) -> Option<&'static str> {
    RULES.iter().find(|(_, name)| *name == behaviour).map(|(rule, _)| *rule)
}

/// Enters each rule that behaviours show: broken if one of them failed, else untested if one was skipped
pub(crate) fn enter(findings: &mut Findings, behaviours: &[Behaviour]) {
    for (at, (rule, _)) in RULES.iter().enumerate() {
        let is_entered = RULES[..at].iter().any(|(before, _)| before == rule);
        if !is_entered {
            enter_one(findings, rule, behaviours);
        }
    }
}

fn enter_one(findings: &mut Findings, rule: &'static str, behaviours: &[Behaviour]) {
    let (mut failed, mut skipped) = (Vec::new(), None);
    for Behaviour { name, verdict, .. } in behaviours.iter().filter(|behaviour| behaviour.rule == Some(rule))
    {
        match verdict {
            Verdict::Failed(why) => failed.push(format!("{name}: {why}")),
            Verdict::Skipped(why) => skipped = Some(why),
            Verdict::Passed => (),
        }
    }
    match skipped {
        _ if !failed.is_empty() => findings.rule(rule, Some(failed.join("; "))),
        Some(why) => findings.leave_rule(rule, why.clone().into_owned()),
        None => findings.rule(rule, None),
    }
}
