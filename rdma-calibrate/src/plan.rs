//! The experiment for each field of the model: one entry for each

use How::{Decided, Measured, Optional, Stated, Unseen};

/// A field of the model with its experiment, or the reason for which it has none
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The field, as profile files write it: `rules.alignment`
    pub field: &'static str,
    /// The experiment
    pub how: How,
}

/// The kind of experiment that decides a field of the model
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum How {
    /// The device states it, and programs keep to it
    Stated,
    /// An experiment decides it
    Decided,
    /// It is measured
    Measured,
    /// An experiment decides it that has to be asked for; with the name of the option
    Optional(&'static str),
    /// Programs do not see it, or only at a cost; with the reason
    Unseen(&'static str),
}

/// The reason of an experiment that takes an unplugged cable
pub(crate) const NEEDS_UNPLUG: &str = "it takes an unplugged cable";
/// The option of the tool for [`Options::risk_reboot`](crate::Options::risk_reboot)
const RISK: &str = "--risk-reboot";
/// The reason of an experiment that needs it and was left out
pub(crate) const NOT_RISKED: &str = "not asked for: --risk-reboot";
/// The reason of an experiment that takes a reboot
pub(crate) const NEEDS_REBOOT: &str = "it takes a reboot";

/// Every field, with how it is found out; `tb5 calibrate` reports those that were not decided with the reason
pub const PLAN: &[Plan] = &plan([
    ("caps.flush_on_error", Optional(RISK)),
    ("caps.frame", Unseen("it is a constant of the library")),
    ("caps.max_cq", Decided),
    ("caps.max_cqe", Stated),
    ("caps.max_message", Stated),
    ("caps.max_mr", Decided),
    ("caps.max_pd", Optional(RISK)),
    ("caps.max_qp", Decided),
    ("caps.max_queue_frames", Stated),
    (
        "caps.max_sge",
        Unseen("the library posts requests of one element; rules.multi_sge has what more become"),
    ),
    ("caps.one_sided", Unseen("the library decides it by the kind of the device")),
    ("caps.send_waits_for_receive", Decided),
    ("rules.alignment", Decided),
    ("rules.boundary", Unseen("to see it, data has to land 4 GiB away from where it belongs")),
    ("rules.completion_events", Decided),
    ("rules.crashes", Unseen("to decide it ends the process")),
    ("rules.early_receives", Decided),
    ("rules.error_keeps_mappings", Optional(RISK)),
    ("rules.failed_rtr_wedges", Optional(RISK)),
    ("rules.frame_match", Decided),
    ("rules.gids_move", Unseen(NEEDS_UNPLUG)),
    ("rules.idle_death", Optional("--idle-death")),
    ("rules.idle_death_spoils", Optional("--idle-death")),
    ("rules.ipv4_gid_index", Decided),
    ("rules.late_registration", Decided),
    ("rules.link_local_source", Decided),
    ("rules.large_mtu", Decided),
    ("rules.large_gid_table", Decided),
    ("rules.local_write_alone", Decided),
    ("rules.multi_sge", Decided),
    ("rules.process_end_leaks_pds", Unseen("a process has to end")),
    ("rules.process_end_leaks_qps", Unseen("a process has to end")),
    ("rules.queue_grant", Decided),
    ("rules.queue_read_back", Decided),
    ("rules.queue_unit", Decided),
    ("rules.reboot_readdresses", Unseen(NEEDS_REBOOT)),
    ("rules.replug_leaks_pds", Unseen(NEEDS_UNPLUG)),
    ("rules.reuses_keys", Decided),
    ("rules.ring_overflow", Decided),
    ("rules.send_completion", Decided),
    ("rules.source_gid", Optional(RISK)),
    ("rules.spoiled_rtr", Optional("--idle-death")),
    ("rules.surplus_region_crashes", Unseen("to decide it ends the process")),
    ("rules.tb4_devices", Decided),
    ("rules.unresolved", Optional(RISK)),
    ("rules.uc_write", Decided),
    ("timing.doorbell_ns", Measured),
    ("timing.per_message_ns", Measured),
    ("timing.propagation_ns", Measured),
    ("timing.delivery_ns", Measured),
    ("timing.jitter_ns", Measured),
    ("timing.send_completion_ns", Measured),
    ("timing.line_rate", Decided),
    ("timing.frame_ns", Measured),
    ("timing.unresolved_rtr_ns", Optional(RISK)),
    ("timing.verbs_block_tasks", Unseen("it is a property of the simulator")),
    ("timing.verbs_take_time", Decided),
    ("timing.cpu", Decided),
    ("timing.open_ns", Measured),
    ("timing.create_ns", Measured),
    ("timing.register_ns", Measured),
    ("timing.register_page_ns", Measured),
    ("timing.modify_ns", Measured),
    ("timing.teardown_ns", Measured),
    ("timing.post_ns", Measured),
    ("timing.poll_ns", Measured),
    ("timing.copy_bytes_per_us", Measured),
    ("timing.reduce_bytes_per_us", Measured),
    ("timing.wake_ns", Measured),
    ("timing.wake_tail_one_in", Measured),
    ("timing.wake_tail_ns", Measured),
    ("timing.cores", Measured),
    ("timing.mac_bytes_per_us", Measured),
    ("timing.ip_percent", Unseen("timing.frame_ns contains what Thunderbolt networking takes")),
    ("timing.turns", Measured),
]);

const fn plan<const N: usize>(entries: [(&'static str, How); N]) -> [Plan; N] {
    let mut all = [Plan { field: "", how: How::Stated }; N];
    let mut at = 0;
    while at < N {
        all[at] = Plan { field: entries[at].0, how: entries[at].1 };
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use rdma_sim::profile::Profile;

    use super::*;

    /// Catches a new field of the model that no calibration knows.
    #[test]
    fn every_field_of_the_model_is_planned_once() {
        let mut planned: Vec<_> = PLAN.iter().map(|plan| plan.field).collect();
        let mut fields: Vec<_> = Profile::fields().collect();
        planned.sort_unstable();
        fields.sort_unstable();
        assert_eq!(planned, fields);
    }
}
