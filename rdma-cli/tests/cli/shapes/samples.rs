//! The commands whose output is compared, and how they are run

use std::fs;
#[cfg(target_os = "linux")]
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Output;
#[cfg(target_os = "linux")]
use std::process::Stdio;

use crate::machines::Listener;
#[cfg(target_os = "linux")]
use crate::run::fixture::Run;
use crate::support::{Folder, assert_code, stdout, tool};
#[cfg(target_os = "linux")]
use crate::support::{Running, stderr};

/// A command, without `--json`, and its exit code; SRC, DIR, DST, LEFT, RIGHT, DISABLED, SCENARIO, FAILING, UNFIRED and PLAN are files,
/// and LINE is one of a replay
pub(super) const COMMANDS: [(&str, &str, i32); 26] = [
    ("bench", "bench all-reduce --bytes 4KiB..8KiB", 0),
    ("bw", "bw --bytes 4KiB..8KiB", 0),
    ("calibrate", "calibrate --out DST", 0),
    ("calibrate --conformance", "calibrate --conformance", 0),
    ("completions", "completions fish", 0),
    ("copy", "copy SRC DST", 0),
    ("copy -r", "copy -r DIR DST --cables 2 --fault FAULT", 0),
    ("demo", "demo --out DST", 0),
    ("devices", "devices --from LEFT", 0),
    ("doctor", "doctor --from LEFT --from RIGHT", 0),
    ("doctor -failing", "doctor --from DISABLED", 1),
    ("man", "man", 0),
    ("man --out", "man --out DST", 0),
    ("ping", "ping --count 10", 0),
    ("sim check", "sim check SCENARIO --runs 3", 0),
    ("sim check -failing", "sim check FAILING --runs 10", 1),
    ("sim replay", "sim replay SCENARIO LINE", 0),
    ("sim run", "sim run SCENARIO", 0),
    ("sim run --seeds", "sim run SCENARIO --seeds 0..2", 0),
    ("sim trace", "sim trace SCENARIO", 0),
    ("topo check", "topo check ring:3 PLAN", 0),
    ("topo convert", "topo convert ring:3", 0),
    ("topo discover", "topo discover LEFT RIGHT", 0),
    ("topo draw", "topo draw ring:3", 0),
    ("topo plan", "topo plan ring:3", 0),
    ("topo plan --ports", "topo plan --ports 3 --hosts 5", 0),
];
/// Commands whose text is as that of others
pub(super) const JSON_COMMANDS: [(&str, &str, i32); 7] = [
    ("bench", "bench broadcast --hosts 2 --bytes 4KiB", 0),
    ("sim check", "sim check UNFIRED --runs 2", 0),
    ("sim run", "sim run FAILING", 1),
    ("topo plan", "topo plan line:3", 0),
    ("topo plan", "topo plan mesh:4", 0),
    ("topo plan", "topo plan ring:4 --operation broadcast", 0),
    ("topo plan", "topo plan ring:4 --operation all-to-all", 0),
];
/// Commands that need a fabric or a peer
#[cfg(target_os = "linux")]
pub(super) const PEER_COMMANDS: [(&str, PeerCommand); 10] = [
    ("run", run),
    ("run -failing", failing_run),
    ("fabric", fabric_list),
    ("fabric NAME", fabric),
    ("fabric NAME FAULT", fabric_fault),
    ("serve", serve),
    ("ping HOST:", ping),
    ("bw HOST:", bw),
    ("copy HOST:", copy),
    ("demo HOST:", demo),
];
#[cfg(not(target_os = "linux"))]
pub(super) const PEER_COMMANDS: [(&str, PeerCommand); 5] =
    [("serve", serve), ("ping HOST:", ping), ("bw HOST:", bw), ("copy HOST:", copy), ("demo HOST:", demo)];

/// Commands whose text is not compared: that of the other side is, or it says what the run measured
#[cfg(target_os = "linux")]
pub(super) const JSON_PEER_COMMANDS: [(&str, PeerCommand); 5] = [
    ("run", paced_run),
    ("serve, first line", listening),
    ("copy --listen", |_| {
        after_address(in_fabric(["copy --listen FOLDER --json", "copy README 127.0.0.1:"], "a"))
    }),
    ("calibrate --listen", |_| {
        after_address(in_fabric(
            ["calibrate --listen --json", "calibrate 127.0.0.1: --out FOLDERfound.toml"],
            "a",
        ))
    }),
    ("calibrate HOST:", |_| {
        in_fabric(["calibrate --listen", "calibrate 127.0.0.1: --json --out FOLDERfound.toml"], "b")
    }),
];
#[cfg(not(target_os = "linux"))]
pub(super) const JSON_PEER_COMMANDS: [(&str, PeerCommand); 0] = [];

