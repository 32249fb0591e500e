//! The catalogue of rules and faults: complete, and equal to the committed `MODEL.md`

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rdma_sim::catalogue::{model_md, rules};
use rdma_sim::fault::FAULTS;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests are a folder of the repository")
        .to_owned()
}

/// The names of all tests in the files under `folder`
fn tests_under(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_under(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let functions = text.split("#[test]").skip(1).filter_map(|rest| {
                let name = rest.split_once("fn ")?.1;
                Some(name.split_once('(')?.0.to_owned())
            });
            names.extend(functions);
        }
    }
}

#[test]
fn every_rule_and_every_fault_has_a_test_that_exists() {
    let mut names = BTreeSet::new();
    for folder in ["tests/tests", "rdma-sim/src"] {
        tests_under(&repository().join(folder), &mut names);
    }
    assert!(names.len() > 100, "{names:?}");
    let named = rules().map(|rule| (rule.name, rule.test));
    for (name, test) in named.chain(FAULTS.iter().map(|info| (info.name, info.test))) {
        assert!(names.contains(test), "{name} names the test {test}, which does not exist");
    }
}

#[test]
fn model_md_is_made_from_the_tables() {
    let path = repository().join("rdma-sim/MODEL.md");
    let current = model_md();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let golden = fs::read_to_string(&path).expect("MODEL.md is committed");
    assert!(golden == current, "MODEL.md differs from the tables: run this test with UPDATE_GOLDEN=1");
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
