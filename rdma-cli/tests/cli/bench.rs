//! `tb5 bench`: what it prints, and that it checks

use std::process::Stdio;

use serde_json::Value;

use crate::support::{Folder, Running, assert_code, assert_failed, json, keys, stderr, stdout, tool};

/// The report of `tb5 bench` with these arguments
fn bench(arguments: &str) -> Value {
    let output = tool().arg("bench").args(arguments.split_whitespace()).arg("--json").output().unwrap();
    assert_code(&output, 0);
    json(&output)
}

const OPERATIONS: [&str; 8] =
    ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "scatter", "gather", "all-to-all"];
const OF_JACCL: [&str; 3] = ["all-reduce", "all-gather", "reduce-scatter"];

#[test]
fn the_report_has_stable_keys_and_conventions() {
    for operation in OPERATIONS {
        let report = bench(&format!("{operation} --topology ring:3 --bytes 3KiB..6KiB --dtype i16 --seed 5"));
        let promised = ["backend", "dtype", "hosts", "jaccl", "operation", "rows", "seed", "topology"];
        assert_eq!(keys(&report), promised);
        assert_eq!((&report["backend"], &report["hosts"]), (&"simulator".into(), &3.into()));
        assert_eq!((&report["operation"], &report["topology"]), (&operation.into(), &"ring:3".into()));
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        for (row, size) in rows.iter().zip([3072.0, 6144.0]) {
            let promised = [
                "algbw_bytes_per_second",
                "busbw_bytes_per_second",
                "check",
                "jaccl_ns",
                "lower_bound_ns",
                "size_bytes",
                "time_ns",
            ];
            assert_eq!(keys(row), promised);
            let number = |name: &str| row[name].as_f64().unwrap();
            assert_eq!((number("size_bytes"), &row["check"]), (size, &"ok".into()));
            assert!(0.0 < number("lower_bound_ns") && number("lower_bound_ns") <= number("time_ns"), "{row}");
            let is_near = |name: &str, expected: f64| (number(name) / expected - 1.0).abs() < 1e-9;
            assert!(is_near("algbw_bytes_per_second", size / number("time_ns") * 1e9), "{row}");
            // As in doc/PERFORMANCE.md of nccl-tests.
            let factor = match operation {
                "all-reduce" => 4.0 / 3.0,
                "broadcast" | "reduce" => 1.0,
                _ => 2.0 / 3.0,
            };
            assert!(is_near("busbw_bytes_per_second", number("algbw_bytes_per_second") * factor), "{row}");
            assert_eq!(row["jaccl_ns"].is_number(), OF_JACCL.contains(&operation), "{row}");
            assert!(row["jaccl_ns"].is_null() || number("jaccl_ns") >= number("lower_bound_ns"), "{row}");
        }
    }
}

/// Catches a column that is lost or changes its place, and a time that depends on anything but the arguments.
#[test]
fn the_table_has_the_columns_of_nccl_tests() {
    let run = |bytes: &str| {
        let output = tb5!("bench", "all-reduce", "--topology", "ring:4", "--bytes", bytes);
        assert_code(&output, 0);
        stdout(&output)
    };
    let text = run("4..16KiB");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "backend: simulator (4 Macs, ring:4; times are virtual)");
    assert_eq!(lines[1], "JACCL: ring");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[2]),
        ["size", "count", "type", "time", "algbw", "busbw", "bound", "JACCL", "gain", "check"]
    );
    assert_eq!(words(lines[3]), ["(B)", "(elements)", "(µs)", "(GB/s)", "(GB/s)", "(µs)", "(µs)", "(×)"]);
    assert_eq!(lines.len(), 4 + 13);
    // The README has figures; here, digits stand for all digits.
    assert_eq!(
        lines[15].replace(|c: char| c.is_ascii_digit(), "0"),
        "       0000        0000   f00        00.00    0.000    0.000        00.00        00.00   0.00  ok"
    );
    assert_eq!(run("8KiB").lines().last(), Some(lines[15]), "a row does not depend on those before it");
    assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn every_type_is_summed_and_checked() {
    for dtype in ["bf16", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"] {
        for operation in ["all-reduce", "reduce-scatter"] {
            let report = bench(&format!("{operation} --hosts 3 --bytes 60KiB --dtype {dtype}"));
            assert_eq!((&report["dtype"], &report["rows"][0]["check"]), (&dtype.into(), &"ok".into()));
        }
    }
}

