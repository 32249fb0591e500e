//! Devices with random rules and timings, and which of them programs can tell apart

use rdma_sim::profile::Profile;
use rdma_sim::{Choices, LineRate, Model, Seeded};

use crate::transmitter::exceeds_its_port;

/// Words that a field may have; those with only one side that programs can live with are not drawn
const WORDS: &[(&str, &[&str])] = &[
    ("caps.flush_on_error", &["true", "false"]),
    ("rules.alignment", &["1", "64", "4096", "16384"]),
    ("rules.boundary", &["true", "false"]),
    ("rules.completion_events", &["true", "false"]),
    ("rules.early_receives", &["from-init", "from-rtr", "from-rts"]),
    ("rules.error_keeps_mappings", &["true", "false"]),
    ("rules.failed_rtr_wedges", &["never", "never", "1", "2", "3", "4", "8"]),
    ("rules.frame_match", &["exact", "fits"]),
    ("rules.gids_move", &["true", "false"]),
    ("rules.idle_death", &["never", "1380s", "600s"]),
    ("rules.ipv4_gid_index", &["1", "2"]),
    ("rules.late_registration", &["true", "false"]),
    ("rules.large_gid_table", &["true", "false"]),
    ("rules.large_mtu", &["true", "false"]),
    ("rules.local_write_alone", &["true", "false"]),
    ("rules.multi_sge", &["refused", "split"]),
    (
        "rules.queue_grant",
        &[
            "exact",
            "at-least 0",
            "at-least 200",
            "at-least 511",
            "at-least 1023",
            "at-least 3000",
            "fixed 200",
            "fixed 1023",
        ],
    ),
    ("rules.queue_read_back", &["accepted", "asked", "limit"]),
    ("rules.queue_unit", &["frames", "requests"]),
    ("rules.replug_leaks_pds", &["0", "1"]),
    ("rules.reuses_keys", &["true", "false"]),
    ("rules.ring_overflow", &["refused", "corrupts"]),
    ("rules.send_completion", &["departure", "hand-off"]),
    ("rules.source_gid", &["any", "ipv4"]),
    ("rules.tb4_devices", &["true", "false"]),
    ("rules.unresolved", &["not-permitted", "timed-out"]),
    ("rules.uc_write", &["as-send", "refused"]),
    ("caps.max_cq", &["5", "11"]),
    ("caps.max_cqe", &["2048", "4096"]),
    ("caps.max_message", &["16773120", "1048576", "4096"]),
    ("caps.max_mr", &["20", "100"]),
    ("caps.max_pd", &["4", "6", "11"]),
    ("caps.max_qp", &["4", "10", "12"]),
    ("caps.max_queue_frames", &["2047", "4095"]),
];

/// The least and the most that a constant may be
const RANGES: &[(&str, u32, u32)] = &[
    ("timing.doorbell_ns", 200, 5_000),
    ("timing.per_message_ns", 15, 500),
    ("timing.propagation_ns", 200, 6_000),
    ("timing.delivery_ns", 200, 6_000),
    ("timing.jitter_ns", 0, 1_000),
    ("timing.send_completion_ns", 50, 3_000),
    ("timing.frame_ns", 380, 1_200),
    ("timing.unresolved_rtr_ns", 1_000, 2_000_000_000),
    ("timing.open_ns", 2, 5_000_000),
    ("timing.create_ns", 2, 1_000_000),
    ("timing.register_ns", 2, 1_000_000),
    ("timing.register_page_ns", 0, 10_000),
    ("timing.modify_ns", 2, 1_000_000),
    ("timing.teardown_ns", 2, 1_000_000),
];

/// The least and the most of each cost of a processor
const COSTS: &[(&str, u32, u32)] = &[
    ("timing.post_ns", 10, 1_300),
    ("timing.poll_ns", 5, 100),
    ("timing.wake_ns", 20, 2_000),
    ("timing.copy_bytes_per_us", 5_000, 50_000),
    ("timing.reduce_bytes_per_us", 5_000, 50_000),
    ("timing.wake_tail_ns", 5_000, 20_000),
];

