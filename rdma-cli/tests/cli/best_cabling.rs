//! `tb5 topo plan --ports`, and the best cabling of the ports of a cabling

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::{Folder, assert_code, assert_failed, json, stderr, stdout, tool};

/// Host and device at both ends of a cable, in the order of the names
type Ends = [[String; 2]; 2];

fn ends(value: &Value) -> Ends {
    let mut ends: Ends = serde_json::from_value(value.clone()).unwrap();
    ends.sort();
    ends
}

fn all_ends(value: &Value) -> BTreeSet<Ends> {
    value.as_array().unwrap().iter().map(ends).collect()
}

/// The time of the operation over the best cabling, in times of one cable
fn times(report: &Value) -> f64 {
    let number = |value: &Value| value.as_f64().unwrap();
    number(&report["best_cabling"]["bound_seconds_per_byte"]) * number(&report["cable_bytes_per_second"])
}

/// Five Macs one behind the other
fn line_of_five(folder: &Folder) -> std::path::PathBuf {
    let hosts = ["v", "w", "x", "y", "z"].map(|name| format!("[[host]]\nname = \"{name}\"\nports = 3\n"));
    let cables = [("v", 4, "w", 2), ("w", 3, "x", 2), ("x", 4, "y", 2), ("y", 4, "z", 3)].map(
        |(left, there, right, here)| {
            format!("[[cable]]\nends = [\"{left}:rdma_en{there}\", \"{right}:rdma_en{here}\"]\n")
        },
    );
    folder.write("line.toml", [hosts.concat(), cables.concat()].concat())
}

/// Catches a cabling that is not the best, more cables at a host than it has ports, two in a port, and a proof that is missing.
#[test]
fn the_best_cabling_of_ports_has_its_proof() {
    for (arguments, cables, time) in [
        ("--ports 3 --hosts 5", 7, 4.0 / 7.0),
        ("--ports 3 --hosts 4", 6, 0.5),
        ("--ports 6,3,3", 6, 2.0 / 6.0),
        ("--ports 2,2,2,2", 4, 0.75),
        ("--ports 2,2,2 --operation broadcast --root c", 3, 0.5),
    ] {
        let words = || ["topo", "plan"].into_iter().chain(arguments.split_whitespace());
        let report = json(&tool().args(words()).arg("--json").output().unwrap());
        let best = &report["best_cabling"];
        assert!((times(&report) - time).abs() < 1e-6, "{arguments}: {report}");
        assert_eq!((&best["optimal"], &best["bits_per_second"]), (&true.into(), &80_000_000_000_u64.into()));
        assert_eq!(best["moves"], serde_json::json!([]));
        assert_eq!(best["edges"].as_array().unwrap().len(), cables, "{report}");
        let ports: BTreeSet<_> = all_ends(&best["edges"]).into_iter().flatten().collect();
        assert_eq!(ports.len(), 2 * cables, "two cables are in a port: {report}");
        for (host, ports) in
            report["hosts"].as_array().unwrap().iter().zip(report["ports"].as_array().unwrap())
        {
            let cables =
                best["edges"].as_array().unwrap().iter().flat_map(ends).filter(|end| end[0] == *host);
            assert!(cables.count() as u64 <= ports.as_u64().unwrap(), "{report}");
        }
        let text = stdout(&tool().args(words()).output().unwrap());
        assert!(text.contains("no cabling of these ports is faster"), "{text}");
        assert_eq!(text.matches("──").count(), 2 * cables, "{text}");
        let proof = best["proof"].as_str().unwrap();
        assert!(text.contains(proof) && proof.contains("at most"), "{text}");
    }
}

/// Catches a cabling that other commands do not read, and one that is not the best when it is read again.
#[test]
fn a_cabling_that_was_written_is_read_again_and_is_the_best() {
    let folder = Folder::new();
    let file = folder.write("best.toml", "an older file");
    let made = tb5!["topo", "plan", "--ports", "3", "--hosts", "5", "--write-cabling", &file];
    assert_code(&made, 0);
    let text = stdout(&tb5!["topo", "plan", &file]);
    assert!(text.contains("this one: no cabling of these ports is faster"), "{text}");
    assert!(!text.contains("cable to move"), "{text}");
    let report = json(&tb5!["topo", "plan", &file, "--json"]);
    assert_eq!(report["best_cabling"]["moves"], serde_json::json!([]));
    assert_eq!(report["best_cabling"]["bound_seconds_per_byte"], report["bound_seconds_per_byte"]);
    assert_code(&tb5!["bench", "all-reduce", "--topology", &file, "--bytes", "4KiB"], 0);
    // The plan is for the same cabling.
    let plan = folder.path("plan");
    assert_code(&tb5!["topo", "plan", "--ports", "3", "--hosts", "5", "--out", &plan], 0);
    assert_code(&tb5!["topo", "check", &file, &plan], 0);
}

