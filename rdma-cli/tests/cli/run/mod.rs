//! `tb5 run` and `tb5 fabric`, with unmodified programs as the hosts of a simulated fabric
//!
//! Needs the programs of Debian's ibverbs-utils and perftest.

mod calibrate;
mod ends;
pub(crate) mod fixture;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod machines;
#[cfg(target_os = "linux")]
mod net;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
mod readers;
mod verbs;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use self::ends::endless;
use self::fixture::{Run, lines_of, pair};
use crate::support::{
    Folder, Running, assert_code, assert_failed, eventually, json, keys, program, stderr, stdout, tool,
};

// ─── Unmodified programs ───

#[test]
fn each_host_lists_its_own_devices() {
    let output = Run::new(["--hosts", "3", "--topology", "line", "--", "ibv_devices"]).output();
    assert_code(&output, 0);
    for host in ["a", "b", "c"] {
        let lines = lines_of(&output.stdout, host);
        assert!(lines.iter().any(|line| line.contains("rdma_en2")), "{host}: {lines:?}");
    }
    let guids = |host| lines_of(&output.stdout, host).split_off(2);
    assert_ne!(guids("a"), guids("b"), "devices of different hosts differ");
}

#[test]
fn ports_are_active_where_a_cable_is() {
    let output = Run::new(["--hosts", "3", "--topology", "line", "--", "ibv_devinfo"]).output();
    assert_code(&output, 0);
    let active = |host| {
        let lines = lines_of(&output.stdout, host);
        lines.iter().filter(|line| line.contains("PORT_ACTIVE")).count()
    };
    assert_eq!(["a", "b", "c"].map(active), [1, 2, 1]);
}

fn assert_ping_pong(run: Run, messages: u64, payload_bytes: u64) {
    let output = run.output();
    assert_code(&output, 0);
    let report = json(&output);
    assert_eq!(report["outcome"], "done");
    for end in report["cables"][0]["ends"].as_array().unwrap() {
        assert_eq!(end["messages"], messages, "{report}");
        assert_eq!(end["payload_bytes"], payload_bytes, "{report}");
    }
}

#[test]
fn a_polling_ping_pong_transfers_all_messages() {
    let run = pair(&["--json"], &["ibv_uc_pingpong", "-g", "1", "-n", "500", "-s", "4096"]);
    assert_ping_pong(run, 500, 500 * 4096);
}

#[test]
fn a_ping_pong_that_sleeps_on_events_transfers_all_messages() {
    let run = pair(&["--json"], &["ibv_uc_pingpong", "-g", "1", "-n", "300", "-s", "4096", "-e"]);
    assert_ping_pong(run, 300, 300 * 4096);
}

#[test]
fn perftest_measures_latency() {
    let words = ["ib_send_lat", "-c", "UC", "-d", "rdma_en2", "-x", "1", "-s", "64", "-n", "200", "-F"];
    // perftest knows two link layers only.
    let output = pair(&["--link-layer", "ethernet"], &words).output();
    assert_code(&output, 0);
    let lines = lines_of(&output.stdout, "b");
    let row = lines.iter().find(|line| line.trim_start().starts_with("64 "));
    assert!(row.is_some_and(|row| row.contains("200")), "{lines:?}");
}

// ─── Environment and output of the programs ───

