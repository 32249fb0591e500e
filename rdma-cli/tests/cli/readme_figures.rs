//! The virtual figures in the README's table: exact, because they are the model's

use std::fs;
use std::path::Path;

use crate::copy::with_hole;
use crate::support::json;

/// Catches a figure in the README that the tool does not print any more.
#[test]
fn the_virtual_figures_of_the_readme_are_those_of_the_tool() {
    let folder = with_hole(256 << 20);
    let copied = json(&tb5!["copy", "--json", folder.path("source"), folder.path("copy")]);
    let number = |key: &str| copied[key].as_f64().unwrap();
    let copied = format!(
        "| 256 MiB over one cable | {:.1} % of the modelled payload ceiling of {:.1} GB/s |",
        number("efficiency") * 100.0,
        number("ceiling_bytes_per_second") / 1e9
    );
    let ping = |size: &str| {
        let report = json(&tb5!["ping", "--json", "--bytes", size]);
        [&report["rtt_ns"]["p50"], &report["bare_rtt_ns"]].map(|time| time.as_f64().unwrap())
    };
    let ([session, bare], [_, eight]) = (ping("64"), ping("8"));
    let over = format!("| ping of 64 B | {:.2} % over bare verbs |", (session / bare - 1.0) * 100.0);
    let eight = format!("| ping of 8 B on bare verbs | {:.1} µs, calibrated", eight / 1e3);
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    for figure in [copied, over, eight] {
        assert!(readme.contains(&figure), "the README lacks: {figure}");
    }
}
