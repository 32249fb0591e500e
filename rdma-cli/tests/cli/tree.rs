//! `tb5 copy -r`

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::copy::{mode, noise, set_mode, unprivileged};
use crate::support::{Folder, assert_code, assert_failed, assert_refused, json, stdout};

/// A folder with a directory called `source`, with everything that can be copied
fn with_tree() -> Folder {
    let folder = Folder::new();
    for directory in ["source", "source/a", "source/a/deep", "source/empty", "source/locked"] {
        fs::create_dir(folder.path(directory)).unwrap();
    }
    folder.write("source/a/deep/file", noise(1 << 20, 1));
    folder.write("source/a.txt", b"text");
    folder.write("source/nothing", b"");
    folder.write("source/locked/inside", b"in a directory that nobody writes");
    fs::write(folder.path("source").join(OsStr::from_bytes(b"not \xff text")), b"name").unwrap();
    symlink("a.txt", folder.path("source/link")).unwrap();
    symlink("../../nowhere", folder.path("source/a/dangling")).unwrap();
    symlink("a", folder.path("source/directory-link")).unwrap();
    set_mode(folder.path("source/a.txt"), 0o640);
    set_mode(folder.path("source/nothing"), 0o755);
    set_mode(folder.path("source/empty"), 0o700);
    set_mode(folder.path("source/locked"), 0o555);
    folder
}

/// Path, mode and content of everything below `root`; links with their targets
fn listed(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let kind = fs::symlink_metadata(&path).unwrap();
        let (mode, content) = if kind.is_symlink() {
            (0, fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
        } else if kind.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            (mode(&path), Vec::new())
        } else {
            (mode(&path), fs::read(&path).unwrap())
        };
        found.push((path.strip_prefix(root).unwrap().to_owned(), mode, content));
    }
    found.sort();
    found
}

/// Regression: a file with the name of the rest of another one was continued as that, and was missing in the copy.
#[test]
fn a_file_with_the_name_of_a_rest_is_copied() {
    let folder = Folder::new();
    folder.directory("source");
    for (name, content) in
        [("m.bin", "1"), (".m.bin.tb5-partial", "2"), ("-x", "3"), (".-x.tb5-partial", "4")]
    {
        folder.write(&format!("source/{name}"), content);
    }
    let (from, to) = (folder.path("source"), folder.path("copy"));
    for _ in 0..2 {
        assert_eq!(json(&tb5!["copy", "--json", "-r", &from, &to])["files"], 4);
        assert_eq!(listed(&from), listed(&to));
    }
}

#[test]
fn a_directory_is_copied_with_everything_in_it() {
    let folder = with_tree();
    let (from, to) = (folder.path("source"), folder.path("copy"));
    let report = json(&tb5!["copy", "--json", "-r", &from, &to]);
    assert!(listed(&from) == listed(&to), "{:?}\n{:?}", listed(&from), listed(&to));
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!([count("files"), count("directories"), count("links")], [5, 5, 3]);
    assert_eq!(count("bytes"), (1 << 20) + 4 + 33 + 4);

    // Again: nothing is copied twice, and what else is there stays. Bits that are not copied count for nothing.
    set_mode(from.join("nothing"), 0o4755);
    set_mode(to.join("locked"), 0o755);
    fs::write(to.join("other"), b"stays").unwrap();
    fs::write(to.join("a.txt"), b"TEXT").unwrap();
    let again = json(&tb5!["copy", "--json", "--recursive", &from, &to]);
    assert_eq!(again["resumed_bytes"], count("bytes") - 4);
    assert_eq!(again["blake3"], report["blake3"]);
    assert_eq!(fs::read(to.join("a.txt")).unwrap(), b"text");
    assert_eq!(fs::read(to.join("other")).unwrap(), b"stays");

    let text = stdout(&tb5!["copy", "-r", &from, folder.path("second")]);
    assert!(text.contains("(1048617 bytes) in 5 files, 5 directories, 3 links\n"), "{text}");
}

