//! How fast all_reduces are beside JACCL's schedules, in virtual time: exact figures of the model, which the README has as a table

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use crate::support::{Folder, assert_code, json, tool};

/// The cablings of the table: a name, and a shape or a file
const CABLINGS: [(&str, &str); 11] = [
    ("pair", "pair"),
    ("pair, 2 cables", "shape = \"pair\"\nhosts = 2\nports = 3\ncables = 2\n"),
    ("mesh of 3", "mesh:3"),
    ("mesh of 4", "mesh:4"),
    ("mesh of 5", "mesh:5"),
    ("mesh of 4, one cable of 40 Gb/s", MIXED),
    ("ring of 4", "ring:4"),
    ("ring of 5", "ring:5"),
    ("ring of 8", "ring:8"),
    ("ring of 4, 2 cables", "shape = \"ring\"\nhosts = 4\nports = 4\ncables = 2\n"),
    ("ring of 4, one across", CHORD),
];
const CHORD: &str =
    "shape = \"ring\"\nhosts = 4\nports = 3\n[[cable]]\nends = [\"a:rdma_en4\", \"c:rdma_en4\"]\n";
const MIXED: &str = "shape = \"ring\"\nhosts = 4\nports = 3\n[[cable]]\nends = [\"a:rdma_en4\", \"c:rdma_en4\"]\n\
                     [[cable]]\nends = [\"b:rdma_en4\", \"d:rdma_en4\"]\ngbps = 40\n";

/// The sizes that have a column.
const COLUMNS: [(u64, &str); 8] = [
    (4, "4 B"),
    (4 << 10, "4 KiB"),
    (32 << 10, "32 KiB"),
    (64 << 10, "64 KiB"),
    (256 << 10, "256 KiB"),
    (1 << 20, "1 MiB"),
    (4 << 20, "4 MiB"),
    (16 << 20, "16 MiB"),
];

/// Sizes, and how many times as long JACCL takes
fn gains(cabling: &str, bytes: &str) -> Vec<(u64, f64)> {
    let folder = Folder::new();
    let topology = if cabling.contains('\n') {
        folder.write("cabling.toml", cabling).into_os_string()
    } else {
        cabling.into()
    };
    let mut command = tool();
    command.args(["bench", "all-reduce", "--json", "--bytes", bytes, "--topology"]).arg(topology);
    let output = command.output().unwrap();
    assert_code(&output, 0);
    let report = json(&output);
    let gain = |row: &serde_json::Value| {
        let [size, time, jaccl, bound] = ["size_bytes", "time_ns", "jaccl_ns", "lower_bound_ns"]
            .map(|name| row[name].as_u64().unwrap_or_else(|| panic!("{cabling}: no {name} in {row}")));
        assert!(bound <= time && bound <= jaccl, "{cabling}: faster than the bound: {row}");
        (size, jaccl as f64 / time as f64)
    };
    report["rows"].as_array().unwrap().iter().map(gain).collect()
}

/// Rounded down: what is below 1 does not look like 1
fn cell(gain: f64) -> String {
    format!("{:.2}", (gain * 100.0).floor() / 100.0)
}

fn least(gains: &[(u64, f64)]) -> f64 {
    gains.iter().map(|(_, gain)| *gain).fold(f64::INFINITY, f64::min)
}

/// The figures of the README, in its words
fn figures() -> String {
    let names: Vec<_> = COLUMNS.iter().map(|(_, name)| *name).collect();
    let mut text = format!("| all_reduce of | {} | least | 1.3 × or more |\n", names.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(COLUMNS.len() + 2));
    for (name, cabling) in CABLINGS {
        let gains = gains(cabling, "4..16MiB");
        let of = |size| gains.iter().find(|(found, _)| *found == size).expect("the size was measured").1;
        let cells: Vec<_> = COLUMNS.iter().map(|(size, _)| cell(of(*size))).collect();
        let fast = gains.iter().filter(|(_, gain)| *gain >= 1.3).count();
        writeln!(
            text,
            "| {name} | {} | {} | {fast} of {} |",
            cells.join(" | "),
            cell(least(&gains)),
            gains.len()
        )
        .expect("a string takes everything");
    }
    text
}

/// Catches a figure in the README that is not true, and a change by which groups lose against JACCL's schedules.
#[test]
fn all_reduces_compare_with_jaccl_as_the_readme_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let [begin, end] = ["<!-- figures -->\n", "<!-- end of figures -->"];
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(begin).expect("the README has figures");
    let (stated, after) = rest.split_once(end).expect("the figures have an end");
    let found = figures();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, format!("{before}{begin}{found}{end}{after}")).unwrap();
    } else {
        assert_eq!(found, stated, "if this is meant, set UPDATE_GOLDEN=1");
    }
}

/// Catches blocks that leave the cables idle: JACCL comes near the bound, as the vectors are long and copies cost nothing.
///
/// Groups do not keep two cables between the same Macs busy yet.
#[test]
#[ignore = "takes minutes"]
fn long_vectors_take_hardly_longer_than_with_jaccl() {
    for (name, cabling) in CABLINGS {
        let least = least(&gains(cabling, "64MiB"));
        assert!(least > if name.ends_with("2 cables") { 0.7 } else { 0.96 }, "{name}: {least}");
    }
}