#[test]
fn the_environment_has_the_variables_of_mlx_and_jaccl() {
    let script = r#"
        echo "$MLX_RANK $JACCL_RANK $MLX_WORLD_SIZE $RDMA_SIM_HOST $RDMA_SIM_LINK_LAYER"
        test "$MLX_JACCL_COORDINATOR" = "$JACCL_COORDINATOR" && echo "$JACCL_COORDINATOR"
        test "$MLX_IBV_DEVICES" = "$JACCL_IBV_DEVICES" && cat "$JACCL_IBV_DEVICES"
        echo "${LD_LIBRARY_PATH##*:} ${LD_PRELOAD##*/}"
        test "${LD_LIBRARY_PATH%%:*}/librdma.dylib" -ef "$RDMA_PROVIDER" && echo the provider
        echo "seed $RDMA_SIM_SEED. clock $RDMA_SIM_CLOCK."
    "#;
    let mut run = Run::new(["--hosts", "2", "--link-layer", "ethernet", "--", "sh", "-c", script]);
    run.command.env("LD_LIBRARY_PATH", "/before").env("RDMA_SIM_SEED", "9").env("RDMA_SIM_CLOCK", "virtual");
    let output = run.output();
    assert_code(&output, 0);
    for (rank, host) in ["a", "b"].into_iter().enumerate() {
        let lines = lines_of(&output.stdout, host);
        assert_eq!(lines[0], format!("{rank} {rank} 2 {host} ethernet"));
        assert!(lines[1].starts_with("127.0.0.1:"), "{lines:?}");
        let matrix: Value = serde_json::from_str(&lines[2..lines.len() - 3].join("\n")).unwrap();
        assert_eq!(matrix, json!([[null, "rdma_en2"], ["rdma_en2", null]]));
        assert_eq!(lines[lines.len() - 3..], ["/before librdma.so", "the provider", "seed . clock ."]);
    }
}

#[test]
fn each_line_begins_with_its_host() {
    let script = r#"printf 'one\n\377\nwithout an end'; printf 'wrong\n' >&2"#;
    let output = Run::shell("2", script).output();
    assert_code(&output, 0);
    for host in ["a", "b"] {
        let mine: Vec<_> = output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.strip_prefix(format!("{host} | ").as_bytes()))
            .collect();
        assert_eq!(mine, [&b"one"[..], b"\xff", b"without an end"]);
        assert_eq!(lines_of(&output.stderr, host), ["wrong"]);
    }
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').count(), 2 * 3 + 1);
    assert!(!output.stdout.contains(&0x1b), "no colours outside of a terminal");
}

#[test]
fn lines_of_different_hosts_are_not_mixed() {
    let script =
        r#"for i in $(seq 300); do echo "$RDMA_SIM_HOST 0123456789012345678901234567890123456789 $i"; done"#;
    let output = Run::shell("4", script).output();
    assert_code(&output, 0);
    assert_eq!(stdout(&output).lines().count(), 4 * 300);
    for host in ["a", "b", "c", "d"] {
        let expected: Vec<_> =
            (1..=300).map(|i| format!("{host} 0123456789012345678901234567890123456789 {i}")).collect();
        assert_eq!(lines_of(&output.stdout, host), expected);
    }
}

/// Catches a program that opens the library by the path that it has on Macs, does not find it, and uses TCP: it succeeds, and the run said
/// nothing.
#[test]
fn a_run_in_which_no_program_opens_a_device_says_so() {
    let says = |words: &[&str]| {
        let printed = stderr(&Run::new(words).output());
        let found = printed.lines().find(|line| line.contains("opened a device"));
        found.map(|line| line.strip_prefix("tb5: ").unwrap_or_else(|| panic!("{line}")).to_owned())
    };
    let expected =
        "no program opened a device; one that opens /usr/lib/librdma.dylib by its path needs --net";
    assert_eq!(says(&["--hosts", "2", "--", "true"]).as_deref(), Some(expected));
    assert_eq!(says(&["--quiet", "--hosts", "2", "--", "true"]), None);
    assert_eq!(says(&["--hosts", "2", "--", "ibv_devinfo"]), None, "it queries and creates nothing");
    assert_eq!(says(&["--hosts", "2", "--stagger", "0s", "--", "true", ":", "ibv_devinfo"]), None);
    assert_eq!(says(&["--hosts", "2", "--", "false"]), None, "the failure is what counts");
}