/// Catches a check that checks nothing, and a failure without an exit code.
#[test]
fn a_wrong_element_is_found() {
    for operation in OPERATIONS {
        let output = tb5!("bench", operation, "--bytes", "4KiB..8KiB", "--spoil", "300");
        assert_code(&output, 1);
        let text = stdout(&output);
        // The parts of a rank have 256 and 512 elements, the others more.
        let is_part = ["reduce-scatter", "scatter"].contains(&operation);
        let wrong = text.lines().filter(|line| line.ends_with("  1 wrong")).count();
        let right = text.lines().filter(|line| line.ends_with("  ok")).count();
        assert_eq!([wrong, right], if is_part { [1, 1] } else { [2, 0] }, "{operation}: {text}");
        let report = json(&tb5!("bench", operation, "--bytes", "8KiB", "--spoil", "300", "--json"));
        assert_eq!(report["rows"][0]["check"], "1 wrong");
    }
}

/// Catches shapes that the baseline cannot run on and is said to, the other way around, and a line without a reason.
#[test]
fn jaccl_runs_on_meshes_and_rings_only() {
    let of = |arguments: &str| {
        let report = bench(&format!("all-reduce --bytes 64KiB {arguments}"));
        (report["jaccl"].as_str().unwrap().to_owned(), report["rows"][0]["jaccl_ns"].as_u64())
    };
    for arguments in ["--topology line", "--topology star", "--topology ring --hosts 9"] {
        let (why, time) = of(arguments);
        assert_eq!(
            (why.as_str(), time),
            ("none: the cabling is neither a mesh nor a ring of at most 8 Macs", None)
        );
    }
    for (arguments, schedules) in [
        ("--topology mesh --hosts 5", "the faster one of mesh and ring"),
        ("--topology ring --hosts 8", "ring"),
        ("--topology pair", "the faster one of mesh and ring"),
    ] {
        let (found, time) = of(arguments);
        assert_eq!((found.as_str(), time.is_some()), (schedules, true), "{arguments}");
    }
    let text = stdout(&tb5!("bench", "all-reduce", "--topology", "line", "--bytes", "4KiB"));
    assert!(
        text.contains("\nJACCL: none: the cabling is neither") && text.ends_with("  -      -  ok\n"),
        "{text}"
    );
    let text = stdout(&tb5!("bench", "all-to-all", "--bytes", "4KiB"));
    assert!(text.contains("\nJACCL: none: it has no such operation\n"), "{text}");
}

/// A ring of four with two cables between neighbours, and a cable across
const DOUBLE_RING: &str = r#"
shape = "ring"
hosts = 4
ports = 5
cables = 2

[[cable]]
ends = ["a:rdma_en6", "c:rdma_en6"]
"#;

/// Catches cables of a file that are not used: the baseline has the time of two wires, the group that of all cables.
#[test]
fn a_topology_can_be_a_file() {
    let folder = Folder::new();
    let file = folder.write("double.toml", DOUBLE_RING);
    let output = tb5!("bench", "all-reduce", "--topology", &file, "--bytes", "4MiB", "--json");
    assert_code(&output, 0);
    let report = json(&output);
    assert_eq!((&report["hosts"], &report["topology"]), (&4.into(), &file.to_str().unwrap().into()));
    assert_eq!(report["jaccl"], "ring with 2 cables between neighbours");
    let single = bench("all-reduce --topology ring:4 --bytes 4MiB");
    let time = |report: &Value, name: &str| report["rows"][0][name].as_f64().unwrap();
    for (name, least) in [("time_ns", 1.4), ("jaccl_ns", 1.6), ("lower_bound_ns", 2.1)] {
        let gain = time(&single, name) / time(&report, name);
        assert!(gain > least, "{name}: {gain}");
    }
    let text = std::fs::read_to_string(&file).unwrap().replace("c:rdma_en6", "c:rdma_en2");
    let taken = folder.write("taken.toml", text);
    let refused = tb5!("bench", "all-reduce", "--topology", &taken);
    assert_failed(&refused, 1, &["taken.toml", "rdma_en2"]);
}

