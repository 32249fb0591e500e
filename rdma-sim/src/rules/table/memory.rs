//! Memory

use super::Rule;
use super::RuleStatus::{Assumed, Disputed, Documented, Measured};

pub(super) const RULES: [Rule; 9] = [
    Rule {
        name: "registration-alignment",
        says: "Memory that is registered begins at a page of 16 KiB; other is refused (22).",
        source: "Apple TN3205; openclawradar, 2026-05-06",
        status: Documented,
        default: "16384",
        switch: "Rules::alignment",
        test: "memory_begins_at_a_page",
    },
    Rule {
        name: "registration-length",
        says: "Any length from one byte can be registered, far beyond the advertised 16 MB.",
        source: "mesh-flow field notes",
        status: Measured,
        default: "–",
        switch: "–",
        test: "memory_of_any_length_can_be_registered",
    },
    Rule {
        name: "registration-access",
        says: "Memory can be registered for local writing alone (Apple TN3205), or only together with \
            remote access (llama.cpp, a comment).",
        source: "Apple TN3205; llama.cpp source, transport-apple.cpp",
        status: Disputed,
        default: "true",
        switch: "Rules::local_write_alone",
        test: "local_writing_alone_is_refused_or_not",
    },
    Rule {
        name: "four-gib-boundary",
        says: "What a region has beyond a 4 GiB boundary of its addresses is not found: data lands \
            elsewhere, and nobody is told. Regions here cross one only where a fault says so.",
        source: "mesh-flow field notes",
        status: Measured,
        default: "true",
        switch: "Rules::boundary",
        test: "data_beyond_a_4_gib_boundary_is_lost_or_not",
    },
    Rule {
        name: "late-registration",
        says: "A receive reaches only memory that was registered before its queue pair was ready to \
            receive; otherwise it ends with status 4.",
        source: "mesh-flow field notes",
        status: Measured,
        default: "false",
        switch: "Rules::late_registration",
        test: "late_memory_receives_nothing_or_does",
    },
    Rule {
        name: "receive-access",
        says: "A receive into memory without the right to write ends with status 4.",
        source: "libibverbs manual, ibv_reg_mr",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "a_receive_needs_the_right_to_write",
    },
    Rule {
        name: "keys",
        says: "The first lkey of a device is 0x101, and there are no rkeys. That keys are not given twice \
            is assumed.",
        source: "openclawradar, 2026-05-06; tmc/apple rdma",
        status: Measured,
        default: "false",
        switch: "Caps::one_sided",
        test: "keys_begin_at_0x101_and_nobody_else_has_one",
    },
    Rule {
        name: "unregistered",
        says: "A request that names an unknown lkey, or leaves its region, is refused (22) and takes \
            nothing.",
        source: "this project",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "memory_that_is_not_registered_is_refused",
    },
    Rule {
        name: "deregistered",
        says: "A request whose region was deregistered meanwhile ends with status 4. The sanitizer tells \
            of it.",
        source: "this project",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "memory_that_is_gone_ends_in_a_protection_error",
    },
];
