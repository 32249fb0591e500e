//! `tb5 topo`: plans and their proofs

use std::fs;

use tempfile::tempdir;

use crate::support::{json, stderr, stdout};

/// Catches a plan that is not the best, shares that do not add up, and names that are not those of the hosts.
#[test]
fn a_plan_has_its_proof() {
    // All_reduce on reference topologies, in the time of one cable (published and own derivations: BOUNDS.md).
    for (topology, time, hosts) in
        [("pair", 1.0, 2), ("ring:4", 0.75, 4), ("mesh:5", 0.4, 5), ("line:4", 1.0, 4), ("star:4", 1.0, 4)]
    {
        let report = json(&tb5!("topo", "plan", topology, "--json"));
        let number = |name: &str| report[name].as_f64().unwrap();
        let found = number("plan_seconds_per_byte") * number("cable_bytes_per_second");
        assert!((found - time).abs() < 1e-6, "{topology}: {found}");
        assert_eq!(
            (report["optimal"].as_bool(), report["operation"].as_str()),
            (Some(true), Some("all-reduce"))
        );
        assert_eq!(report["hosts"].as_array().unwrap().len(), hosts);
        let trees = report["trees"].as_array().unwrap();
        let shares = trees.iter().map(|tree| tree["share"].as_f64().unwrap()).sum::<f64>();
        assert!((shares - 1.0).abs() < 1e-9, "{topology}: {shares}");
        assert!(trees.iter().all(|tree| tree["edges"].as_array().unwrap().len() == hosts - 1));
        let parts = report["certificate"]["partition"].as_array().unwrap();
        assert_eq!(parts.iter().map(|part| part.as_array().unwrap().len()).sum::<usize>(), hosts);
    }
    let text = stdout(&tb5!("topo", "plan", "ring:4"));
    assert!(
        text.contains("0.750 × the time of one 80 Gb/s cable") && text.contains("no plan is faster"),
        "{text}"
    );
    assert!(text.contains("a – c         0.800 × as long"), "the cable to add: {text}");
}

#[test]
fn every_operation_has_a_plan() {
    for operation in
        ["all-gather", "reduce-scatter", "broadcast", "reduce", "scatter", "gather", "all-to-all"]
    {
        let report = json(&tb5!("topo", "plan", "ring:5", "--operation", operation, "--json"));
        assert_eq!(
            (report["optimal"].as_bool(), report["operation"].as_str()),
            (Some(true), Some(operation))
        );
    }
}

/// Catches a plan that is accepted for other cables, or with a changed share.
#[test]
fn plans_are_checked() {
    let folder = tempdir().unwrap();
    let plan = folder.path().join("p.plan");
    let made = tb5!("topo", "plan", "mesh:4", "--out", &plan);
    assert!(made.status.success(), "{}", stderr(&made));
    let checked = json(&tb5!("topo", "check", "mesh:4", &plan, "--json"));
    assert_eq!(
        (checked["optimal"].as_bool(), checked["factor_above_bound"].as_f64()),
        (Some(true), Some(1.0))
    );
    let other = tb5!("topo", "check", "ring:4", &plan);
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("make a plan for it"), "{}", stderr(&other));
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&plan, text.replacen("1/4", "1/3", 1)).unwrap();
    assert_eq!(tb5!("topo", "check", "mesh:4", &plan).status.code(), Some(1));
    fs::write(&plan, "rdma-plan 1\nnonsense").unwrap();
    let broken = tb5!("topo", "check", "mesh:4", &plan);
    assert_eq!(broken.status.code(), Some(1));
    assert!(stderr(&broken).contains("line 2"), "{}", stderr(&broken));
}

#[test]
fn what_cannot_be_planned_says_why() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("two.toml");
    let hosts = ["a", "b", "c"]
        .map(|name| format!("[[host]]\nname = \"{name}\"\nmac = \"mac-mini-m4-pro\"\n"))
        .concat();
    fs::write(&file, format!("{hosts}[[cable]]\nends = [\"a:rdma_en2\", \"b:rdma_en2\"]\n")).unwrap();
    let apart = tb5!("topo", "plan", &file);
    assert_eq!(apart.status.code(), Some(1), "{}", stderr(&apart));
    assert!(stderr(&apart).contains("a, b | c"), "{}", stderr(&apart));
    for arguments in [
        ["topo", "plan", "ring:4", "--root", "zz", "--operation", "reduce"].as_slice(),
        &["topo", "plan", "nosuch"],
    ] {
        let refused = crate::support::tool().args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    }
}