#[test]
fn json_is_one_object_with_stable_keys() {
    let fault = "at 0s a:rdma_en2 corrupt 1; at 3600s b pause; after 9 frames a:rdma_en2 unplug";
    let output = Run::new(["--json", "--hosts", "2", "--fault", fault, "--", "echo", "printed"]).output();
    assert_code(&output, 0);
    assert_eq!(lines_of(&output.stderr, "b"), ["printed"]);
    let report = json(&output);
    let expected =
        ["backend", "cables", "exit_code", "fabric", "faults", "hosts", "outcome", "pace", "wall_seconds"];
    assert_eq!(keys(&report), expected);
    assert_eq!(report["backend"], "simulator");
    assert_eq!(
        keys(&report["hosts"][0]),
        ["exit_code", "host", "killed_by_fault", "opened_device", "signal"]
    );
    let counters = ["device", "frames", "host", "messages", "payload_bytes", "stalls", "wire_bytes"];
    assert_eq!(keys(&report["cables"][0]["ends"][1]), counters);
    let faults = json!([
        {"fault": "at 0s a:rdma_en2 corrupt 1", "fired": true},
        {"fault": "at 3600s b pause", "fired": false},
        {"fault": "after 9 frames a:rdma_en2 unplug", "fired": false},
    ]);
    assert_eq!((&report["faults"], &report["pace"]), (&faults, &Value::Null));
}

/// Programs that send nothing are late with nothing, however slow the machine is.
#[test]
fn a_paced_run_says_whether_it_kept_pace() {
    let run = |arguments: &[&str]| {
        Run::new([arguments, &["--pace", "tb5", "--hosts", "2", "--", "true"]].concat()).output()
    };
    assert!(stderr(&run(&[])).lines().any(|line| line == "tb5: pace kept"), "{}", stderr(&run(&[])));
    let report = json(&run(&["--json"]));
    assert_eq!(report["pace"], json!({"tolerance_seconds": 0.0002, "late": []}));
}

#[test]
fn both_commands_read_the_same_faults() {
    let (run, child) = endless();
    for (text, why) in [
        ("unplug a:rdma_en2", "the target comes before the name: write \"a:rdma_en2 unplug\""),
        ("a:rdma_en2 explode", "fault \"a:rdma_en2 explode\": no fault is called \"explode\""),
    ] {
        assert_failed(&tb5!["fabric", &run.name, text], 2, &[why]);
        assert_failed(&Run::new(["--fault", text, "--", "true"]).output(), 2, &[why]);
    }
    let asked = run.fabric(&["a:rdma_en2 unplug; at 9s b pause"]);
    assert_eq!(asked["faults"].as_array().unwrap().len(), 2);
    child.signal(libc::SIGTERM);
    assert_code(&child.finish(), 143);
    let output = Run::new(["--json", "--fault", "a:rdma_en2 unplug", "--", "true"]).output();
    assert_eq!(json(&output)["faults"], json!([{"fault": "at 0s a:rdma_en2 unplug", "fired": true}]));
}

// ─── Faults ───

/// A ping-pong that has begun and does not end by itself
fn long_ping_pong() -> (Run, Running) {
    let mut run = pair(&["--json", "--grace", "500ms"], &["ibv_uc_pingpong", "-g", "1", "-n", "1000000000"]);
    let child = run.start();
    // Programs publish their counters from time to time.
    eventually(|| run.sent()[0]["ports"][0]["messages"].as_u64().is_some_and(|messages| messages > 0));
    (run, child)
}

#[test]
fn a_cable_can_be_unplugged_while_programs_run() {
    let look = "until ibv_devinfo -d rdma_en2 | grep -q PORT_DOWN; do echo active; done; echo pulled";
    let mut run = Run::shell("2", look);
    let mut child = run.start();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.ends_with("| active\n"), "{line}");
    let asked = run.fabric(&["a:rdma_en2", "unplug"]);
    let fault = asked["faults"][0].as_str().unwrap();
    assert!(fault.starts_with("at ") && fault.ends_with(" a:rdma_en2 unplug"), "{fault}");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.finish();
    assert_code(&output, 0);
    for host in ["a", "b"] {
        assert_eq!(lines_of(rest.as_bytes(), host).last().unwrap(), "pulled");
    }
    assert!(stderr(&output).lines().any(|line| line == format!("tb5: fault {fault}")));
    run.assert_nothing_is_left();
}

