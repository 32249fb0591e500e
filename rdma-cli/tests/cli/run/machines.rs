//! The commands between two machines, as the hosts of a fabric: over RDMA, by the C ABI

use std::fs;

use super::fixture::{Run, lines_of, with_port};
use crate::support::{Folder, assert_code, eventually};

/// Catches options that a device refuses, and a copy that goes over TCP because of them.
#[test]
fn a_file_is_copied_over_every_kind_of_thunderbolt_device() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| ((at * 31) >> 7) as u8).collect();
    for profile in ["tb5", "tb5-macos-26.2", "tb5-strict", "tb5-cpu"] {
        let folder = Folder::new();
        let (file, inbox) = (folder.path("file"), folder.path("inbox"));
        fs::write(&file, &content).unwrap();
        fs::create_dir(&inbox).unwrap();
        let [file, into] = [&file, &inbox].map(|path| path.to_str().unwrap());
        let tool = env!("CARGO_BIN_EXE_tb5");
        let words = [
            &[tool, "copy", "--port", "PORT", "--listen", into, ":"][..],
            &[tool, "copy", "--port", "PORT", "--json", file, "127.0.0.1:"],
        ];
        let words = words.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let output = with_port(&["--profile", profile], &words).output();
        assert_code(&output, 0);
        let report: serde_json::Value =
            serde_json::from_str(&lines_of(&output.stdout, "b").concat()).unwrap();
        assert_eq!(report["backend"], "rdma", "{profile}: {report}");
        assert!(fs::read(inbox.join("file")).unwrap() == content, "{profile}");
    }
}

/// A copy of 20 MB over RDMA alone into `inbox`; its cable has a fault after 8 MB
fn disturbed_copy(folder: &Folder, fault: &str) -> Run {
    let (file, inbox) = (folder.write("file", vec![7; 20 << 20]), folder.directory("inbox"));
    let [file, into] = [&file, &inbox].map(|path| path.to_str().unwrap());
    let tool = env!("CARGO_BIN_EXE_tb5");
    let words = [
        &[tool, "copy", "--carrier", "rdma", "--port", "PORT", "--listen", into, ":"][..],
        &[tool, "copy", "--carrier", "rdma", "--port", "PORT", file, "127.0.0.1:"],
    ];
    let words = words.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    with_port(&["--fault", &format!("after 2000 frames b:rdma_en2 {fault}")], &words)
}

/// Regression: while no cable worked, both sides waited and said nothing.
#[test]
fn an_outage_that_lasts_is_said_by_both_sides() {
    let folder = Folder::new();
    let output = disturbed_copy(&folder, "flap 5s").output();
    assert_code(&output, 0);
    for host in ["a", "b"] {
        let said = lines_of(&output.stderr, host).concat();
        for part in ["no path to 127.0.0.1", "works: waiting until a cable is back", "works again"] {
            assert!(said.contains(part), "{host}: {said}");
        }
    }
}

/// Regression: the farewell to a peer without a path took as long as `tb5 run` waits before it kills, and the rest was lost.
#[test]
fn the_rest_of_a_copy_is_kept_at_once_while_no_cable_works() {
    let folder = Folder::new();
    let mut run = disturbed_copy(&folder, "unplug");
    let running = run.start();
    let arrived = || {
        let files = fs::read_dir(folder.path("inbox")).unwrap().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>()
    };
    eventually(|| {
        let before = arrived();
        std::thread::sleep(std::time::Duration::from_millis(500));
        before > 0 && arrived() == before
    });
    running.signal(libc::SIGINT);
    assert_code(&running.finish(), 130);
    let rest = folder.path("inbox/.file.tb5-partial");
    assert!(
        fs::metadata(&rest).is_ok_and(|rest| rest.len() > 1 << 20),
        "{:?}",
        fs::read_dir(folder.path("inbox")).unwrap().collect::<Vec<_>>()
    );
}
