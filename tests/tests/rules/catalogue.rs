//! The catalogue of rules and faults: complete, and equal to the committed `MODEL.md`

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use rdma_sim::catalogue::{FAILURES, Modelled, model_md, rules};
use rdma_sim::fault::FAULTS;
use rdma_tests::files::{assert_golden, root, rust_files};

use crate::counting;

/// The names of the tests in a file
pub(crate) fn tests_in(text: &str) -> impl Iterator<Item = String> {
    text.split("#[test]")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("fn ")?.1.split_once('(')?.0.to_owned()))
}

/// The names of the tests of all crates
pub(crate) fn all_tests() -> BTreeSet<String> {
    let texts = rust_files(&root()).into_iter().map(|file| fs::read_to_string(file).unwrap());
    texts.flat_map(|text| tests_in(&text).collect::<Vec<_>>()).collect()
}

#[test]
fn every_rule_and_every_fault_has_a_test_that_exists() {
    let mut names = BTreeSet::new();
    for folder in ["tests/tests", "rdma-sim/src"] {
        for file in rust_files(&root().join(folder)) {
            names.extend(tests_in(&fs::read_to_string(file).unwrap()));
        }
    }
    assert!(names.len() > 100, "{names:?}");
    let named = rules().map(|rule| (rule.name, rule.test));
    for (name, test) in named.chain(FAULTS.iter().map(|info| (info.name, info.test))) {
        assert!(names.contains(test), "{name} names the test {test}, which does not exist");
    }
}

/// Catches a failure of the field that names a test which no crate has.
#[test]
fn tests_that_stand_for_field_failures_exist() {
    let names = all_tests();
    for failure in FAILURES {
        let tests = match &failure.modelled {
            Modelled::Test(tests) => tests,
            Modelled::Symptom { test, .. } => std::slice::from_ref(test),
            _ => continue,
        };
        let gone: Vec<_> = tests.iter().filter(|test| !names.contains(**test)).collect();
        assert!(gone.is_empty(), "F{}: {gone:?}", failure.number);
    }
}

#[test]
fn model_md_is_made_from_the_tables() {
    assert_golden("rdma-sim/MODEL.md", &model_md());
}

#[test]
fn every_cell_of_the_tables_is_filled_and_fits_a_row() {
    for rule in rules() {
        for cell in [rule.name, rule.description, rule.source, rule.test] {
            assert!(!cell.is_empty() && !cell.contains(['|', '\n']) && !cell.contains("  "), "{rule:?}");
        }
        assert!(rule.description.ends_with('.'), "{}", rule.description);
    }
}

/// Catches a rule that is called counted and that the simulator counts nowhere, or only where no device comes.
#[test]
fn every_rule_is_counted_where_the_device_follows_it_or_says_why_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut tests = Command::new(std::env::current_exe().unwrap());
    let output = tests.args(["--skip", "catalogue::"]).env(counting::FILE, file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = fs::read_to_string(file.path()).unwrap();
    let exercised: BTreeSet<_> = text.lines().collect();
    let counted = rules().filter(|rule| rule.uncounted.is_none()).map(|rule| rule.name);
    let never: Vec<_> = counted.filter(|name| !exercised.contains(name)).collect();
    assert_eq!(never, [""; 0], "counted nowhere, or in no test of a rule");
}
