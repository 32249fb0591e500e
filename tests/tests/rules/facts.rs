//! The page of all facts of the device: each is covered, and what covers it exists

use std::collections::BTreeSet;
use std::fs;

use rdma_sim::catalogue::{RuleStatus, rules};
use rdma_sim::fault::FAULTS;
use rdma_tests::files::{root, rust_files};

use crate::catalogue::tests_in;

/// Names in backticks, of a cell
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Catches a fact without a state, a name that is gone, and an excuse without a reason.
#[test]
fn every_fact_of_the_device_is_covered_or_says_why_not() {
    let page = fs::read_to_string(root().join("docs/FACTS.md")).unwrap();
    let rows: Vec<Vec<_>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Fact ") && !line.starts_with("| ---"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 80, "{}", rows.len());
    let sources = rust_files(&root()).into_iter().map(|file| fs::read_to_string(file).unwrap());
    let tests: BTreeSet<_> = sources.flat_map(|text| tests_in(&text).collect::<Vec<_>>()).collect();
    let exists = |name: &str| {
        rules().any(|rule| rule.name == name || rule.switch.name() == name)
            || FAULTS.iter().any(|fault| fault.name == name)
            || tests.contains(name)
            || (name.contains('/') && root().join(name).is_file())
    };
    let mut wrong = Vec::new();
    for row in &rows {
        let [fact, source, state, by] = row[..] else { panic!("four cells: {row:?}") };
        let is_named = names(by).next().is_some() && names(by).all(&exists);
        let is_covered = match state {
            "modelled" | "variant" => is_named,
            "not visible" | "not modelled" => by.split_whitespace().count() > 4,
            _ => false,
        };
        if !is_covered || fact.is_empty() || source.is_empty() {
            let gone: Vec<_> = names(by).filter(|name| !exists(name)).collect();
            wrong.push(format!("{fact}: {state}, not found: {gone:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Catches a rule of the model that stands for no fact.
#[test]
fn every_disputed_rule_is_among_the_facts() {
    let page = fs::read_to_string(root().join("docs/FACTS.md")).unwrap();
    let named: BTreeSet<_> = names(&page).collect();
    let lacking: Vec<_> = rules()
        .filter(|rule| rule.status == RuleStatus::Disputed)
        .map(|rule| rule.name)
        .filter(|name| !named.contains(name))
        .collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
