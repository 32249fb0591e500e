use rdma_core::Caps;

use super::Rules;
use crate::{Model, Timing};

/// Every switch of a model by name, and what it says
///
/// [`Rules`] is taken apart field by field, so that no switch is forgotten.
pub(crate) fn switches(model: &Model) -> Vec<(&'static str, String)> {
    let Model { caps, rules, timing } = model;
    let mut all = of_caps(caps);
    all.extend(of_rules(rules));
    all.extend(of_timing(timing));
    all
}

macro_rules! list {
    ($of:literal, $($field:ident),+) => {
        vec![$((concat!($of, "::", stringify!($field)), format!("{:?}", $field))),+]
    };
}

fn of_caps(caps: &Caps) -> Vec<(&'static str, String)> {
    let Caps { flush_on_error, frame, max_cq, max_cqe, max_message, max_mr, max_pd, max_qp, .. } = caps;
    let Caps { max_queue_frames, max_sge, one_sided, send_waits_for_receive, .. } = caps;
    list!(
        "Caps",
        flush_on_error,
        frame,
        max_cq,
        max_cqe,
        max_message,
        max_mr,
        max_pd,
        max_qp,
        max_queue_frames,
        max_sge,
        one_sided,
        send_waits_for_receive
    )
}

fn of_rules(rules: &Rules) -> Vec<(&'static str, String)> {
    let Rules {
        alignment,
        boundary,
        early_receives,
        error_keeps_mappings,
        failed_rtr_wedges,
        frame_match,
        idle_death,
        late_registration,
        link_local_source,
        large_mtu,
        local_write_alone,
        multi_sge,
        queue_unit,
        replug_leaks_pds,
        ring_overflow,
        send_completion,
        source_gid,
        tb4_devices,
        uc_write,
    } = rules;
    list!(
        "Rules",
        alignment,
        boundary,
        early_receives,
        error_keeps_mappings,
        failed_rtr_wedges,
        frame_match,
        idle_death,
        late_registration,
        link_local_source,
        large_mtu,
        local_write_alone,
        multi_sge,
        queue_unit,
        replug_leaks_pds,
        ring_overflow,
        send_completion,
        source_gid,
        tb4_devices,
        uc_write
    )
}

fn of_timing(timing: &Timing) -> Vec<(&'static str, String)> {
    let Timing {
        doorbell_ns,
        per_message_ns,
        propagation_ns,
        delivery_ns,
        jitter_ns,
        send_completion_ns,
        line_rate,
    } = timing;
    list!(
        "Timing",
        doorbell_ns,
        per_message_ns,
        propagation_ns,
        delivery_ns,
        jitter_ns,
        send_completion_ns,
        line_rate
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::catalogue::FAULTS;
    use crate::rules::table::{RULES, RuleStatus};

    #[test]
    fn rules_name_switches_that_exist_and_what_they_say() {
        let switches = switches(&Model::tb5());
        for rule in RULES {
            let known = switches.iter().find(|(name, _)| *name == rule.switch);
            match (known, rule.switch.strip_prefix("fault ")) {
                (Some((_, value)), _) => assert_eq!(rule.default, value, "{}", rule.name),
                (None, Some(fault)) => assert!(FAULTS.iter().any(|kind| kind.name == fault), "{fault}"),
                (None, None) => assert_eq!((rule.switch, rule.default), ("–", "–"), "{}", rule.name),
            }
            let can_be_decided = rule.switch.starts_with("Rules::");
            assert!(rule.status != RuleStatus::Disputed || can_be_decided, "{} has two variants", rule.name);
        }
        let decides = |name| RULES.iter().any(|rule| rule.switch == name);
        for (name, _) in of_rules(&Model::tb5().rules) {
            assert!(decides(name), "{name} belongs to no rule");
        }
        let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len(), "rules have names of their own");
    }
}
