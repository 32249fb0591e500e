//! The commands between two machines, as the hosts of a fabric: over RDMA, by the C ABI

use std::fs;

use super::fixture::{lines_of, with_port};
use crate::support::{Folder, assert_code};

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
