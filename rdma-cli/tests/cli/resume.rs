//! `tb5 copy` after a copy that was interrupted

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::copy::{mode, noise, set_mode, with_source};
use crate::support::{Folder, assert_code, assert_failed, json, stdout};

const LEN: usize = 4 << 20;
const PARTIAL: &str = ".copy.tb5-partial";

/// Copies until the cable is pulled for ever, and returns how much is left of it
fn interrupt(folder: &Folder) -> usize {
    let output =
        tb5!["copy", "--fault", "at 300us a:rdma_en2 unplug", folder.path("source"), folder.path("copy")];
    let rest = folder.path(PARTIAL);
    let kept = format!("what has arrived is in {}: copy again to continue", rest.display());
    assert_failed(&output, 1, &[&kept]);
    assert!(!folder.path("copy").exists());
    let len = fs::read(rest).unwrap().len();
    assert!(len > 1 << 20 && len < LEN, "{len}");
    len
}

fn copy(folder: &Folder) -> Value {
    json(&tb5!["copy", "--json", folder.path("source"), folder.path("copy")])
}

#[test]
fn an_interrupted_copy_is_continued() {
    let content = noise(LEN, 1);
    let folder = with_source(&content);
    set_mode(folder.path("source"), 0o640);
    let len = interrupt(&folder);
    assert_eq!(mode(folder.path(PARTIAL)), 0o640);
    let report = copy(&folder);
    assert_eq!((&report["resumed_bytes"], &report["discarded_bytes"]), (&len.into(), &0.into()));
    assert_eq!(report["blake3"], blake3::hash(&content).to_string());
    assert!(fs::read(folder.path("copy")).unwrap() == content);
    assert_eq!(mode(folder.path("copy")), 0o640);
    assert_eq!(folder.entries(), ["copy", "source"]);
}

#[test]
fn a_source_that_has_changed_is_copied_anew() {
    for (from, len) in [(noise(LEN, 2), LEN), (noise(LEN, 1)[..1000].to_vec(), 1000)] {
        let folder = with_source(&noise(LEN, 1));
        let kept = interrupt(&folder);
        folder.write("source", &from);
        let output = tb5!["copy", folder.path("source"), folder.path("copy")];
        let text = stdout(&output);
        assert_code(&output, 0);
        let is_said =
            text.contains(" discarded ") && text.contains(" of an earlier copy, which was of another source");
        assert!(is_said, "{kept} of {len}: {text}");
        assert!(fs::read(folder.path("copy")).unwrap() == from);
        assert_eq!(folder.entries(), ["copy", "source"]);
    }
}

/// A file that another user has put there, or a link, is neither used nor changed.
#[test]
fn what_is_no_rest_of_a_copy_is_left_alone() {
    let content = noise(100_000, 1);
    let folder = with_source(&content);
    folder.write("other", &content[..5000]);
    symlink("other", folder.path(PARTIAL)).unwrap();
    assert_eq!(copy(&folder)["resumed_bytes"], 0);
    assert!(fs::read(folder.path("copy")).unwrap() == content);
    assert_eq!(fs::read(folder.path("other")).unwrap(), &content[..5000]);
    assert_eq!(folder.entries(), [PARTIAL, "copy", "other", "source"]);
}

/// A file with another name would be changed under that name, too.
#[test]
fn a_rest_with_two_names_is_left_alone() {
    let content = noise(100_000, 1);
    let folder = with_source(&content);
    folder.write("other", &content[..5000]);
    fs::hard_link(folder.path("other"), folder.path(PARTIAL)).unwrap();
    assert_eq!(copy(&folder)["resumed_bytes"], 0);
    assert_eq!(fs::read(folder.path("other")).unwrap(), &content[..5000]);
}

#[test]
fn a_rest_that_is_complete_is_only_verified() {
    let content = noise(100_000, 1);
    let folder = with_source(&content);
    folder.write(PARTIAL, &content);
    assert_eq!(copy(&folder)["resumed_bytes"], 100_000);
    assert!(fs::read(folder.path("copy")).unwrap() == content);
    assert_eq!(folder.entries(), ["copy", "source"]);
}