/// Sizes that no equal parts have are rounded down, and short ones up to an element for each host: catches parts that differ, and empty ones.
#[test]
fn sizes_are_whole_elements_of_equal_parts() {
    let sizes = |arguments: &str| {
        let report = bench(arguments);
        let rows = report["rows"].as_array().unwrap().clone();
        rows.iter().map(|row| row["size_bytes"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(sizes("all-gather --hosts 3 --bytes 1..64 --dtype f64"), [24, 48]);
    assert_eq!(sizes("all-reduce --hosts 3 --bytes 1..32 --dtype f64"), [8, 16, 32]);
    assert_eq!(sizes("all-to-all --hosts 3 --bytes 100 --dtype u8"), [99]);
}

#[test]
fn arguments_that_cannot_be_measured_are_a_usage_error() {
    let table = [
        ("bench", "<OPERATION>"),
        ("bench fly", "invalid value 'fly'"),
        ("bench all-reduce --bytes 8..4", "smaller size first"),
        ("bench all-reduce --bytes 0..4", "sizes are 1B to 1GiB"),
        ("bench all-reduce --bytes 4..2GiB", "sizes are 1B to 1GiB"),
        ("bench all-reduce --bytes 4KB", "write A..B"),
        ("bench all-reduce --dtype f8", "invalid value 'f8'"),
        ("bench all-reduce --topology nosuch", "nosuch"),
        ("bench all-reduce --topology pair --hosts 3", "pair"),
        ("bench all-reduce --topology ring:4 --hosts 5", "ring:4 has 4 hosts, not 5: leave one of the"),
        ("bench all-reduce --hosts 1", "write a whole number from 2 to 64"),
        ("bench all-reduce --topology ring:5 --bytes 1GiB", "5 hosts with 1GiB each have more than 4GiB"),
    ];
    for (arguments, why) in table {
        let output = tool().args(arguments.split_whitespace()).output().unwrap();
        assert_failed(&output, 2, &[why]);
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn hosts_without_a_way_to_each_other_are_named() {
    let folder = Folder::new();
    let hosts = ["a", "b", "c"].map(|name| format!("[[host]]\nname = \"{name}\"\nports = 3\n")).concat();
    let file =
        folder.write("apart.toml", format!("{hosts}[[cable]]\nends = [\"a:rdma_en2\", \"b:rdma_en2\"]\n"));
    let output = tb5!("bench", "all-reduce", "--topology", &file);
    assert_failed(&output, 1, &["no cables join these groups of hosts: a, b | c"]);
}

/// Regression: it was refused.
#[test]
fn an_all_to_all_of_more_than_16_hosts_is_measured() {
    let report = json(&tb5!("bench", "all-to-all", "--topology", "line:17", "--bytes", "4KiB", "--json"));
    let row = &report["rows"][0];
    assert_eq!((report["hosts"].as_u64(), row["check"].as_str()), (Some(17), Some("ok")), "{report}");
    assert!(row["time_ns"].as_u64() > row["lower_bound_ns"].as_u64(), "{report}");
}

/// Regression: a measurement that failed before its first row printed the head of a table.
#[test]
fn a_measurement_that_fails_at_once_prints_no_table() {
    let folder = Folder::new();
    // No transition to RTR succeeds.
    let profile = "format = 1\n[caps]\nmax_qp = 1\nmax_queue_frames = 1\nmax_cqe = 1\n";
    let profile = folder.write("small.toml", profile);
    let words = ["bench", "all-reduce", "-q", "--bytes", "4KiB", "--profile", profile.to_str().unwrap()];
    let output = tool().args(words).output().unwrap();
    assert_failed(&output, 1, &[]);
    assert_eq!(stdout(&output), "");
}

/// Catches rows that are kept until the end, and measurements for a reader that is gone.
#[test]
fn rows_appear_one_by_one_and_stop_with_their_reader() {
    // More than the machine can measure in the time of a test.
    let arguments = ["bench", "all-reduce", "--hosts", "8", "--bytes", "4..512MiB"];
    let mut bench = Running::start(tool().args(arguments).stdout(Stdio::piped()));
    let mut out = std::io::BufReader::new(bench.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..5 {
        line.clear();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    }
    assert!(line.trim_start().starts_with("4 "), "{line}");
    drop(out);
    let output = bench.finish();
    assert_code(&output, 0);
    assert_eq!(stderr(&output), "");
}

/// Catches a size that is rounded without a word.
#[test]
fn a_size_that_is_rounded_is_reported() {
    let rounded = tb5!["bench", "all-reduce", "--hosts", "2", "--bytes", "3..6"];
    assert_code(&rounded, 0);
    assert_eq!(stderr(&rounded), "tb5: sizes are whole elements in equal parts: 4B instead of 3B\n");
    let whole = tb5!["bench", "all-reduce", "--hosts", "2", "--bytes", "4..8"];
    assert_eq!(stderr(&whole), "");
}