#[test]
fn a_ping_pong_makes_no_progress_without_its_cable() {
    let (run, mut child) = long_ping_pong();
    let listed = json(&tb5!["--json", "fabric"]);
    let listed = listed["fabrics"].as_array().unwrap().iter().find(|fabric| fabric["name"] == *run.name);
    assert_eq!(listed.unwrap()["processes"], 2, "{listed:?}");
    run.fabric(&["a:rdma_en2", "unplug"]);
    // A program that sends fails. A program that waits for a lost message waits until it is ended.
    let mut before = Value::Null;
    let mut is_over = false;
    eventually(|| {
        is_over = child.has_ended();
        sleep(Duration::from_millis(500));
        let now = if is_over { Value::Null } else { run.sent() };
        is_over || now == std::mem::replace(&mut before, now.clone())
    });
    if !is_over {
        child.signal(libc::SIGTERM);
    }
    let output = child.finish();
    let code = output.status.code().unwrap();
    assert!(matches!(code, 1 | 143), "{code}: {}", stderr(&output));
    assert_eq!(json(&output)["faults"][0]["fired"], true);
    run.assert_nothing_is_left();
}

#[test]
fn a_host_that_a_fault_kills_is_not_a_failure() {
    let (run, mut child) = long_ping_pong();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    run.fabric(&["a", "kill"]);
    assert!(lines.any(|line| line.starts_with("tb5: a was killed by a fault: at ")));
    assert_eq!(run.processes().len(), 1, "the other goes on");
    child.signal(libc::SIGTERM);
    let output = child.finish();
    let report = json(&output);
    assert_code(&output, 143);
    assert_eq!(report["outcome"], "interrupted");
    assert_eq!(lines.last().unwrap(), "tb5: interrupted");
    assert_eq!(
        report["hosts"][0],
        json!({"host": "a", "exit_code": null, "signal": 9, "killed_by_fault": true, "opened_device": true})
    );
    run.assert_nothing_is_left();
}

// ─── Invalid arguments ───

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    let table: [(&[&str], i32, &str); 21] = [
        (&["--topology", "torus", "--", "true"], 2, "\"torus\" is no file"),
        (
            &["--topology", "mesh:3", "--hosts", "2", "--", "true"],
            2,
            "mesh:3 has 3 hosts, not 2: leave one of the numbers out",
        ),
        (&["--topology", "ring", "--hosts", "2", "--", "true"], 2, "at least 3"),
        (&["--topology", "mesh", "--hosts", "0", "--", "true"], 2, "from 1 to 32"),
        (
            &["--profile", "tb6", "--", "true"],
            2,
            "there are: tb5, tb5-cpu, tb5-strict, tb5-macos-26.2, tb5-lenient, roce",
        ),
        (&["--fault", "at 1s a explode", "--", "true"], 2, "explode"),
        (&["--fault", "at 1s z kill", "--", "true"], 2, "the topology has no host \"z\""),
        (&["--grace", "5", "--", "true"], 2, "such as 300ms"),
        (&[], 2, "PROG"),
        (&["--", "true", ":"], 2, "one is missing"),
        (&["--", "true", ":", "true", ":", "true"], 2, "3 commands for 2 hosts"),
        (&["--", "/no/such/program"], 1, "host a: \"/no/such/program\" cannot be started: No such file or"),
        (&["--", "no-such-program"], 1, "host a: \"no-such-program\" cannot be started: it is not in PATH"),
        (&["--", "Cargo.toml"], 1, "it is not in PATH; the file of that name here is ./Cargo.toml"),
        (&["--", "./Cargo.toml"], 1, "it is not executable: make it so with chmod +x ./Cargo.toml, or write"),
        (&["--", "./src"], 1, "host a: \"./src\" cannot be started: it is a directory"),
        (
            &["--", "sleep", "1000", ":", "/no/such/program"],
            1,
            "host b: \"/no/such/program\" cannot be started",
        ),
        (&["--topology", "line", "--hosts", "40", "--", "true"], 2, "write a whole number from 1 to 32"),
        (&["--topology", "line:40", "--", "true"], 2, "40 hosts are too many: a fabric has at most 32 hosts"),
        (&["--hosts", "2000", "--", "true"], 2, "write a whole number from 1 to 32"),
        (
            &["--topology", "mesh:2000", "--", "true"],
            2,
            "2000 hosts are too many for a mesh: write 2 to 33; a simulated Mac has at most 32 ports",
        ),
    ];
    for (arguments, code, why) in table {
        assert_failed(&Run::new(arguments).output(), code, &[why]);
    }
    assert_code(&tb5!["run", "--name", "../up", "--", "true"], 2);
}