/// Runs a command with further options, and returns its standard output
pub(super) type PeerCommand = fn(&[&str]) -> String;

/// A scenario that expects what no cable does
const FAILING: &str = "name = \"test\"\nsource = \"a test\"\nabout = \"a test\"\n[workload]\nkind = \"ping\"\ncount = 3\n[expect]\n\
                       outcome = \"completes\"\nmax_rtt = \"1us\"\n";

/// A scenario with a fault that comes after its end
const UNFIRED: &str = "name = \"test\"\nsource = \"a test\"\nabout = \"a test\"\nfaults = [\"at 50s a:rdma_en2 unplug\"]\n[workload]\n\
                       kind = \"ping\"\ncount = 3\n[expect]\noutcome = \"completes\"\n";

/// What the commands read
pub(super) struct Files(pub(super) Folder);

impl Files {
    pub(super) fn new() -> Self {
        let folder = Folder::new();
        folder.write("source", vec![7; 10_000]);
        folder.directory("directory");
        folder.write("directory/inside", "text");
        folder.write("failing.toml", FAILING);
        folder.write("unfired.toml", UNFIRED);
        let plan = tb5!["topo", "plan", "ring:3", "--out", folder.path("plan")];
        assert_code(&plan, 0);
        Self(folder)
    }

    pub(super) fn run(&self, command: &str, more: &[&str]) -> Output {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let report = |name: &str| {
            repository.join("rdma-doctor/tests/fixtures/composed/reports").join(name).into_os_string()
        };
        let arguments = command.split_whitespace().map(|word| match word {
            "SRC" => self.0.path("source").into_os_string(),
            "DIR" => self.0.path("directory").into_os_string(),
            "DST" => self.0.path("destination").into_os_string(),
            "LEFT" => report("left.json"),
            "RIGHT" => report("right.json"),
            "DISABLED" => report("../field/rdma-disabled/left.json"),
            "SCENARIO" => repository.join("rdma-sim/scenarios/one-lost-message.toml").into_os_string(),
            "FAILING" => self.0.path("failing.toml").into_os_string(),
            "UNFIRED" => self.0.path("unfired.toml").into_os_string(),
            "FAULT" => "at 1us a:rdma_en3 unplug".into(),
            "LINE" => "2 seed=1 faults=at 5ms a:rdma_en2 lose 1".into(),
            "PLAN" => self.0.path("plan").into_os_string(),
            word => word.into(),
        });
        let output = tool().args(arguments).args(more).output().unwrap();
        for name in ["destination", "destination.md"] {
            let path = self.0.path(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        output
    }
}

#[cfg(target_os = "linux")]
fn run(more: &[&str]) -> String {
    run_of(&["--hosts", "2", "--", "true"], 0, more)
}

/// Both programs start at once, and one of them ends with a failure
#[cfg(target_os = "linux")]
fn failing_run(more: &[&str]) -> String {
    run_of(&["--hosts", "2", "--stagger", "0s", "--", "true", ":", "sh", "-c", "exit 3"], 3, more)
}

/// With faults of which one does not fire
#[cfg(target_os = "linux")]
fn paced_run(more: &[&str]) -> String {
    let faults = "a:rdma_en2 unplug; at 3600s b pause";
    run_of(&["--hosts", "2", "--pace", "tb5", "--fault", faults, "--", "true"], 0, more)
}

/// What a run says: beside the output of its programs, on standard error, or as JSON
#[cfg(target_os = "linux")]
fn run_of(words: &[&str], code: i32, more: &[&str]) -> String {
    let output = Run::new(more.iter().chain(words)).output();
    assert_code(&output, code);
    if more.is_empty() { stderr(&output) } else { stdout(&output) }
}

/// What `tb5 fabric` with further words of a shell says to a program of a run
#[cfg(target_os = "linux")]
fn in_a_run(words: &str, more: &[&str]) -> String {
    let tb5 = env!("CARGO_BIN_EXE_tb5");
    let output = Run::shell("2", &format!("{tb5} {} fabric {words}", more.join(" "))).output();
    assert_code(&output, 0);
    lines_of_host("a", &output)
}

#[cfg(target_os = "linux")]
fn fabric(more: &[&str]) -> String {
    in_a_run("$RDMA_SIM_FABRIC", more)
}

#[cfg(target_os = "linux")]
fn fabric_fault(more: &[&str]) -> String {
    in_a_run("$RDMA_SIM_FABRIC 'at 3600s b pause'", more)
}

/// Of the text, the heading and the fabric of the run: other tests have more
#[cfg(target_os = "linux")]
fn fabric_list(more: &[&str]) -> String {
    in_a_run("| grep -w -e hosts -e $RDMA_SIM_FABRIC", more)
}

/// The first line of a server
#[cfg(target_os = "linux")]
fn listening(more: &[&str]) -> String {
    let mut command = tool();
    command.args(["serve", "--bind", "127.0.0.1", "--port", "0"]).args(more);
    let mut server = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[cfg(target_os = "linux")]
fn lines_of_host(host: &str, output: &Output) -> String {
    let begin = format!("{host} | ");
    stdout(output)
        .lines()
        .filter_map(|line| line.strip_prefix(&*begin))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Runs the two commands as the hosts `a` and `b` of a fabric, and returns what `host` prints
#[cfg(target_os = "linux")]
fn in_fabric(commands: [&str; 2], host: &str) -> String {
    let folder = Folder::new();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let words = |command: &str| {
        let command = command.replace("FOLDER", &folder.path("").to_string_lossy());
        let command = command.replace("README", &readme.to_string_lossy());
        command.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let tool = env!("CARGO_BIN_EXE_tb5").to_owned();
    let [left, right] = commands.map(words);
    let program = [vec![tool.clone()], left, vec![":".to_owned(), tool], right].concat();
    let output = Run::new(["--hosts", "2", "--"].into_iter().map(str::to_owned).chain(program)).output();
    assert_code(&output, 0);
    lines_of_host(host, &output)
}

/// What a command that listens prints behind its address
#[cfg(target_os = "linux")]
fn after_address(printed: String) -> String {
    let (address, rest) = printed.split_once('\n').unwrap();
    assert!(address.starts_with("{\"listening\":\""), "{address}");
    rest.to_owned()
}

/// Runs `command` against a server, and returns what both print
fn between(command: &str, options: &[&str], more: &[&str]) -> [String; 2] {
    let server = Listener::serve(more);
    let asked = server.ask(command, &[options, more].concat());
    assert_code(&asked, 0);
    server.running.signal(libc::SIGINT);
    let served = server.running.finish();
    assert_code(&served, 0);
    [stdout(&served), stdout(&asked)]
}

fn serve(more: &[&str]) -> String {
    let [served, _] = between("ping", &["--count", "5"], more);
    served
}

fn ping(more: &[&str]) -> String {
    let [_, asked] = between("ping", &["--count", "5"], more);
    asked
}

fn bw(more: &[&str]) -> String {
    let [_, asked] = between("bw", &["--bytes", "64KiB..128KiB", "--in-flight", "2"], more);
    asked
}

fn copy(more: &[&str]) -> String {
    let (folder, root) = (Folder::new(), Folder::new());
    let listener = Listener::start(&root.path(""), &[]);
    let port = listener.port.to_string();
    let source = folder.write("source", vec![7; 10_000]);
    let mut copying = tool();
    copying.args(["copy", "--port", &port]).arg(source).arg("127.0.0.1:x").args(more);
    let copied = copying.output().unwrap();
    assert_code(&copied, 0);
    assert_code(&listener.running.finish(), 0);
    without_folder(&stdout(&copied), &folder)
}

fn demo(more: &[&str]) -> String {
    let (folder, root) = (Folder::new(), Folder::new());
    let server = Listener::serve(&["--into", root.path("").to_str().unwrap()]);
    let report = folder.path("report");
    let shown = server.ask("demo", &[&["--out", report.to_str().unwrap()], more].concat());
    assert_code(&shown, 0);
    server.running.signal(libc::SIGINT);
    assert_code(&server.running.finish(), 0);
    let text = without_folder(&stdout(&shown), &folder);
    if !more.is_empty() {
        return text;
    }
    // How much is sent again, in which unit, and whether a drill takes longer is not the same each time.
    let ends = [" more; ", " less; "];
    let figures =
        |line| ends.into_iter().find_map(|end| str::split_once(line, end)).map_or(line, |(before, _)| before);
    let lines = text.lines().map(figures);
    let lines = lines.map(|line| line.replace(" µs", " ms") + "\n");
    lines.collect()
}

fn without_folder(text: &str, folder: &Folder) -> String {
    text.replace(&*folder.path("").to_string_lossy(), "FOLDER/")
}
