//! Failures that people met in the field, F1 to F83, and what stands for each of them here

use self::Modelled::{Fault, NotVisible, Rule, Symptom, Test};

/// A field failure
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// Its number, after `F`
    pub number: u32,
    /// What happened
    pub title: &'static str,
    /// Where it was reported
    pub source: &'static str,
    /// What stands for it
    pub modelled: Modelled,
}

/// What stands for a field failure in the simulator, or in another part of this project
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Modelled {
    /// These [faults](crate::fault::FAULTS) cause it
    Fault(&'static [&'static str]),
    /// Nothing, because no program sees it over the verbs, for this reason
    NotVisible(&'static str),
    /// These [rules](super::rules) cause it, once a program gives occasion
    Rule(&'static [&'static str]),
    /// Its cause is not known; these faults or rules show the symptom that was reported, in this test
    Symptom {
        /// The faults or rules
        by: &'static [&'static str],
        /// The symptom, as a program sees it here
        shown: &'static str,
        /// The test
        test: &'static str,
    },
    /// The device has no part in it; these tests show how another part of this project treats it
    Test(&'static [&'static str]),
}

const fn failure(number: u32, title: &'static str, source: &'static str, modelled: Modelled) -> Failure {
    Failure { number, title, source, modelled }
}

/// All field failures: of discovery, addresses and limits (to F35), of traffic, links and hosts (to F64), of control planes
/// and later reports
#[rustfmt::skip]
pub const FAILURES: &[Failure] = &[
    failure(1, "RDMA is not enabled, or on one side only", "Apple TN3205", Fault(&["rdma-off"])),
    failure(2, "A port or a cable of Thunderbolt 4", "mlx#3777; mlx#4485; exo#1881",
        Rule(&["tb4-devices", "link-rate"])),
    failure(3, "Macs with different versions of macOS do not find each other", "exo README",
        Fault(&["rdma-off"])),
    failure(4, "Devices have other names after a restart", "mlx#3207; mlx#4180", Fault(&["renumber"])),
    failure(5, "The port beside Ethernet of a Mac Studio is unreliable", "exo README; tb5-jaccl-toolkit",
        Fault(&["corrupt", "flap"])),
    failure(6, "The library is missing, and programs linked to it do not start", "unsloth#9874",
        Test(&["a_missing_library_is_an_error_with_its_path_and_the_versions_that_have_one"])),
    failure(7, "The link is up after a restart, and there are no protection domains", "exo PR 1467",
        Fault(&["no-pds"])),
    failure(8, "A Mac falls asleep", "Apple TN3205; mlx#3933", Fault(&["sleep", "wake"])),
    failure(9, "The peer is listed and does not offer RDMA", "exo#1390", Fault(&["rdma-off"])),
    failure(10, "The configuration tool of MLX fails", "mlx#2944",
        NotVisible("a bug of that tool, which calls no verbs")),
    failure(11, "No IPv4 address, so only link-local GIDs", "mlx#3467; mlx#3468; mlx#4191",
        Fault(&["link-local-gids"])),
    failure(12, "The IPv4 GID is not at index 1", "mlx#3389", Fault(&["gid-at"])),
    failure(13, "The Thunderbolt Bridge has the port, or frames circle in it", "exo#1390; Apple TN3205",
        Fault(&["no-gids", "captured", "storm"])),
    failure(14, "The peer's address cannot be resolved", "exo#1847", Fault(&["unresolvable", "resolvable"])),
    failure(15, "A crashed process still holds the port", "mlx#3207", Fault(&["busy", "leak-qps"])),
    failure(16, "The receive queues of the controller are used up", "mesh-flow field notes",
        Fault(&["busy"])),
    failure(17, "The transition to RTR is repeated on the same queue pair", "mesh-flow field notes",
        Rule(&["half-connected"])),
    failure(18, "Repeated failures of the transition to RTR wedge the port", "tmc/apple rdma",
        Rule(&["failed-rtr-wedges"])),
    failure(19, "After some launches, or a night, the transition to RTR fails with 96", "exo#1973; nix-ai, rdma-protection-domains.md",
        Fault(&["leak-pds", "leak-qps", "no-gids"])),
    failure(20, "Two cables between two Macs are confused", "exo#2160; exo#2195", Fault(&["cross"])),
    failure(21, "The coordinator does not answer", "MLX source, tcp.cpp; exo#1847",
        Test(&["a_peer_that_says_nothing_is_given_up", "a_stream_that_ends_is_an_error"])),
    failure(22, "Late ranks are refused by the coordinator", "MLX source",
        NotVisible("the listen queue of a TCP socket of MLX; rdma-async takes streams that are connected")),
    failure(23, "A firewall or the local network permission is in the way", "exo#1035",
        Test(&["a_refusal_is_an_answer_and_a_refusal_to_send_is_not", "the_number_of_the_state_decides"])),
    failure(24, "The coordinator is found over another network", "exo#1203; exo#1723",
        Test(&["every_failure_is_explained_by_its_check_with_evidence_and_a_remedy"])),
    failure(25, "The device matrix is malformed", "MLX source",
        Test(&["errors_in_a_matrix_name_the_cell", "jaccl_runs_on_meshes_and_rings_only"])),
    failure(26, "An eleventh queue pair", "mlx#3162; mlx#4209", Rule(&["max-qp"])),
    failure(27, "A hundred and first memory region", "mlx#3162", Rule(&["max-mr"])),
    failure(28, "A twelfth protection domain, or leaked ones", "asmi; nix-ai, rdma-protection-domains.md",
        Fault(&["leak-pds", "leak-cqs", "flap"])),
    failure(29, "A missing protection domain is used", "mlx#3777; mlx#4485",
        Rule(&["provider-crashes"])),
    failure(30, "A message exceeds the queue, or 16,773,120 bytes", "Apple TN3205",
        Rule(&["max-message", "queue-depth"])),
    failure(31, "More is posted than the ring holds", "hellas thunderbolt-ibverbs PR 35; mesh-flow field notes",
        Fault(&["overflow"])),
    failure(32, "Two requests at once use one group", "mlx-lm#1737",
        Test(&["another_order_of_calls_is_an_error", "a_refused_post_takes_nothing"])),
    failure(33, "A region crosses a 4 GiB boundary", "mesh-flow field notes", Fault(&["boundary"])),
    failure(34, "A request with several elements completes early", "mesh-flow field notes",
        Rule(&["multi-sge"])),
    failure(35, "Registered memory does not begin at a page", "openclawradar, 2026-05-06; Verbifrost notes",
        Rule(&["registration-alignment"])),
    failure(36, "Message and receive differ in frames", "Apple TN3205", Rule(&["frame-match"])),
    failure(37, "The sender is earlier than the receiver", "Apple TN3205", Rule(&["credits"])),
    failure(38, "Both sides wait for receives, which occupy all the memory", "mesh-flow field notes",
        Rule(&["credits"])),
    failure(39, "A program ignores the status, and damaged data is used", "mlx#3152", Fault(&["corrupt"])),
    failure(40, "A protection error, and then the port is busy", "mesh-flow field notes",
        Rule(&["late-registration", "error-state-keeps-mappings"])),
    failure(41, "Wrong results for long prompts", "mlx#4342; exo#2270",
        Symptom { by: &["corrupt"], shown: "a long message has a wrong byte for a program that ignores its status, short ones are right, and sessions are not affected",
            test: "a_long_message_is_wrong_for_a_program_that_ignores_its_status_and_short_ones_are_right" }),
    failure(42, "Races in MLX that are fixed", "mlx#3451; mlx#3654; mlx#4193",
        NotVisible("errors inside MLX, which have been mended")),
    failure(43, "Offsets of 32 bits overflow in MLX", "MLX source, mesh_impl.h",
        NotVisible("arithmetic of MLX, before it calls a verb")),
    failure(44, "A completion is lost, and the program hangs", "mlx#4403", Fault(&["lose"])),
    failure(45, "A Linux peer sends without credits", "hellas thunderbolt-ibverbs PR 30 and 44",
        Fault(&["lose"])),
    failure(46, "WRITE, READ or a reliable queue pair is tried", "tmc/apple rdma; hellas thunderbolt-ibverbs",
        Rule(&["transports", "operations", "uc-write"])),
    failure(47, "The peer is killed or stopped", "mlx#4278; mlx#3910", Fault(&["kill", "pause", "resume"])),
    failure(48, "The cable is pulled in the middle of work", "mlx#4192", Fault(&["unplug"])),
    failure(49, "The process crashes in the provider without a reason", "mlx#4319",
        Fault(&["kill", "restart"])),
    failure(50, "Setting the interface down stops nothing", "mlx#3910", Fault(&["interface-down"])),
    failure(51, "The cable is plugged in again", "asmi; exo#1712", Fault(&["replug", "flap"])),
    failure(52, "A queue pair was idle for 23 minutes", "exo#1847; gojaccl", Fault(&["idle-death"])),
    failure(53, "The driver is wedged", "exo#1711; exo#1712", Fault(&["hang", "wedge", "reboot"])),
    failure(54, "Thunderbolt networking is dead and the link is up", "hellas thunderbolt-ibverbs",
        Fault(&["slow-receive", "unresolvable"])),
    failure(55, "One direction works and the other does not", "exo#1826", Fault(&["lose"])),
    failure(56, "The kernel panics", "mesh-flow field notes; asmi", Fault(&["reboot"])),
    failure(57, "Shutting down hangs until the watchdog resets", "mesh-flow field notes", Fault(&["hang", "reboot"])),
    failure(58, "A killed process leaves its memory wired", "mlx#4403; mlx#3910",
        Fault(&["leak-mrs", "reboot"])),
    failure(59, "The launcher reports success although a rank failed", "mlx#4319",
        Test(&["the_exit_code_is_that_of_the_first_failure"])),
    failure(60, "The GPU's watchdog ends a rank that waits", "mlx#1804; mlx#4475; exo#2173",
        NotVisible("the verbs have no GPU behind them; a late peer is the fault `delay` or `pause`")),
    failure(61, "The GPU driver panics", "mlx#3346; exo#1972", Fault(&["reboot"])),
    failure(62, "The watchdog panics under memory pressure", "exo#1939", Fault(&["reboot"])),
    failure(63, "A rewritten executable is refused", "mesh-flow field notes",
        NotVisible("a matter of code signing, before a program runs")),
    failure(64, "Two processes at one port disturb each other", "gojaccl", Fault(&["wedge"])),
    failure(65, "Nodes that have left block placement", "exo#2194",
        NotVisible("placement by exo, which calls no verbs")),
    failure(66, "Nodes without RDMA are chosen", "exo#2014", Fault(&["rdma-off"])),
    failure(67, "Churn of runners deadlocks", "exo#1934",
        NotVisible("the control plane of exo, while it starts and ends processes")),
    failure(68, "A peer's disconnection breaks a resource", "exo#2101",
        NotVisible("an exception of the control plane of exo")),
    failure(69, "An unreachable host is dropped for ever after waking", "exo#2191",
        Fault(&["sleep", "wake"])),
    failure(70, "Many requests at once deadlock", "exo#2108",
        Symptom { by: &["credits"], shown: "both sides wait without an error when one request more is under way than they have receives for; sessions do not",
            test: "one_request_more_than_there_are_receives_leaves_both_sides_waiting" }),
    failure(71, "A broadcast of hundreds of gigabytes stalls unless it follows a reboot", "field log of a 4-node broadcast tool",
        Symptom { by: &["idle-death", "idle-death-spoils"], shown: "nothing completes after a number of frames, and no queue pair connects until a restart, which the check `uptime` of the doctor advises before long runs",
            test: "a_broadcast_stands_still_after_some_frames_until_a_restart" }),
    failure(72, "RDMA fails at random in the preparation", "exo#1711", Fault(&["busy"])),
    failure(73, "A program names a device that has no cable", "mlx-jaccl-cluster, docs/from-scratch.md",
        Rule(&["port-state", "down-port"])),
    failure(74, "The bridge captures the port again after each restart", "mlx-jaccl-cluster, docs/from-scratch.md",
        Fault(&["no-gids", "captured"])),
    failure(75, "The port has only an address of 169.254.0.0/16", "pytorch PR 189856",
        Rule(&["link-local-source"])),
    failure(76, "A path MTU of 4096", "pytorch PR 189856", Rule(&["large-mtu"])),
    failure(77, "Ranks disagree on wires, layout or incarnation", "pytorch PR 189856",
        Test(&["ranks_that_disagree_do_not_join", "strangers_and_other_versions_are_turned_away",
            "peers_of_different_epochs_do_not_connect"])),
    failure(78, "A slow consumer starves a collective", "pytorch PR 189856", Fault(&["delay", "slow"])),
    failure(79, "A rank sends before its peer is ready", "pytorch PR 189856", Rule(&["peer-readiness"])),
    failure(80, "The library loads and lists no device", "pytorch PR 189856",
        Test(&["a_list_that_is_null_without_rdma_in_the_kernel_says_so",
            "an_empty_list_of_devices_differs_from_an_unknown_one"])),
    failure(81, "A failed post leaves `bad_wr` untouched", "mesh-flow field notes",
        Test(&["the_recipe_in_c_finds_every_error_number"])),
    failure(82, "The program meets a real network adapter", "ds4 PR 1024", Rule(&["roce-drops"])),
    failure(83, "A node restarts without a reason", "mesh-flow field notes", Fault(&["reboot"])),
];
