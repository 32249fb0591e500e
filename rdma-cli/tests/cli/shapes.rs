//! The shape of what each command prints: text as a snapshot, JSON as the keys and types that the guide lists
//!
//! Figures are left out: they change with the model, and other tests compare them. After a change that is meant, run with
//! `UPDATE_GOLDEN=1`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::{env, fs};

use serde_json::Value;

use crate::machines::Listener;
#[cfg(target_os = "linux")]
use crate::run::fixture::Run;
use crate::support::{Folder, assert_code, json, stderr, stdout, tool};

/// A command, without `--json`, and its exit code; SRC, DIR, DST, LEFT, RIGHT, DISABLED, SCENARIO, FAILING and PLAN are files, and LINE is
/// one of a replay
const COMMANDS: [(&str, &str, i32); 24] = [
    ("bench", "bench all-reduce --bytes 4KiB..8KiB", 0),
    ("bw", "bw --bytes 4KiB..8KiB", 0),
    ("calibrate", "calibrate --out DST", 0),
    ("completions", "completions fish", 0),
    ("copy", "copy SRC DST", 0),
    ("copy -r", "copy -r DIR DST --cables 2 --fault unplug@1us@1", 0),
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
];
/// Commands that need a fabric or a peer
#[cfg(target_os = "linux")]
const PEER_COMMANDS: [(&str, PeerCommand); 7] = [
    ("run", run),
    ("fabric", fabric),
    ("serve", serve),
    ("ping HOST:", ping),
    ("bw HOST:", bw),
    ("copy HOST:", copy),
    ("demo HOST:", demo),
];
#[cfg(not(target_os = "linux"))]
const PEER_COMMANDS: [(&str, PeerCommand); 5] =
    [("serve", serve), ("ping HOST:", ping), ("bw HOST:", bw), ("copy HOST:", copy), ("demo HOST:", demo)];

/// Commands whose text is not compared: that of the other side is, or it says what the run measured
#[cfg(target_os = "linux")]
const JSON_COMMANDS: [(&str, PeerCommand); 3] = [
    ("copy --listen", |_| in_fabric(["copy --listen FOLDER --json", "copy README 127.0.0.1:"], "a")),
    ("calibrate --listen", |_| {
        in_fabric(["calibrate --listen --json", "calibrate 127.0.0.1: --out FOLDERfound.toml"], "a")
    }),
    ("calibrate HOST:", |_| {
        in_fabric(["calibrate --listen", "calibrate 127.0.0.1: --json --out FOLDERfound.toml"], "b")
    }),
];
#[cfg(not(target_os = "linux"))]
const JSON_COMMANDS: [(&str, PeerCommand); 0] = [];

/// Runs a command with further options, and returns its standard output
type PeerCommand = fn(&[&str]) -> String;

/// The lines of a snapshot, at most.
const LINES: usize = 40;

/// A scenario that expects what no cable does
const FAILING: &str = "name = \"test\"\nsource = \"a test\"\nabout = \"a test\"\n[workload]\nkind = \"ping\"\ncount = 3\n[expect]\n\
                       outcome = \"completes\"\nmax_rtt = \"1us\"\n";

/// What the commands read
struct Files(Folder);

impl Files {
    fn new() -> Self {
        let folder = Folder::new();
        folder.write("source", vec![7; 10_000]);
        folder.directory("directory");
        folder.write("directory/inside", "text");
        folder.write("failing.toml", FAILING);
        let plan = tb5!["topo", "plan", "ring:3", "--out", folder.path("plan")];
        assert_code(&plan, 0);
        Self(folder)
    }

