use rdma_core::Caps;

use crate::model::{Model, Timing};
use crate::rules::Rules;

/// Every field of a model by name, with its value as text
///
/// The parts of the model are taken apart field by field: a new field of `Rules` or `Timing` does not compile before it is listed.
pub(super) fn switches(model: &Model) -> Vec<(&'static str, String)> {
    let Model { caps, rules, timing } = model;
    let mut all = Vec::new();
    macro_rules! list {
        ($value:ident: $group:ident { $($field:ident),+ } $($rest:tt)*) => {
            let $group { $($field,)+ $($rest)* } = $value;
            all.extend([$((concat!(stringify!($group), "::", stringify!($field)), format!("{:?}", $field))),+]);
        };
    }
    list!(caps: Caps {
        flush_on_error, frame, max_cq, max_cqe, max_message, max_mr, max_pd, max_qp, max_queue_frames, max_sge, one_sided,
        send_waits_for_receive
    } ..);
    list!(rules: Rules {
        alignment, boundary, completion_events, crashes, early_receives, error_keeps_mappings, failed_rtr_wedges,
        frame_match, gids_move, idle_death, idle_death_spoils, late_registration, link_local_source, large_mtu,
        local_write_alone, multi_sge, process_end_leaks_pds, queue_grant, queue_read_back, queue_unit,
        reboot_readdresses, replug_leaks_pds, ring_overflow, send_completion, source_gid, tb4_devices, unresolved, uc_write
    });
    list!(timing: Timing {
        doorbell_ns, per_message_ns, propagation_ns, delivery_ns, jitter_ns, send_completion_ns, line_rate,
        unresolved_rtr_ns, verbs_block_tasks, cpu, open_ns, create_ns, register_ns, register_page_ns, modify_ns,
        teardown_ns, post_ns, poll_ns, copy_bytes_per_us, reduce_bytes_per_us, wake_ns, wake_tail_one_in, wake_tail_ns,
        cores, mac_bytes_per_us, ip_percent, turns
    });
    all
}