#[test]
fn an_interrupted_copy_of_a_directory_is_continued() {
    let folder = Folder::new();
    fs::create_dir(folder.path("source")).unwrap();
    for name in ["1", "2", "3"] {
        folder.write(&format!("source/{name}"), noise(2 << 20, 7));
    }
    let (from, to) = (folder.path("source"), folder.path("copy"));
    assert_failed(
        &tb5!["copy", "-r", "--fault", "at 400us a:rdma_en2 unplug", &from, &to],
        1,
        &["copy/.2.tb5-partial: copy again"],
    );
    let report = json(&tb5!["copy", "--json", "-r", &from, &to]);
    let resumed = report["resumed_bytes"].as_u64().unwrap();
    assert!(resumed > 2 << 20 && resumed < 4 << 20, "{resumed}");
    assert!(listed(&from) == listed(&to));
}

/// Regression: directories kept the write permission that they have while they are written, and the next copy left it so.
///
/// Catches a mode that prevents the continuation, too: the tool runs without the privileges of root.
#[test]
fn directories_have_their_modes_after_an_interrupted_copy_and_after_the_next_one() {
    let folder = Folder::new();
    for directory in ["source", "source/1", "source/2"] {
        folder.directory(directory);
    }
    for name in ["1/file", "2/file", "3"] {
        folder.write(&format!("source/{name}"), noise(2 << 20, 8));
    }
    let locked = ["1", "2", ""];
    for directory in locked {
        set_mode(folder.path("source").join(directory), 0o555);
    }
    set_mode(folder.directory("inner"), 0o777);
    let (from, to) = (folder.path("source"), folder.path("inner/copy"));
    let copy = |options: &[&str]| {
        let output = unprivileged(&folder).args(["copy", "-r"]).args(options).args([&from, &to]).output();
        // No other user can remove what is in a locked directory.
        output.unwrap()
    };
    assert_failed(
        &copy(&["--fault", "at 400us a:rdma_en2 unplug"]),
        1,
        &["copy/2/.file.tb5-partial: copy again to continue"],
    );
    for directory in locked {
        assert_eq!(mode(to.join(directory)), 0o555, "{directory}");
    }
    for _ in 0..2 {
        assert_code(&copy(&[]), 0);
        assert!(listed(&from) == listed(&to));
    }

    // What the user has locked stays so.
    set_mode(folder.path("source/2"), 0o755);
    fs::remove_file(from.join("2/file")).unwrap();
    folder.write("source/2/file", b"another");
    assert_refused(&copy(&[]), &to.join("2/file"), "cannot be written: Permission denied");
    assert_eq!(mode(to.join("2")), 0o555);
    for directory in locked {
        set_mode(from.join(directory), 0o755);
        set_mode(to.join(directory), 0o755);
    }
}

#[test]
fn a_directory_needs_the_option_and_a_file_does_not_mind_it() {
    let folder = with_tree();
    let (from, to) = (folder.path("source"), folder.path("copy"));
    assert_refused(&tb5!["copy", &from, &to], &from, "is a directory: copy it with -r");
    assert_code(&tb5!["copy", "-r", from.join("a.txt"), &to], 0);
    assert_eq!(fs::read(&to).unwrap(), b"text");
}

#[test]
fn destinations_that_cannot_be_are_refused() {
    let folder = with_tree();
    let from = folder.path("source");
    folder.write("file", b"");
    for (to, why) in [
        ("source", "is in the directory that is copied"),
        ("source/a/copy", "is in the directory that is copied"),
        ("file", "is not a directory"),
        ("missing/copy", "cannot be created: there is no folder "),
    ] {
        assert_refused(&tb5!["copy", "-r", &from, folder.path(to)], &folder.path(to), why);
    }
    folder.pipe("source/pipe");
    let output = tb5!["copy", "-r", &from, folder.path("copy")];
    let why = "is not a regular file, directory or symbolic link";
    assert_refused(&output, &folder.path("source/pipe"), why);
    assert!(!folder.path("copy").exists());
}

#[test]
fn nothing_is_written_through_a_link_in_the_destination() {
    let folder = with_tree();
    let (outside, to) = (folder.directory("outside"), folder.directory("copy"));
    symlink(&outside, to.join("a")).unwrap();
    let output = tb5!["copy", "-r", folder.path("source"), &to];
    assert_refused(&output, &to.join("a"), "is not a directory: remove it first");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}