    fn run(&self, command: &str, more: &[&str]) -> Output {
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
    let output = Run::new(more.iter().copied().chain(["--hosts", "2", "--", "true"])).output();
    assert_code(&output, 0);
    // Beside the result of its programs, it says on standard error what it does.
    if more.is_empty() { stderr(&output) } else { stdout(&output) }
}

/// In the fabric of a run, by one of its programs
#[cfg(target_os = "linux")]
fn fabric(more: &[&str]) -> String {
    let tb5 = env!("CARGO_BIN_EXE_tb5");
    let output = Run::shell("2", &format!("{tb5} fabric $RDMA_SIM_FABRIC {}", more.join(" "))).output();
    assert_code(&output, 0);
    let lines = stdout(&output);
    lines.lines().filter_map(|line| line.strip_prefix("a | ")).map(|line| format!("{line}\n")).collect()
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
    let begin = format!("{host} | ");
    let lines = stdout(&output);
    lines.lines().filter_map(|line| line.strip_prefix(&*begin)).map(|line| format!("{line}\n")).collect()
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

/// Text without figures, paths and widths of columns
fn masked(text: &str, files: &Files) -> String {
    let folder = files.0.path("");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = text
        .replace(&*repository.to_string_lossy(), "REPOSITORY")
        .replace(&*folder.to_string_lossy(), "FOLDER/");
    let word = |word: &str| {
        let is_digest = word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digest { "DIGEST".to_owned() } else { without_numbers(word) }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().take(LINES).map(line).collect();
    lines.join("\n") + "\n"
}

/// A word in which each number is 0
fn without_numbers(word: &str) -> String {
    let mut out = String::new();
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(if letter.is_ascii_digit() { '0' } else { letter });
        while letter.is_ascii_digit()
            && letters.next_if(|next| next.is_ascii_digit() || *next == '.').is_some()
        {}
    }
    out
}

fn snapshot(name: &str) -> PathBuf {
    let name = name.trim_end_matches(':').to_lowercase().replace(' ', "-");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/snapshots/{name}.txt"))
}

fn golden(path: PathBuf, found: &str) -> Result<(), String> {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let stated = fs::read_to_string(&path).unwrap_or_default();
    if stated == found { Ok(()) } else { Err(format!("{}:\n{found}instead of\n{stated}", path.display())) }
}

/// Catches a row that is lost, a word that changes, and a command without a snapshot.
#[test]
fn the_text_of_each_command_is_as_its_snapshot() {
    let files = Files::new();
    let mut wrong = Vec::new();
    for (name, command, code) in COMMANDS {
        let output = files.run(command, &[]);
        assert_code(&output, code);
        assert_eq!(stderr(&output), "", "{name}");
        wrong.extend(golden(snapshot(name), &masked(&stdout(&output), &files)).err());
    }
    for (name, command) in PEER_COMMANDS {
        wrong.extend(golden(snapshot(name), &masked(&command(&[]), &files)).err());
    }
    assert!(wrong.is_empty(), "run with UPDATE_GOLDEN=1 if it should change\n{}", wrong.join("\n"));
}

/// Catches a remark, a backend or progress beside the results that `--quiet` asks for.
#[test]
fn quiet_leaves_results_alone() {
    let files = Files::new();
    for (name, command, code) in COMMANDS {
        let quiet = files.run(command, &["-q"]);
        assert_code(&quiet, code);
        let text = stdout(&quiet);
        // Pages that were written are the result.
        let has_result = !text.is_empty() || name == "man --out";
        assert!(!text.contains("backend:") && has_result, "{name}: {text}");
        assert_eq!(stderr(&quiet), "", "{name}");
    }
    assert_code(&files.run("ping --count 1", &["-q", "-v"]), 2);
}

/// The types of all values below a value, by the path of their key
fn types(value: &Value, path: &str, into: &mut BTreeMap<String, Vec<&'static str>>) {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "whole number",
        Value::String(_) => "text",
        Value::Array(values) => {
            values.iter().for_each(|value| types(value, &format!("{path}[]"), into));
            "list"
        }
        Value::Object(keys) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (key, value) in keys {
                // Their keys are those of a profile.
                let key = if path == "fields" { "NAME" } else { key };
                types(value, &format!("{path}{dot}{key}"), into);
            }
            "object"
        }
    };
    let known = into.entry(path.to_owned()).or_default();
    if !known.contains(&name) {
        known.push(name);
        known.sort_unstable();
    }
}

