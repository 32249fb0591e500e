//! Every field of a model by name: the only table of them

use rdma_core::Caps;

use super::value::Value;
use crate::model::{Model, Timing};
use crate::rules::Rules;

/// A field of a model that a profile file can set
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// As in files: `rules.alignment`
    pub(crate) name: &'static str,
    /// As in the source: `Rules::alignment`
    pub(crate) path: &'static str,
    /// Its value as `MODEL.md` writes it
    pub(crate) debug: fn(&Model) -> String,
    /// Its value as files write it
    pub(crate) value: fn(&Model) -> String,
    /// Sets it to a value of a file; else says what may be written
    pub(crate) set: fn(&mut Model, &str) -> Result<(), String>,
}

/// Makes `FIELDS`
///
/// The parts of the model are taken apart field by field: a new field of `Rules` or `Timing` does not compile before it is listed.
macro_rules! fields {
    ($($part:ident: $group:ident { $($field:ident $(in $range:expr, $why:literal)?),+ $(,)? } $(=> $rest:tt)?)+) => {
        pub(crate) static FIELDS: &[Field] = &[$($(Field {
            name: concat!(stringify!($part), ".", stringify!($field)),
            path: concat!(stringify!($group), "::", stringify!($field)),
            debug: |model| format!("{:?}", model.$part.$field),
            value: |model| model.$part.$field.write(),
            set: |model, text| {
                let value = parse_as(&model.$part.$field, text, &[$($why)?])?;
                $(
                    let is_possible: fn(_) -> bool = $range;
                    if !is_possible(value) {
                        return Err($why.to_owned());
                    }
                )?
                model.$part.$field = value;
                Ok(())
            },
        }),+),+];

        /// Does not compile while a field is missing in the table.
        #[expect(dead_code, reason = "the compiler checks that the table is complete")]
        fn require_all(model: &Model) {
            $(let $group { $($field: _,)+ $($rest)? } = &model.$part;)+
        }
    };
}

/// `text` as a value of the type of `old`; else says what may be written, which is narrower than the type if `expected` says so
fn parse_as<T: Value>(_old: &T, text: &str, expected: &[&str]) -> Result<T, String> {
    T::parse(text).ok_or_else(|| expected.first().map_or_else(T::expected, |expected| (*expected).to_owned()))
}

/// An hour: a constant of a device that takes longer is a mistake.
const HOUR_NS: u64 = 3_600_000_000_000;

fn is_time(ns: u64) -> bool {
    ns <= HOUR_NS
}

fn is_count(count: u32) -> bool {
    (1..=65_536).contains(&count)
}

fields! {
    caps: Caps {
        flush_on_error,
        frame in |frame| frame == rdma_core::FRAME as u32, "4096: the simulator has no other frames",
        max_cq in is_count, "a number from 1 to 65536",
        max_cqe in is_count, "a number from 1 to 65536",
        max_message in |len| (1..=1 << 30).contains(&len), "a number of bytes from 1 to 1073741824",
        max_mr in is_count, "a number from 1 to 65536",
        max_pd in is_count, "a number from 1 to 65536",
        max_qp in |count| (1..=2048).contains(&count), "a number from 1 to 2048",
        max_queue_frames in is_count, "a number from 1 to 65536",
        max_sge in |count| (1..=64).contains(&count), "a number from 1 to 64",
        one_sided,
        send_waits_for_receive,
    } => ..
    rules: Rules {
        alignment in |align: usize| align.is_power_of_two() && align <= 1 << 14, "a power of two up to 16384, the page of a Mac",
        boundary,
        completion_events,
        crashes,
        early_receives,
        error_keeps_mappings,
        failed_rtr_wedges in |limit: Option<u32>| limit != Some(0), "never, or a number from 1 on",
        frame_match,
        gids_move,
        idle_death,
        idle_death_spoils,
        ipv4_gid_index in |index: usize| (1..=2).contains(&index), "1 or 2",
        late_registration,
        link_local_source,
        large_mtu,
        large_gid_table,
        local_write_alone,
        multi_sge,
        process_end_leaks_pds,
        process_end_leaks_qps,
        queue_grant,
        queue_read_back,
        queue_unit,
        reboot_readdresses,
        replug_leaks_pds,
        reuses_keys,
        ring_overflow,
        send_completion,
        source_gid,
        spoiled_rtr,
        surplus_region_crashes,
        tb4_devices,
        unresolved,
        uc_write,
    }
    timing: Timing {
        doorbell_ns in is_time, "nanoseconds of at most an hour",
        per_message_ns in is_time, "nanoseconds of at most an hour",
        propagation_ns in is_time, "nanoseconds of at most an hour",
        delivery_ns in is_time, "nanoseconds of at most an hour",
        jitter_ns in |ns| ns < 1_000_000_000, "nanoseconds of less than a second",
        send_completion_ns in is_time, "nanoseconds of at most an hour",
        line_rate,
        frame_ns in |ns| (1..1_000_000_000).contains(&ns), "nanoseconds from 1 to 999999999",
        unresolved_rtr_ns in is_time, "nanoseconds of at most an hour",
        verbs_block_tasks,
        verbs_take_time,
        cpu,
        open_ns in is_time, "nanoseconds of at most an hour",
        create_ns in is_time, "nanoseconds of at most an hour",
        register_ns in is_time, "nanoseconds of at most an hour",
        register_page_ns in is_time, "nanoseconds of at most an hour",
        modify_ns in is_time, "nanoseconds of at most an hour",
        teardown_ns in is_time, "nanoseconds of at most an hour",
        post_ns in is_time, "nanoseconds of at most an hour",
        poll_ns in is_time, "nanoseconds of at most an hour",
        copy_bytes_per_us,
        reduce_bytes_per_us,
        wake_ns in is_time, "nanoseconds of at most an hour",
        wake_tail_one_in in |one_in| one_in == 0 || one_in >= 4, "0 for never, or a number from 4 on",
        wake_tail_ns in |ns| ns < 1_000_000_000, "nanoseconds of less than a second",
        cores in |cores| cores <= 1024, "a number up to 1024",
        mac_bytes_per_us,
        ip_percent in |percent| percent < 100, "a number below 100",
        turns in is_count, "a number from 1 to 65536",
    }
}

/// The field called `name`
pub(crate) fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}
