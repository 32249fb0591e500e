//! `tb5 copy` over cables that are pulled

use std::fs;

use super::{noise, with_source};
use crate::support::{Folder, assert_code, assert_failed, json, stdout, tool};

#[test]
fn a_copy_goes_on_when_a_cable_is_back_or_another_is_left() {
    let content = noise(4 << 20, 9);
    let folder = with_source(&content);
    let (from, to) = (folder.path("source"), folder.path("copy"));
    for (cables, fault) in [
        ("1", "at 200us a:rdma_en2 unplug; at 3ms a:rdma_en2 replug"),
        ("2", "at 100us b:rdma_en2 unplug"),
        ("3", "at 50us a:rdma_en4 unplug; at 100us a:rdma_en3 flap 1ms"),
    ] {
        let output = tb5!["copy", "--cables", cables, "--fault", fault, &from, &to];
        assert_code(&output, 0);
        assert!(fs::read(&to).unwrap() == content, "{fault}");
        let text = stdout(&output);
        assert!(text.contains(&format!(" {cables}, reconnected ")), "{text}");
    }
    let output = tb5!["copy", "--fault", "a:rdma_en2 slow 50%; at 9s a:rdma_en2 unplug", &from, &to];
    assert!(
        stdout(&output)
            .contains("at 0s a:rdma_en2 slow 50%; at 9s a:rdma_en2 unplug (did not fire during the copy)"),
        "{}",
        stdout(&output)
    );
}

/// Regression: an outage of a flap was no reason to wait, and a fault that had waited for frames in vain was listed as if it had fired.
#[test]
fn a_copy_waits_for_the_end_of_a_flap_and_names_faults_that_did_not_fire() {
    let content = noise(4 << 20, 9);
    let folder = with_source(&content);
    let (from, to) = (folder.path("source"), folder.path("copy"));
    for (fault, described) in [
        ("at 200us a:rdma_en2 flap 30s", ""),
        ("after 20 frames a:rdma_en2 flap 30s", ""),
        ("after 999999999 frames a:rdma_en2 unplug", " (did not fire during the copy)"),
    ] {
        let output = tb5!["copy", "--fault", fault, &from, &to];
        assert_code(&output, 0);
        assert!(fs::read(&to).unwrap() == content, "{fault}");
        let text = stdout(&output);
        assert!(text.contains(&format!("{fault}{described}\n")), "{text}");
    }
}

/// Regression: a tree of empty files was taken for a stalled copy: only bytes of files counted.
#[test]
fn a_copy_of_empty_files_does_not_stall() {
    let folder = Folder::new();
    folder.directory("source");
    for number in 0..2_000 {
        folder.write(&format!("source/{number}"), b"");
    }
    // A slow cable stands for more files than a test can make.
    let output = tb5![
        "copy",
        "-r",
        "--fault",
        "at 0s a:rdma_en2 delay 10ms",
        folder.path("source"),
        folder.path("copy")
    ];
    assert_code(&output, 0);
}

#[test]
fn a_copy_without_a_cable_fails() {
    let folder = with_source(&noise(4 << 20, 9));
    let output =
        tb5!["copy", "--fault", "at 200us a:rdma_en2 unplug", folder.path("source"), folder.path("copy")];
    assert_failed(
        &output,
        1,
        &["nothing has arrived for 10 s since the last fault", "such as `at 8ms a:rdma_en2 replug`"],
    );
    assert_eq!(folder.entries(), [".copy.tb5-partial", "source"]);
}

/// Regression: a cable that was pulled while both sides closed the session kept the tool busy for a day of virtual time.
#[test]
fn a_cable_that_is_pulled_at_the_end_does_not_hold_up_the_copy() {
    let content = noise(100_000, 9);
    let folder = with_source(&content);
    let copy = |fault: &[&str]| {
        let _ = fs::remove_file(folder.path("copy"));
        tool()
            .args(["copy", "--json"])
            .args(fault)
            .args(["source", "copy"])
            .current_dir(folder.path(""))
            .output()
            .unwrap()
    };
    let whole = json(&copy(&[]));
    let end = (whole["virtual_seconds"].as_f64().unwrap() * 1e6) as u64;
    let mut codes = Vec::new();
    for micros in (end - 20..end + 60).step_by(4) {
        let output = copy(&["--fault", &format!("at {micros}us a:rdma_en2 unplug")]);
        codes.push(output.status.code());
        match output.status.code() {
            Some(0) => assert!(fs::read(folder.path("copy")).unwrap() == content, "{micros} µs"),
            _ => assert_failed(&output, 1, &["nothing has arrived for 10 s since the last fault"]),
        }
    }
    assert!(codes.contains(&Some(0)) && codes.contains(&Some(1)), "{end} µs: {codes:?}");
}
