//! How long things take

use super::rule::rules;

rules! {
    /// Each message occupies the transmitter for 60 ns beside its bytes.
    "message-gap", Assumed by "this project", set by Timing::per_message_ns, uncounted as "every message has it",
        shown by each_part_of_the_way_takes_its_time;

    /// The completion of a receive is visible 1.5 µs after its last byte has arrived.
    "delivery-time", Assumed by "this project, as a part of the latency", set by Timing::delivery_ns,
        uncounted as "every message has it",
        shown by each_part_of_the_way_takes_its_time;

    /// Deliveries vary by up to 200 ns. No source has a distribution.
    "jitter", Assumed by "this project", set by Timing::jitter_ns, uncounted as "every message has it",
        shown by each_part_of_the_way_takes_its_time;

    /// The completion of a send is visible 300 ns after its last byte has left.
    "send-completion-time", Assumed by "this project", set by Timing::send_completion_ns,
        uncounted as "every message has it",
        shown by each_part_of_the_way_takes_its_time;

    /// Bytes take as long as the rate of the cable says; a switch for programs that run in real time turns that off.
    "line-time", Documented by "Thunderbolt specifications", set by Timing::line_rate, uncounted as "every message has it",
        shown by each_part_of_the_way_takes_its_time;

    /// Verbs, copies, reductions and wake-ups take the time of the task that does them, or none: then the figures are those of
    /// the wire alone. That programs are bound by their processor is measured (PR 44); by how much, the next rules assume.
    "processors", Assumed by "this project; hellas thunderbolt-ibverbs PR 44; mlx#3412", set by Timing::cpu,
        uncounted as "a cost, not an event", applies if |model| model.timing.cpu,
        shown by processors_take_time_or_none;

    /// Verbs of set-up and teardown take the times below, or none. No source has figures; `tb5 calibrate` measures them.
    "verb-time", Assumed by "this project", set by Timing::verbs_take_time,
        uncounted as "a cost, not an event", applies if |model| model.timing.cpu || model.timing.verbs_take_time,
        shown by verbs_take_their_time_without_processors;

    /// Opening a device with a protection domain takes 100 µs. No source has a figure.
    "open-time", Assumed by "this project", set by Timing::open_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu || model.timing.verbs_take_time, shown by each_verb_takes_its_time;

    /// Creating a completion queue or a queue pair takes 50 µs. No source has a figure.
    "create-time", Assumed by "this project", set by Timing::create_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu || model.timing.verbs_take_time, shown by each_verb_takes_its_time;

    /// Registering memory takes 20 µs and a share for each page.
    "register-time", Assumed by "this project", set by Timing::register_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu || model.timing.verbs_take_time, shown by each_verb_takes_its_time;

    /// Registering pins pages of 16 KiB (mlx#4403), which takes 500 ns for each. No source has a figure.
    "register-page-time", Assumed by "this project; mlx#4403", set by Timing::register_page_ns,
        uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu || model.timing.verbs_take_time, shown by each_verb_takes_its_time;

    /// A transition of a queue pair takes 20 µs, beside the second of one that finds no neighbour.
    "modify-time", Assumed by "this project", set by Timing::modify_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu || model.timing.verbs_take_time, shown by each_verb_takes_its_time;

    /// Destroying an object or deregistering memory takes 20 µs.
    "teardown-time", Assumed by "this project", set by Timing::teardown_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu || model.timing.verbs_take_time, shown by each_verb_takes_its_time;

    /// A post takes 100 ns: it makes no system call (Apple TN3205), and no source has a figure.
    "post-time", Assumed by "this project, from Apple TN3205", set by Timing::post_ns,
        uncounted as "a cost, not an event", applies if |model| model.timing.cpu, shown by each_verb_takes_its_time;

    /// A poll takes 30 ns, whether or not it finds something: it makes no system call (Apple TN3205), and no source has a figure.
    "poll-time", Assumed by "this project, from Apple TN3205", set by Timing::poll_ns,
        uncounted as "a cost, not an event", applies if |model| model.timing.cpu, shown by each_verb_takes_its_time;

    /// A core copies 25 bytes in a nanosecond. Calibrated: `docs/PUBLISHED.md` says with which figure.
    "copy-rate", Assumed by "this project, from tb5-jaccl-toolkit", set by Timing::copy_bytes_per_us,
        uncounted as "a cost, not an event", applies if |model| model.timing.cpu, shown by processors_take_time_or_none;

    /// A core combines 25 bytes of two vectors in a nanosecond. Calibrated together with the copies.
    "reduce-rate", Assumed by "this project, from tb5-jaccl-toolkit", set by Timing::reduce_bytes_per_us,
        uncounted as "a cost, not an event", applies if |model| model.timing.cpu, shown by processors_take_time_or_none;

    /// A task runs 100 ns after the event that it waits for: it polls all the time, as MLX does.
    "wake-up", Assumed by "this project, from MLX source", set by Timing::wake_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu, shown by wake_ups_are_late_and_some_are_later;

    /// One wake-up in a thousand takes longer. No histogram is published.
    "wake-up-tail", Assumed by "this project", set by Timing::wake_tail_one_in, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu, shown by wake_ups_are_late_and_some_are_later;

    /// Such a wake-up takes up to 20 µs longer. No histogram is published.
    "wake-up-tail-length", Assumed by "this project", set by Timing::wake_tail_ns, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu, shown by wake_ups_are_late_and_some_are_later;

    /// Each task of a host has a core of its own, or so many cores are shared. Tasks that work take turns. A task that waits for
    /// completions polls all the time, and whichever task works shares the cores with those that poll: its work takes longer, also
    /// where several work and fair shares would give them more. How long a turn is, no source has; no wake-up is later for it.
    "shared-cores", Assumed by "this project", set by Timing::cores, uncounted as "a cost, not an event",
        applies if |model| model.timing.cpu && model.timing.cores > 0, shown by tasks_that_poll_have_their_share_of_the_cores;

    /// All ports of a Mac together send as much as their cables carry, or no more than a bound. Published sums over three links
    /// (18.3 GB/s, 7.6 GB/s) are far below those of the links; whether that is the program or the Mac is not known.
    "mac-bound", Assumed by "mlx#3412; pytorch PR 189856", set by Timing::mac_bytes_per_us,
        uncounted as "a cost, not an event", applies if |model| model.timing.mac_bytes_per_us > 0,
        shown by the_ports_of_a_mac_share_a_bound_or_none;

    /// Thunderbolt networking shares the link with RDMA. How much of it, depends on the program: none, unless this is set.
    "networking-share", Documented by "Apple TN3205", set by Timing::ip_percent, uncounted as "a cost, not an event",
        applies if |model| model.timing.ip_percent > 0,
        shown by networking_takes_its_part_of_the_cable;

    /// Queue pairs take equal turns, or the first of a port takes several in a row. No source has measured the turns.
    "unequal-turns", Assumed by "this project", set by Timing::turns, uncounted as "a cost, not an event",
        applies if |model| model.timing.turns > 1,
        shown by the_first_queue_pair_takes_more_turns_if_they_are_unequal;
}
