//! Memory

use super::rule::rules;

rules! {
    /// Registered memory begins at a page of 16 KiB; other addresses are refused (22).
    "registration-alignment", Measured by "openclawradar, 2026-05-06; Verbifrost notes; Apple TN3205 advises it", set by Rules::alignment,
        applies if |model| model.rules.alignment > 1,
        shown by memory_begins_at_a_page;

    /// Any length from one byte can be registered, far beyond the advertised 16 MB.
    "registration-length", Measured by "mesh-flow field notes",
        shown by memory_of_any_length_can_be_registered;

    /// Memory can be registered for local writing alone (Apple TN3205), or only together with remote access (llama.cpp,
    /// a comment).
    "registration-access", Disputed by "Apple TN3205; llama.cpp source, transport-apple.cpp", set by Rules::local_write_alone,
        shown by local_writing_alone_is_refused_or_not;

    /// The device does not find the part of a region beyond a 4 GiB boundary of its addresses: data lands elsewhere,
    /// and no error is reported. Regions here cross such a boundary only where a fault makes them, or, under the C ABI, where the
    /// program's memory does; `rdma-tb5` refuses such memory.
    "four-gib-boundary", Measured by "mesh-flow field notes", set by Rules::boundary,
        applies if |model| model.rules.boundary,
        shown by data_beyond_a_4_gib_boundary_is_lost_or_not;

    /// A receive reaches only memory that was registered before its queue pair became ready to receive; otherwise it
    /// completes with status 4.
    "late-registration", Measured by "mesh-flow field notes", set by Rules::late_registration,
        applies if |model| !model.rules.late_registration,
        shown by late_memory_receives_nothing_or_does;

    /// A receive into memory without the right to write completes with status 4.
    "receive-access", Assumed by "libibverbs manual, ibv_reg_mr",
        shown by a_receive_needs_the_right_to_write;

    /// The first lkey of a device is 0x101, and there are no rkeys. That keys are unique is assumed.
    "keys", Measured by "openclawradar, 2026-05-06; tmc/apple rdma", set by Caps::one_sided,
        shown by keys_begin_at_0x101_and_are_unique;

    /// A region may get the key of one that was deregistered before: an inference that no source has seen, so this is off, and a
    /// program that uses an old key is refused. That the key which was given back last is the next one is assumed.
    "key-reuse", Assumed by "this project", set by Rules::reuses_keys,
        applies if |model| model.rules.reuses_keys,
        shown by a_key_that_was_given_back_is_given_again_or_not;

    /// A request that names an unknown lkey, or leaves its region, is refused (22) and uses no slot.
    "unregistered", Assumed by "this project",
        shown by memory_that_is_not_registered_is_refused;

    /// A request whose region was deregistered meanwhile completes with status 4. The sanitizer reports it.
    "deregistered", Assumed by "this project",
        shown by memory_that_is_gone_ends_in_a_protection_error;
}
