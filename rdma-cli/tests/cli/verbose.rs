//! `--verbose`: the events of the libraries, on standard error

use std::fs;

use crate::machines::Listener;
use crate::support::{Folder, assert_code, stderr, stdout, tool};

/// Commands that report events on this machine; SCENARIO is a file
const WITH_EVENTS: [&str; 9] = [
    "bench all-reduce --bytes 4KiB",
    "bw --bytes 4KiB",
    "copy source copy",
    "demo",
    "ping --count 10",
    "sim check SCENARIO --runs 2",
    "sim replay SCENARIO LINE",
    "sim run SCENARIO",
    "sim trace SCENARIO",
];
/// Commands that cannot report any
const WITHOUT_EVENTS: [&str; 11] = [
    "completions",
    "devices",
    "doctor",
    "fabric",
    "man",
    "run",
    "topo check",
    "topo convert",
    "topo discover",
    "topo draw",
    "topo plan",
];

fn has_events(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("tb5: info: ") || line.starts_with("tb5: debug: "))
}

/// Catches a command whose events are lost, and one that prints events without being asked.
#[test]
fn each_command_prints_its_events_if_asked() {
    let folder = Folder::new();
    fs::write(folder.path("source"), "text").unwrap();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/one-lost-message.toml");
    for command in WITH_EVENTS {
        let words = command.split(' ').map(|word| match word {
            "SCENARIO" => scenario,
            "LINE" => "2 seed=1 faults=at 5ms a:rdma_en2 lose 1",
            word => word,
        });
        let words: Vec<_> = words.collect();
        for more in [&["-v"][..], &[]] {
            let output = tool().args(&words).args(more).current_dir(folder.path("")).output().unwrap();
            assert_code(&output, 0);
            assert_eq!(has_events(&stderr(&output)), !more.is_empty(), "{command}: {}", stderr(&output));
        }
    }
}

/// Catches completions that offer the option to a command without events, as they did, or hide it from one with events.
#[test]
fn completions_offer_the_option_where_it_does_something() {
    let script = stdout(&tool().args(["completions", "bash"]).output().unwrap());
    for (commands, offers) in [(&WITH_EVENTS[..], true), (&WITHOUT_EVENTS, false)] {
        for command in commands {
            let below = ["sim", "topo"].iter().any(|above| command.starts_with(above));
            let names: Vec<_> = command.split(' ').take(1 + usize::from(below)).collect();
            let case = format!("\n        tb5__subcmd__{})\n", names.join("__subcmd__"));
            let (_, options) = script.split_once(&case).unwrap_or_else(|| panic!("{case} is missing"));
            let options = options.split_once(";;").unwrap().0;
            assert!(options.contains("--quiet"), "{command}: {options}");
            assert_eq!(options.contains("--verbose"), offers, "{command}: {options}");
        }
    }
}

/// Catches an event that does not say in which run and on which host it was.
#[test]
fn the_events_of_a_scenario_name_the_seed_and_the_host() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/replug-during-transfer.toml");
    let events = stderr(&tb5!["-v", "sim", "run", scenario, "--seeds", "3..6"]);
    for place in (3..6).flat_map(|seed| ["a", "b"].map(|host| format!(", seed {seed}, host {host}"))) {
        let path_up = |line: &str| line.starts_with("tb5: info: path up") && line.ends_with(&place);
        assert!(events.lines().any(path_up), "{place}: {events}");
    }
    let is_placed = |line: &str| line.contains(", seed ") || line.contains(" was repeated ");
    assert!(events.lines().all(is_placed), "{events}");
}

/// Catches a side of two machines whose events are lost.
#[test]
fn both_machines_print_their_events_if_asked() {
    for (command, options) in [("ping", &["--count", "5"][..]), ("bw", &["--bytes", "64KiB"])] {
        let server = Listener::serve(&["-v"]);
        let asked = server.ask(command, &[options, &["-v"]].concat());
        assert_code(&asked, 0);
        server.running.signal(libc::SIGINT);
        let served = server.running.finish();
        assert!(has_events(&stderr(&asked)) && has_events(&stderr(&served)), "{command}");
    }
}

/// Catches an option that is offered and has no effect.
#[test]
fn verbose_is_offered_by_commands_with_events_only() {
    let help = |command: &str| stdout(&tool().args(command.split(' ')).arg("--help").output().unwrap());
    for command in WITH_EVENTS {
        let name = command.split(" SCENARIO").next().unwrap();
        assert!(help(name).contains("--verbose"), "{name}");
    }
    for command in WITHOUT_EVENTS {
        assert!(help(command).contains("--quiet") && !help(command).contains("--verbose"), "{command}");
    }
    let folder = Folder::new();
    assert_code(&tb5!["man", "--out", folder.path("pages")], 0);
    let page = |name: &str| fs::read_to_string(folder.path(format!("pages/tb5-{name}.1"))).unwrap();
    assert!(page("ping").contains("verbose") && !page("topo-draw").contains("verbose"));
    // A shell alias may have the option for all commands.
    assert_code(&tb5!["-v", "topo", "draw", "ring:3"], 0);
    assert_code(&tb5!["topo", "draw", "ring:3", "-v"], 0);
}
