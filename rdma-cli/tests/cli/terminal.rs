//! What differs on a terminal: colours and progress

use std::fs;

use crate::machines::Listener;
use crate::support::{Folder, assert_code, program, stdout};

/// The path of a composed report of the doctor's tests
fn recorded(name: &str) -> String {
    format!("{}/../rdma-doctor/tests/fixtures/composed/field/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints on a terminal of its own, standard error included
fn on_a_terminal(folder: &Folder, command: &str, variables: &[(&str, &str)]) -> String {
    let tool = env!("CARGO_BIN_EXE_tb5");
    let mut script = program("script");
    script.args(["-qec", &format!("stty cols 120; '{tool}' {command}"), "/dev/null"]);
    script.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(variables.iter().copied());
    let output = script.current_dir(folder.path("")).output().unwrap();
    assert_code(&output, 0);
    stdout(&output)
}

/// Catches colours that are on without a terminal or off on one, and `NO_COLOR` that is not obeyed.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = Folder::new();
    assert!(on_a_terminal(&folder, "--help", &[]).contains("\u{1b}[1m"));
    // It exits with 1.
    let doctor = format!("doctor --from '{}' || true", recorded("rdma-disabled/left.json"));
    assert!(on_a_terminal(&folder, &doctor, &[]).contains("\u{1b}[31mfail\u{1b}[0m"));
    assert!(!on_a_terminal(&folder, &doctor, &[("NO_COLOR", "1")]).contains("\u{1b}[3"));
    assert!(!on_a_terminal(&folder, "--help", &[("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(!stdout(&tb5!["--help"]).contains('\u{1b}'));
}

/// Catches a long command without progress on a terminal, progress without a rate, and progress that is asked to be quiet.
#[test]
fn long_commands_show_how_far_and_how_fast_they_are() {
    let folder = Folder::new();
    fs::write(folder.path("source"), vec![7; 40 << 20]).unwrap();
    let scenario = format!(
        "sim run {}/../rdma-sim/scenarios/one-lost-message.toml --seeds 0..300",
        env!("CARGO_MANIFEST_DIR")
    );
    let check = scenario.replace("sim run", "sim check").replace("--seeds 0..300", "--runs 2000");
    let table = [
        ("copy source copy", "/s"),
        ("ping --count 30000", "/30000"),
        ("bw", "/11"),
        ("bench all-reduce --bytes 4KiB..16MiB", "/13"),
        ("demo", "/6"),
        (&scenario, "/300"),
        (&check, "/2001"),
        ("calibrate --profile tb5-cpu", "/13"),
    ];
    for (command, shown) in table {
        let text = on_a_terminal(&folder, command, &[]);
        assert!(text.contains(shown) && text.contains('\r'), "{command}: {text:?}");
        let quiet = on_a_terminal(&folder, &format!("{command} --quiet"), &[]);
        assert!(!quiet.contains("\u{1b}["), "{command}: {quiet:?}");
    }
}

/// Catches a copy that does not say why no byte is sent while both sides read what the receiver has.
#[test]
fn a_copy_that_is_resumed_says_that_it_checks_what_is_there() {
    let (folder, root) = (Folder::new(), Folder::new());
    fs::write(folder.directory("source").join("file"), vec![7; 40 << 20]).unwrap();
    let server = Listener::serve(&["--into", root.path("").to_str().unwrap()]);
    for command in ["copy -r source copy", &format!("copy -r source 127.0.0.1:copy --port {}", server.port)] {
        on_a_terminal(&folder, command, &[]);
        let again = on_a_terminal(&folder, command, &[]);
        assert!(again.contains("checking what is there: 0 B/40.00 MiB"), "{command}: {again:?}");
        assert!(again.contains("were there already"), "{command}: {again:?}");
    }
}

/// Catches a tool that shows nothing while the provider of the machine takes long to answer.
#[test]
fn inspecting_a_slow_machine_shows_the_time() {
    let folder = Folder::new();
    // Whoever opens it waits for a writer.
    assert!(program("mkfifo").arg(folder.path("provider")).status().unwrap().success());
    let provider = folder.path("provider");
    let text = on_a_terminal(&folder, "devices", &[("RDMA_PROVIDER", provider.to_str().unwrap())]);
    assert!(text.contains("inspecting this machine"), "{text:?}");
}

/// How far a bar came: the greatest number before the total
fn furthest(text: &str, total: u32) -> u32 {
    let end = format!("/{total}");
    let before = text.match_indices(&end).map(|(at, _)| &text[..at]);
    let numbers = before.map(|before| before.rsplit(|letter: char| !letter.is_ascii_digit()).next());
    numbers.filter_map(|number| number?.parse().ok()).max().unwrap_or(0)
}

/// Catches a bar that stays empty while rows are measured.
#[test]
fn a_bar_moves_with_the_work() {
    let folder = Folder::new();
    for command in ["bench all-reduce --bytes 4KiB..16MiB", "bench all-reduce --bytes 4KiB..16MiB --json"] {
        let text = on_a_terminal(&folder, command, &[]);
        assert!(furthest(&text, 13) >= 1, "{command}: {text:?}");
    }
}

/// Catches a total that is not the count which was asked for, and a bar that is full while the bare half of a ping is still measured.
#[test]
fn a_ping_counts_the_round_trips_that_were_asked_for() {
    let text = on_a_terminal(&Folder::new(), "ping --count 200000", &[]);
    assert!(!text.contains("/400000"), "{text:?}");
    let (sessions, bare) = text.split_once("bare verbs (2 of 2)").unwrap_or_else(|| panic!("{text:?}"));
    assert!(sessions.contains("a session (1 of 2)"), "{text:?}");
    for part in [sessions, bare] {
        let furthest = furthest(part, 200_000);
        assert!(0 < furthest && furthest <= 200_000, "{furthest}: {text:?}");
    }
}

/// Catches a planner that does not say how far it is.
#[test]
fn a_plan_counts_the_cablings_that_are_tried() {
    let text = on_a_terminal(&Folder::new(), "topo plan ring:40", &[]);
    assert!(text.contains("without each cable: ") && text.contains("/40 "), "{text:?}");
    let (_, further) = text.split_once("with each further cable: ").unwrap_or_else(|| panic!("{text:?}"));
    // 40 hosts with free ports are 780 pairs.
    assert!(furthest(further, 780) > 0, "{text:?}");
}

/// Catches a flood of equal lines.
#[test]
fn verbose_counts_an_event_that_repeats() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/replug-during-transfer.toml");
    let events = crate::support::stderr(&tb5!["-v", "sim", "run", scenario]);
    let lines: Vec<_> = events.lines().collect();
    let is_equal = |pair: &[&str]| pair[0] == pair[1] && !pair[0].contains(" was repeated ");
    assert!(!lines.windows(2).any(is_equal), "{events}");
    assert!(events.contains("tb5: the last event was repeated ") && lines.len() < 100, "{events}");
}

/// Catches events that are printed without being asked for, and none that are.
#[test]
fn verbose_prints_the_paths_that_come_and_go() {
    let folder = Folder::new();
    fs::write(folder.path("source"), vec![7; 20 << 20]).unwrap();
    let copy = |more: &[&str]| {
        let mut command = crate::support::tool();
        command
            .args(["copy", "source", "copy", "--fault", "at 1ms a:rdma_en2 unplug; at 2ms a:rdma_en2 replug"])
            .args(more);
        let output = command.current_dir(folder.path("")).output().unwrap();
        assert_code(&output, 0);
        crate::support::stderr(&output)
    };
    assert_eq!(copy(&[]), "");
    let events = copy(&["-v"]);
    assert!(events.contains("tb5: info: path lost"), "{events}");
}