/// Catches moves that do not lead from the one cabling to the other, cables that are moved without need, and a port that two take.
#[test]
fn the_cables_to_move_lead_to_the_best_cabling() {
    let folder = Folder::new();
    let file = line_of_five(&folder);
    let report = json(&tb5!["topo", "plan", &file, "--json"]);
    let best = &report["best_cabling"];
    assert!((times(&report) - 4.0 / 7.0).abs() < 1e-6, "{report}");
    let mut cables = all_ends(
        &json(&tb5!["topo", "draw", &file, "--json"])["cables"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cable| cable["ends"].clone())
            .collect(),
    );
    let moves = best["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 3, "all four cables stay, and three are added: {report}");
    for moved in moves {
        assert!(moved["from"].is_null() || cables.remove(&ends(&moved["from"])), "{moved}");
        assert!(moved["to"].is_null() || cables.insert(ends(&moved["to"])), "{moved}");
    }
    assert_eq!(cables, all_ends(&best["edges"]));
    let text = stdout(&tb5!["topo", "plan", &file]);
    assert!(text.contains("best cabling  0.571 × the time of one 80 Gb/s cable"), "{text}");
    assert_eq!(text.matches("a further cable of 80 Gb/s").count(), 3, "{text}");
    let written = folder.path("best.toml");
    assert_code(&tb5!["topo", "plan", &file, "--write-cabling", &written], 0);
    assert_eq!(json(&tb5!["topo", "plan", &written, "--json"])["best_cabling"]["edges"], best["edges"]);
    // Twice the same pair, and nothing at the others: an end of one cable has to move.
    let double = folder.write(
        "double.toml",
        fs::read_to_string(&file).unwrap().replace("\"w:rdma_en3\", \"x:rdma_en2\"", "\"v:rdma_en3\", \"w:rdma_en4\"").replace(
            "\"x:rdma_en4\", \"y:rdma_en2\"",
            "\"w:rdma_en3\", \"y:rdma_en2\"",
        ) + "[[cable]]\nends = [\"x:rdma_en2\", \"z:rdma_en2\"]\n[[cable]]\nends = [\"x:rdma_en3\", \"z:rdma_en4\"]\n[[cable]]\nends = [\"y:rdma_en3\", \"x:rdma_en4\"]\n",
    );
    let report = json(&tb5!["topo", "plan", &double, "--json"]);
    let moves = report["best_cabling"]["moves"].as_array().unwrap();
    assert!(!moves.is_empty(), "{report}");
    for moved in moves {
        let (from, to): (BTreeSet<_>, BTreeSet<_>) =
            (ends(&moved["from"]).into_iter().collect(), ends(&moved["to"]).into_iter().collect());
        assert_eq!(from.intersection(&to).count(), 1, "one end stays in its port: {moved}");
    }
}

/// Catches a slow cable that is moved to where a fast one belongs.
#[test]
fn slow_cables_are_removed_and_not_moved() {
    let folder = Folder::new();
    let hosts: String =
        ["a", "b", "c"].iter().map(|name| format!("[[host]]\nname = \"{name}\"\nports = 2\n")).collect();
    let file = folder.write(
        "slow.toml",
        hosts
            + "[[cable]]\nends = [\"a:rdma_en2\", \"b:rdma_en2\"]\n\
               [[cable]]\nends = [\"b:rdma_en3\", \"c:rdma_en2\"]\ngbps = 40\n",
    );
    let report = json(&tb5!["topo", "plan", &file, "--json"]);
    let moves = report["best_cabling"]["moves"].as_array().unwrap();
    let removed: Vec<_> = moves.iter().filter(|moved| moved["to"].is_null()).collect();
    assert_eq!(removed.len(), 1, "{report}");
    assert_eq!(ends(&removed[0]["from"]), ends(&serde_json::json!([["b", "rdma_en3"], ["c", "rdma_en2"]])));
    let further = moves.iter().filter(|moved| moved["from"].is_null()).count();
    assert_eq!((further, moves.len()), (2, 3), "a triangle of fast cables: {report}");
    let text = stdout(&tb5!["topo", "plan", &file]);
    assert!(text.contains("nowhere: remove it") && text.contains("a further cable of 80 Gb/s"), "{text}");
}

/// Catches a cabling of one speed that is called the best one of Macs of two.
#[test]
fn the_best_cabling_of_macs_of_different_speeds_is_not_known() {
    let folder = Folder::new();
    let file = folder.write(
        "mixed.toml",
        "[[host]]\nname = \"fast\"\nmac = \"mac-mini-m4-pro\"\n[[host]]\nname = \"slow\"\nmac = \"mac-mini-m4\"\n\
         [[cable]]\nends = [\"fast:rdma_en2\", \"slow:rdma_en2\"]\n",
    );
    assert!(json(&tb5!["topo", "plan", &file, "--json"])["best_cabling"].is_null());
    let why = "the ports of some Macs are faster than those of others: their best cabling is not known";
    assert!(stdout(&tb5!["topo", "plan", &file]).contains(why));
    let refused = tb5!["topo", "plan", &file, "--write-cabling", folder.path("best.toml")];
    assert_failed(&refused, 1, &["mixed.toml: ", why]);
    assert!(!folder.path("best.toml").exists());
}

/// Catches a limit that is not said, and numbers that do not match.
#[test]
fn impossible_ports_are_a_usage_error() {
    let many = format!("--ports {}3", "3,".repeat(64));
    for (arguments, why) in [
        ("", "<SHAPE|FILE>"),
        ("--ports 0 --hosts 3", "write a whole number from 1 to 32"),
        ("--ports 33 --hosts 3", "write a whole number from 1 to 32"),
        ("--ports 3,x", "write a whole number from 1 to 32"),
        ("--ports 3,-1", "write a whole number from 1 to 32"),
        ("--ports 3", "--ports has one number: write one for each host"),
        ("--ports 3,3 --hosts 3", "--ports has 2 numbers for 3 hosts: write one for each, or one for all"),
        ("--ports 1 --hosts 3", "3 hosts with 1 ports each: 2 to 32 ports are possible"),
        ("--ports 1,1,1,2", "4 hosts with 5 ports together: each needs 1 to 32, and all together 6"),
        ("--ports 3 --hosts 1", "there is only one host"),
        ("--ports 3 --hosts 65", "write a whole number from 1 to 64"),
        (&many, "--ports has 65 numbers: cablings of at most 64 hosts are compared"),
        (
            "--ports 3 --hosts 17 --operation all-to-all",
            "17 hosts: this operation can be planned for at most 16",
        ),
        ("--ports 3 --hosts 3 --root a", "--root is for broadcast, gather, reduce and scatter"),
        ("--ports 3 --hosts 3 --root d --operation reduce", "--root d: the hosts are a, b, c"),
        ("ring:3 --ports 3", "cannot be used with"),
    ] {
        let output = tool().args(["topo", "plan"]).args(arguments.split_whitespace()).output().unwrap();
        assert_failed(&output, 2, &[why]);
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

/// Catches a file that is read and replaced, one that is written twice, and a failure that is not said.
#[test]
fn a_cabling_that_cannot_be_written_is_an_error() {
    let folder = Folder::new();
    let file = line_of_five(&folder);
    let before = fs::read(&file).unwrap();
    let same = tb5!["topo", "plan", &file, "--write-cabling", &file];
    assert_failed(&same, 2, &["is read and would be replaced"]);
    let both = tb5!["topo", "plan", &file, "--write-cabling", folder.path("x"), "--out", folder.path("x")];
    assert_failed(&both, 2, &["--out and --write-cabling are two files"]);
    assert_eq!((folder.entries(), fs::read(&file).unwrap()), (vec!["line.toml".into()], before));
    for arguments in [&["ring:4"][..], &["--ports", "3", "--hosts", "4"]] {
        let missing =
            tool().args(["topo", "plan"]).args(arguments).args(["--write-cabling", "/proc/x"]).output();
        assert_failed(&missing.unwrap(), 1, &["/proc/x: cannot be written: No such file or directory"]);
        let full = std::process::Command::new("sh")
            .args(["-c", "ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tb5"), "topo", "plan"])
            .args(arguments)
            .arg("--write-cabling")
            .arg(folder.path("best.toml"))
            .output()
            .unwrap();
        assert_failed(&full, 1, &["best.toml: cannot be written: File too large"]);
        let out =
            tool().args(["topo", "plan"]).args(arguments).args(["--write-cabling", "-"]).output().unwrap();
        assert!(
            stdout(&out).starts_with("[[host]]\n") && stderr(&out).contains("because"),
            "{}",
            stderr(&out)
        );
        assert_code(&out, 0);
    }
    assert_eq!(folder.entries(), ["line.toml"]);
}
