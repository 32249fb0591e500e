//! The traffic of programs that people run over RDMA on Macs: their buffers, depths and attributes, over meshes and rings
//!
//! What is known of each program stands in the table of `shapes.c`. All run on the default model of a Mac but mesh-flow, which takes its source from
//! the first entry of the GID table: the default refuses that (rule `source-gid`, about which sources disagree), so that it runs with `source_gid = "any"`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_sim::Topology;
use rdma_sim_verbs::shared::Settings;

use super::{compiled, held_port, text};
use rdma_tests::hosts::Hosts;

const SHAPES: [&str; 7] =
    ["jaccl", "tccl", "tccl-reduce", "llama", "mesh-flow", "mesh-flow-pages", "gojaccl"];
/// Longer than a program needs, and than it waits for progress, in seconds.
const TIMEOUT: &str = "20";
/// Exit codes of the program, and of one that was killed by `timeout`.
const FAILED: i32 = 1;
const STALLED: i32 = 3;
const WRONG: i32 = 4;
const KILLED: i32 = 124;

/// How the processes of all ranks end: the exit code, and what was printed
fn run(
    shape: &str,
    pattern: &str,
    bytes: usize,
    topology: &Topology,
    profile: &str,
    fault: Option<&str>,
) -> Vec<(Option<i32>, String)> {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compiled("shapes", &["-ldl"]));
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let settings = Settings::new(topology.clone()).profile(profile).unwrap();
    let name = format!("shapes{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let hosts = Hosts::new(&name, &settings, "no peers");
    fault.into_iter().for_each(|fault| hosts.fabric.add_fault(fault).unwrap());
    let (port, _held) = held_port();
    let names: Vec<_> = topology.hosts().iter().map(|host| host.name().to_owned()).collect();
    let start = |(rank, name): (usize, &String)| -> Child {
        let mut command = hosts.command("timeout", name);
        command.args(["-k", "1", TIMEOUT]).arg(&*PROGRAM).args([shape, pattern, &bytes.to_string()]);
        command.args([rank.to_string(), names.len().to_string(), port.to_string()]);
        for other in &names {
            let mut links = topology.links();
            let device = links.find_map(|link| match link.ends {
                [own, peer] | [peer, own] if own.host == name && peer.host == other => {
                    Some(own.device.to_owned())
                }
                _ => None,
            });
            command.arg(device.unwrap_or_else(|| "-".to_owned()));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = names.iter().enumerate().map(start).collect();
    let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
    outputs.map(|output| (output.status.code(), text(&output))).collect()
}

/// The default profile, but for mesh-flow: it reads its source from the first entry of the GID table, which the default refuses
fn profile_of(shape: &str) -> String {
    if !shape.starts_with("mesh-flow") {
        return "tb5".to_owned();
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("any-source.toml");
    fs::write(&path, "format = 1\nbase = \"tb5\"\n[rules]\nsource_gid = \"any\"\n").unwrap();
    path.to_string_lossy().into_owned()
}

/// The topology of a pattern
fn topology(pattern: &str, hosts: usize) -> Topology {
    match pattern {
        // Two hosts are each other's neighbours on both sides, by one cable.
        _ if hosts == 2 => Topology::pair(),
        "mesh" => Topology::mesh(hosts, hosts - 1).unwrap(),
        _ => Topology::ring(hosts, 2).unwrap(),
    }
}

/// Catches queues that take fewer frames than programs post, and bytes that come out of place.
///
/// No Mac has more than six ports, so that a mesh, with a cable between every two Macs, has seven hosts at most; rings have eight.
#[test]
fn each_shape_of_traffic_arrives_whole_over_meshes_and_rings() {
    let meshes = [(2, 3 << 20), (3, 1 << 20), (4, 300_001), (5, 100_000), (6, 65_536), (7, 40_001)];
    let rings =
        [(2, 500_000), (3, 700_000), (4, 1 << 20), (5, 16_384), (6, 200_003), (7, 4_097), (8, 70_000)];
    let cases = meshes.map(|case| ("mesh", case)).into_iter().chain(rings.map(|case| ("ring", case)));
    for (pattern, (hosts, bytes)) in cases {
        // Two ranks of TCCL reduce with two messages in flight, which is the shape before.
        for shape in SHAPES.into_iter().filter(|shape| hosts > 2 || *shape != "tccl-reduce") {
            let ends = run(shape, pattern, bytes, &topology(pattern, hosts), &profile_of(shape), None);
            assert!(
                ends.iter().all(|(code, said)| *code == Some(0) && said.trim() == "all bytes are right"),
                "{shape}, {pattern} of {hosts}: {ends:?}"
            );
        }
    }
}

/// Catches a provider under which a program goes on with bytes that never came, and one that lets it wait without an end.
///
/// No rank succeeds: each waits for all others in the end.
#[test]
fn a_pulled_cable_ends_in_an_error_for_all_ranks() {
    for (pattern, hosts) in [("mesh", 2), ("mesh", 4), ("mesh", 7), ("ring", 3), ("ring", 8)] {
        for (number, shape) in SHAPES.into_iter().enumerate() {
            // All shapes of pairs, and two for each of the others.
            if hosts > 2 && (number + hosts) % 3 > 0 {
                continue;
            }
            let fault = format!("after {} frames a:rdma_en2 unplug", 1000 / hosts);
            let cabling = topology(pattern, hosts);
            let ends = run(shape, pattern, (16 << 20) / hosts, &cabling, &profile_of(shape), Some(&fault));
            assert!(
                ends.iter().all(|(code, _)| matches!(code, Some(FAILED | STALLED))),
                "{shape}, {pattern} of {hosts}: {ends:?}"
            );
        }
    }
}

/// Nothing but a comparison shows that a message is missing: those behind it take its place.
#[test]
fn a_lost_message_is_a_wrong_byte_at_its_receiver_alone() {
    let wide = [("mesh", 4), ("ring", 4)].into_iter().cycle();
    let cases = SHAPES.into_iter().zip(wide).flat_map(|(shape, wide)| [(shape, ("mesh", 2)), (shape, wide)]);
    for (shape, (pattern, hosts)) in cases.filter(|case| *case != ("tccl-reduce", ("mesh", 2))) {
        let (cabling, fault) = (topology(pattern, hosts), "after 500 frames a:rdma_en2 lose 1");
        // The cable of that port leads to the second host.
        let ends = run(shape, pattern, 8 << 20, &cabling, &profile_of(shape), Some(fault));
        for (rank, (code, said)) in ends.iter().enumerate() {
            let is_receiver = rank == 1;
            assert_eq!(*code == Some(WRONG), is_receiver, "{shape}, {pattern} of {hosts}: {ends:?}");
            assert_eq!(said.contains("wrong byte"), is_receiver, "{shape}, {pattern} of {hosts}: {ends:?}");
            assert_ne!(*code, Some(0), "{shape}, {pattern} of {hosts}: {ends:?}");
        }
    }
}

/// Regression: a shape failed when the system had mapped its memory across a boundary, and nothing said why.
#[test]
fn memory_across_a_4_gib_boundary_loses_data_and_standard_error_names_the_rule() {
    for (code, said) in run("misplaced", "mesh", 200_000, &Topology::pair(), "tb5", None) {
        assert_eq!((code, said.contains("wrong byte")), (Some(WRONG), true), "{said}");
        assert_eq!(said.matches("four-gib-boundary").count(), 1, "{said}");
    }
    for (code, said) in run("misplaced", "mesh", 200_000, &Topology::pair(), "roce", None) {
        assert_eq!((code, said.trim()), (Some(0), "all bytes are right"));
    }
}

/// Catches a verb that returns although it hangs, a peer that hangs with it, and a slow verb that fails.
#[test]
fn a_verb_that_hangs_stops_its_program_and_a_slow_one_delays_it() {
    let run = |fault| run("jaccl", "mesh", 1 << 20, &Topology::pair(), "tb5", Some(fault));
    let hung = run("at 0s a:rdma_en2 hang create_qp");
    // The peer fails when `timeout` has ended `a`, unless it is ended at the same moment.
    let is_expected = matches!(hung[..], [(Some(KILLED), _), (Some(FAILED | KILLED), _)]);
    assert!(is_expected, "{hung:?}");
    let slow = run("at 0s a:rdma_en2 slow-verb create_qp=200ms");
    assert!(slow.iter().all(|(code, _)| *code == Some(0)), "{slow:?}");
}

/// Catches a post or poll that returns although it hangs, one that stops the clock of the fabric for the peer, which notices that nothing moves,
/// or the end of its own process by a signal, and a slow one that fails.
#[test]
fn a_post_or_poll_that_hangs_stops_its_program_alone_and_a_slow_one_delays_it() {
    let run = |fault: String| run("jaccl", "mesh", 1 << 20, &Topology::pair(), "tb5", Some(&fault));
    let codes =
        |outcomes: &[(Option<i32>, String)]| -> Vec<_> { outcomes.iter().map(|(code, _)| *code).collect() };
    std::thread::scope(|scope| {
        // The peer gets everything before `a` polls, and neither gets to the traffic if `a` posts no receive: both wait for the side channel
        // until `timeout` ends one of them, and then the other one by its timer or by the end of that channel.
        let at_the_end = &[KILLED, FAILED][..];
        for (verb, of_peer) in
            [("post_send", &[STALLED][..]), ("post_recv", at_the_end), ("poll_cq", at_the_end)]
        {
            scope.spawn(move || {
                let hung = run(format!("at 0s a:rdma_en2 hang {verb}"));
                let is_expected =
                    matches!(&codes(&hung)[..], [Some(KILLED), Some(peer)] if of_peer.contains(peer));
                assert!(is_expected, "{verb}: {hung:?}");
                let slow = run(format!("at 0s a:rdma_en2 slow-verb {verb}=20ms"));
                assert_eq!(codes(&slow), [Some(0); 2], "{verb}: {slow:?}");
            });
        }
    });
}

/// Each shape fails on the strict profile, at the verb that a source reports to fail.
#[test]
fn shapes_that_rely_on_disputed_rules_fail_on_the_strict_profile() {
    // Messages of more than a frame, a path MTU of 4096 that times out, and memory for local writing alone.
    let [long, mtu, access] = ["post_recv (22)", "RTR (60)", "p_ibv_reg_mr"];
    let reasons = [long, long, long, mtu, access, access, long];
    for (shape, reason) in SHAPES.into_iter().zip(reasons) {
        for (_, said) in run(shape, "mesh", 3 << 20, &Topology::pair(), "tb5-strict", None) {
            assert!(said.contains(reason), "{shape}: {said}");
        }
    }
}
