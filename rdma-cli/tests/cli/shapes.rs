//! The shape of what each command prints: text as a snapshot, JSON as the keys and types that the guide lists
//!
//! Figures are left out: they change with the model, and other tests compare them. After a change that is meant, run with
//! `UPDATE_GOLDEN=1`.

mod page;
mod samples;
mod types;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

use self::page::{SECTIONS, difference, page};
use self::samples::{COMMANDS, Files, JSON_COMMANDS, JSON_PEER_COMMANDS, PEER_COMMANDS};
use self::types::Sources;
use crate::support::{assert_code, stderr, stdout};

/// The lines of a snapshot, at most.
const LINES: usize = 40;

/// Text without figures, paths and widths of columns
fn masked(text: &str, files: &Files) -> String {
    let folder = files.0.path("");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = text
        .replace(&*repository.to_string_lossy(), "REPOSITORY")
        .replace(&*folder.to_string_lossy(), "FOLDER/");
    let word = |word: &str| {
        let is_digest = word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digest { "DIGEST".to_owned() } else { without_numbers(word) }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().take(LINES).map(line).collect();
    lines.join("\n") + "\n"
}

/// A word in which each number is 0
fn without_numbers(word: &str) -> String {
    let mut out = String::new();
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(if letter.is_ascii_digit() { '0' } else { letter });
        while letter.is_ascii_digit()
            && letters.next_if(|next| next.is_ascii_digit() || *next == '.').is_some()
        {}
    }
    out
}

fn snapshot(name: &str) -> PathBuf {
    let name = name.trim_end_matches(':').to_lowercase().replace(' ', "-");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/snapshots/{name}.txt"))
}

fn golden(path: PathBuf, found: &str) -> Result<(), String> {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let stated = fs::read_to_string(&path).unwrap_or_default();
    if stated == found { Ok(()) } else { Err(format!("{}:\n{found}instead of\n{stated}", path.display())) }
}

/// Catches a row that is lost, a word that changes, and a command without a snapshot.
#[test]
fn the_text_of_each_command_is_as_its_snapshot() {
    let files = Files::new();
    let mut wrong = Vec::new();
    for (name, command, code) in COMMANDS {
        let output = files.run(command, &[]);
        assert_code(&output, code);
        assert_eq!(stderr(&output), "", "{name}");
        wrong.extend(golden(snapshot(name), &masked(&stdout(&output), &files)).err());
    }
    for (name, command) in PEER_COMMANDS {
        wrong.extend(golden(snapshot(name), &masked(&command(&[]), &files)).err());
    }
    assert!(wrong.is_empty(), "run with UPDATE_GOLDEN=1 if it should change\n{}", wrong.join("\n"));
}

/// Catches a remark, a backend or progress beside the results that `--quiet` asks for.
#[test]
fn quiet_leaves_results_alone() {
    let files = Files::new();
    for (name, command, code) in COMMANDS {
        let quiet = files.run(command, &["-q"]);
        assert_code(&quiet, code);
        let text = stdout(&quiet);
        // Pages that were written are the result.
        let has_result = !text.is_empty() || name == "man --out";
        assert!(!text.contains("backend:") && has_result, "{name}: {text}");
        assert_eq!(stderr(&quiet), "", "{name}");
    }
    assert_code(&files.run("ping --count 1", &["-q", "-v"]), 2);
}

/// The longest section whose name a sample begins with: what follows says how the sample differs from others
fn section_of(name: &str) -> &'static str {
    let sections = SECTIONS.into_iter().map(|(section, _)| section);
    let found = sections.filter(|section| {
        name.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(" -"))
    });
    found
        .max_by_key(|section| section.len())
        .unwrap_or_else(|| panic!("{name}: the page has no such section"))
}

/// Catches a key that is renamed, lost or of another type, one that the guide does not list, and a type that no command is listed with.
#[test]
fn the_guide_lists_the_keys_of_each_type() {
    let sources = Sources::read();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/json.md");
    if let Err(error) = golden(path, &page(&sources)) {
        panic!("run with UPDATE_GOLDEN=1 if it should change\n{error}");
    }
    assert_eq!(sources.unreached(), [""; 0], "types that no section has");
}

/// Catches output that is not as the types say, and a section that no command is compared with.
#[test]
fn the_json_of_each_command_has_the_keys_of_its_type() {
    let (files, sources) = (Files::new(), Sources::read());
    let mut seen = BTreeSet::new();
    let mut check = |name: &str, printed: &str| {
        assert_eq!(printed.lines().count(), 1, "{name}: {printed}");
        let value: Value =
            serde_json::from_str(printed).unwrap_or_else(|error| panic!("{name}: {error}: {printed}"));
        let section = section_of(name);
        let (_, path) = SECTIONS.into_iter().find(|(name, _)| *name == section).expect("found above");
        assert_eq!(difference(&value, &sources.of(path), ""), None, "{name}");
        seen.insert(section);
    };
    for (name, command, code) in COMMANDS.into_iter().chain(JSON_COMMANDS) {
        let output = files.run(command, &["--json"]);
        assert_code(&output, code);
        check(name, &stdout(&output));
    }
    for (name, command) in PEER_COMMANDS.into_iter().chain(JSON_PEER_COMMANDS) {
        check(name, &command(&["--json"]));
    }
    let unseen: Vec<_> =
        SECTIONS.iter().map(|(section, _)| section).filter(|name| !seen.contains(*name)).collect();
    assert!(!cfg!(target_os = "linux") || unseen.is_empty(), "no sample of {unseen:?}");
}