/// The cables between two hosts
#[derive(Clone, Copy)]
pub(crate) struct Cables {
    pub(crate) count: usize,
    pub(crate) rate: LineRate,
}

impl Cables {
    /// One of Thunderbolt 5
    pub(crate) const ONE: Self = Self { count: 1, rate: LineRate::TB5 };
}

/// The cables between the hosts of a device, of which one in three has 40 Gb/s
pub(crate) fn cables(seed: u64) -> Cables {
    let mut choices = Seeded::new(seed ^ 0xCAB1E);
    let count = 1 + choices.pick(2) as usize;
    Cables { count, rate: if choices.pick(3) == 0 { LineRate::TB4 } else { LineRate::TB5 } }
}

/// A device with rules and timings drawn at random
pub(crate) fn secret(seed: u64) -> Model {
    let mut choices = Seeded::new(seed);
    let mut profile = Profile::named("tb5").unwrap();
    let set = |profile: &mut Profile, field, value: &str| {
        profile.set(field, value, rdma_sim::profile::Decided::Given).unwrap();
    };
    for (field, words) in WORDS {
        // One device in four keeps the longest messages to a frame: fewer experiments work there.
        let word = match *field {
            "caps.max_message" => words[choices.pick(4).saturating_sub(1) as usize],
            _ => words[choices.pick(words.len() as u32) as usize],
        };
        set(&mut profile, field, word);
    }
    for (field, least, most) in RANGES {
        set(&mut profile, field, &(least + choices.pick(most - least + 1)).to_string());
    }
    // Some have much more jitter than the others.
    let mut choices_of_jitter = Seeded::new(seed ^ 0x717E2);
    if choices_of_jitter.pick(4) == 0 {
        set(&mut profile, "timing.jitter_ns", &choices_of_jitter.pick(5_001).to_string());
    }
    // Most bounds of the payload are none: what is measured is all of them together.
    let bounds =
        [("timing.ip_percent", [0, 10, 30, 60]), ("timing.mac_bytes_per_us", [0, 12_000, 2_500, 6_000])];
    for (field, values) in bounds {
        let value = if choices.pick(2) == 0 { 0 } else { values[choices.pick(4) as usize] };
        set(&mut profile, field, &value.to_string());
    }
    set(&mut profile, "timing.turns", ["1", "1", "2", "4", "8"][choices.pick(5) as usize]);
    if choices.pick(8) == 0 {
        set(&mut profile, "timing.line_rate", "false");
    }
    if choices.pick(4) > 0 {
        set(&mut profile, "timing.verbs_take_time", "true");
    }
    // Where it is refused, ports have another address, over which they connect.
    if Seeded::new(seed ^ 0xA9FE).pick(4) == 0 {
        set(&mut profile, "rules.link_local_source", "false");
    }
    // Ports of 40 Gb/s have no devices otherwise.
    if cables(seed).rate == LineRate::TB4 {
        set(&mut profile, "rules.tb4_devices", "true");
    }
    // A transition that waits takes time for its task only then.
    set(&mut profile, "timing.verbs_block_tasks", "true");
    if choices.pick(3) == 0 {
        set(&mut profile, "timing.cpu", "true");
        // Else a post hides what a message takes.
        set(&mut profile, "timing.line_rate", "true");
        for (field, least, most) in COSTS {
            set(&mut profile, field, &(least + choices.pick(most - least + 1)).to_string());
        }
        for (field, words) in
            [("timing.wake_tail_one_in", ["0", "50", "100", "200"]), ("timing.cores", ["0", "1", "3", "6"])]
        {
            set(&mut profile, field, words[choices.pick(4) as usize]);
        }
    }
    // `a_frame_that_exceeds_the_rate_of_its_port_is_left` has one that is kept.
    if exceeds_its_port(cables(seed).rate, &profile.model) {
        profile.model.timing.mac_bytes_per_us = 0;
    }
    profile.model
}