#[test]
fn an_invalid_topology_is_named_with_its_file_and_line() {
    let folder = Folder::new();
    let host = "[[host]]\nname = 'a'\nports = 3\n";
    let toml = format!("{host}[[cable]]\nends = [\n 'a:rdma_en2',\n 'b:rdma_en2']");
    let table = [
        ("cables.toml", toml.as_str(), ":7: no host is called \"b\"; there are: a"),
        ("syntax.toml", "[[host]]\nname", ":2: "),
        ("matrix.json", "[[null],\n 5]", ":2: the matrix is no list of rows of devices"),
        ("uneven.json", "[[null], []]", ": the matrix has 2 rows, but row 0 has 1 cells"),
    ];
    for (name, content, why) in table {
        let path = folder.write(name, content);
        let path = path.to_str().unwrap();
        let output = Run::new(["--topology", path, "--", "true"]).output();
        assert_failed(&output, 1, &[&format!("tb5: {path}{why}")]);
    }
}

#[test]
fn a_missing_provider_is_named_with_its_remedy() {
    let mut run = Run::new(["--", "true"]);
    run.command.env("RDMA_SIM_PROVIDER", "/no/librdma.so");
    let output = run.output();
    assert_failed(&output, 1, &["/no/librdma.so", "cargo build --release -p librdma"]);
    let folder = Folder::new();
    // Regression: programs ran with another provider, or none, under the line "backend: simulator".
    for (name, bytes) in [("text.so", &b"no library"[..]), ("other.so", b"\x7fELF of another library")] {
        let path = folder.path(name);
        std::fs::write(&path, bytes).unwrap();
        let mut run = Run::new(["--", "true"]);
        run.command.env("RDMA_SIM_PROVIDER", &path);
        assert_failed(&run.output(), 1, &[name, "is not the simulated provider"]);
    }
    // A tool that was copied away from its provider.
    let copied = folder.path("tb5");
    // By another process: a program that this one has open to write could not be started while a fork of another thread holds it.
    assert!(program("cp").arg(env!("CARGO_BIN_EXE_tb5")).arg(&copied).status().unwrap().success());
    let output =
        Command::new(copied).args(["run", "--", "true"]).env_remove("RDMA_SIM_PROVIDER").output().unwrap();
    assert_failed(&output, 1, &["deps/librdma.so", "set RDMA_SIM_PROVIDER to target/release/librdma.so"]);
}

#[test]
fn a_second_fabric_of_the_same_name_is_refused() {
    let (run, child) = endless();
    let again = tb5!["run", "--name", &run.name, "--", "true"];
    assert_failed(&again, 1, &["there is a fabric called"]);
    assert!(run.directory().exists());
    let unknown = tb5!["fabric", &run.name, "a:rdma_en99", "unplug"];
    assert_failed(&unknown, 2, &["no device \"rdma_en99\""]);
    let other = tb5!["fabric", "nosuch"];
    assert_failed(&other, 1, &["there is no fabric called \"nosuch\"; there are: ", &run.name]);
    child.signal(libc::SIGTERM);
    assert_code(&child.finish(), 143);
    let gone = tb5!["fabric", &run.name];
    assert_failed(&gone, 1, &["there is no fabric called"]);
}

/// Catches output of programs that is lost without a word.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = tool().args(["run", "--", "echo", "lost"]).stdout(full).output().unwrap();
    assert_failed(&output, 1, &["the output of programs cannot be written: No space left on device"]);
}