/// Elements of a list that is empty or not as the machine measures
const MAY_BE_EMPTY: &str = "contradictions[]";

/// What a key means, and its type where the runs of the test have `null` only
struct Meaning {
    text: &'static str,
    of_null: Option<&'static str>,
}

/// The meaning of each key, by the last name of its path and, for some, by its type
fn meanings() -> BTreeMap<&'static str, Meaning> {
    let line = |line: &'static str| {
        let mut columns = line.split('\t');
        let (Some(key), Some(text)) = (columns.next(), columns.next()) else {
            panic!("meanings.txt: {line}: a key, a tabulator and its meaning")
        };
        (key, Meaning { text, of_null: columns.next() })
    };
    include_str!("meanings.txt").lines().map(line).collect()
}

/// A row of the page, or nothing for an element that is an object or a list itself
fn row(name: &str, key: &str, types: &[&str], meanings: &BTreeMap<&str, Meaning>) -> Option<String> {
    let is_compound = types.iter().any(|kind| ["object", "list"].contains(kind));
    if key == MAY_BE_EMPTY || (key.ends_with("[]") && is_compound) {
        return None;
    }
    let last = key.rsplit('.').next().unwrap_or(key).trim_end_matches("[]");
    // A key may have a meaning of its own for each type.
    let of_type = meanings.get(format!("{last} ({})", types.join(", ")).as_str());
    let meaning = of_type.or_else(|| meanings.get(last));
    let meaning = meaning.unwrap_or_else(|| panic!("{name}: {key}: meanings.txt lacks {last}"));
    let kind = match (types, meaning.of_null) {
        (["null"], Some(kind)) => format!("null, {kind}"),
        (["null"], None) => panic!("{name}: {key}: meanings.txt lacks the type of {last}"),
        _ => types.join(", "),
    };
    let text = if key.ends_with("[]") { "each of them" } else { meaning.text };
    Some(format!("| `{key}` | {kind} | {text} |\n"))
}

/// The page of the guide: each command with its keys
fn page(files: &Files) -> String {
    let mut page = String::from(
        "# JSON output\n\nWith `--json`, a command prints one object. `serve`, `copy --listen` and `calibrate --listen` print one in a line: \
         first `{\"listening\": ADDRESS}`, then one for each peer. Units are in the keys; `[]` stands for each element of a list. `doctor --probe` prints the object of `doctor`, \
         with more findings. A test compares this page with what the commands print.\n",
    );
    let meanings = meanings();
    let mut by_name: BTreeMap<&str, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for (name, command, code) in COMMANDS {
        let output = files.run(command, &["--json"]);
        assert_code(&output, code);
        assert_eq!(stdout(&output).lines().count(), 1, "{name}");
        types(&json(&output), "", by_name.entry(name.split(" -").next().unwrap_or(name)).or_default());
    }
    for (name, command) in PEER_COMMANDS.into_iter().chain(JSON_COMMANDS) {
        let printed = command(&["--json"]);
        // The line with the address is described above.
        let last = printed.lines().last().unwrap_or_default();
        let value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{name}: {error}: {printed}"));
        types(&value, "", by_name.entry(name).or_default());
    }
    for (name, keys) in by_name {
        // Writing to a string does not fail.
        let _ = write!(page, "\n## `tb5 {name}`\n\n| key | type | meaning |\n|---|---|---|\n");
        for (key, types) in keys.iter().filter(|(key, _)| !key.is_empty()) {
            page.extend(row(name, key, types, &meanings));
        }
    }
    page
}

/// Catches a key that is renamed, lost or of another type, and one that the guide does not list.
#[test]
fn the_json_of_each_command_has_the_keys_of_the_guide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/json.md");
    if let Err(error) = golden(path, &page(&Files::new())) {
        panic!("run with UPDATE_GOLDEN=1 if it should change\n{error}");
    }
}
