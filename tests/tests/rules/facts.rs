//! The page of all facts of the device: each fact of the list has a row, and what covers it exists

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rdma_doctor::CHECKS;
use rdma_sim::catalogue::{RuleStatus, Switch, rules};
use rdma_sim::fault::FAULTS;
use rdma_tests::files::root;

use crate::catalogue::all_tests;

/// A row of the page
#[derive(Debug)]
struct Row<'a> {
    id: &'a str,
    fact: &'a str,
    source: &'a str,
    state: &'a str,
    by: &'a str,
}

/// The page, and the list of the facts that it must have
fn texts() -> [String; 2] {
    ["docs/FACTS.md", "docs/facts.txt"].map(|name| fs::read_to_string(root().join(name)).unwrap())
}

fn rows<'a>(page: &'a str) -> Vec<Row<'a>> {
    let row = |line: &'a str| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, fact, source, state, by] = cells[..] else { panic!("five cells: {line}") };
        Row { id: id.trim_matches('`'), fact, source, state, by }
    };
    page.lines().filter(|line| line.starts_with("| `")).map(row).collect()
}

/// The facts of the list, with their names
fn facts(list: &str) -> Vec<(&str, &str)> {
    let is_fact = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
    let fact = |line| str::split_once(line, ": ").unwrap_or_else(|| panic!("a name and a fact: {line}"));
    list.lines().filter(is_fact).map(fact).collect()
}

/// Names in backticks, of a cell
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What a row may name
struct Known {
    tests: BTreeSet<String>,
}

impl Known {
    fn new() -> Self {
        Self { tests: all_tests() }
    }

    /// Whether the name is of a rule or a field that the model can switch
    fn is_switch(name: &str) -> bool {
        let mut switched = rules().filter(|rule| matches!(rule.switch, Switch::Field { .. }));
        switched.any(|rule| rule.name == name || rule.switch.name() == name)
    }

    fn is_fault(name: &str) -> bool {
        FAULTS.iter().any(|fault| fault.name == name)
    }

    /// Whether what has the name shows a fact: a test, a rule, a fault, a check of the doctor, or a scenario
    fn is_evidence(&self, name: &str) -> bool {
        self.tests.contains(name)
            || Self::is_switch(name)
            || rules().any(|rule| rule.name == name)
            || Self::is_fault(name)
            || CHECKS.iter().any(|check| check.id == name)
            || (name.starts_with("rdma-sim/scenarios/") && root().join(name).is_file())
    }

    fn exists(&self, name: &str) -> bool {
        self.is_evidence(name) || (name.contains('/') && root().join(name).is_file())
    }

    /// What is wrong with a row by itself
    fn problem(&self, row: &Row<'_>) -> Option<String> {
        let gone: Vec<_> = names(row.by).filter(|name| !self.exists(name)).collect();
        if !gone.is_empty() {
            return Some(format!("{} names what does not exist: {gone:?}", row.id));
        }
        let is_covered = match row.state {
            "modelled" => names(row.by).any(|name| self.is_evidence(name)),
            "variant" => names(row.by).any(|name| Self::is_switch(name) || Self::is_fault(name)),
            "not visible" => row.by.split_whitespace().count() > 4,
            _ => return Some(format!("{} has the unknown state {:?}", row.id, row.state)),
        };
        (!is_covered || row.source.is_empty())
            .then(|| format!("{} is {} without evidence, reason or source", row.id, row.state))
    }
}

/// What is wrong with the page, beside the list
fn problems(page: &str, list: &str, known: &Known) -> Vec<String> {
    let (rows, facts) = (rows(page), facts(list));
    let mut problems: Vec<_> = rows.iter().filter_map(|row| known.problem(row)).collect();
    let mut count: BTreeMap<_, usize> = BTreeMap::new();
    facts.iter().for_each(|(id, _)| *count.entry(*id).or_default() += 1);
    problems.extend(
        count.iter().filter(|(_, count)| **count > 1).map(|(id, _)| format!("{id} is in the list twice")),
    );
    for (id, fact) in &facts {
        match rows.iter().filter(|row| row.id == *id).collect::<Vec<_>>()[..] {
            [row] if row.fact == *fact => (),
            [row] => problems.push(format!("{id} is {fact:?} in the list and {:?} on the page", row.fact)),
            ref found => problems.push(format!("{id} has {} rows", found.len())),
        }
    }
    let unlisted = rows.iter().filter(|row| !count.contains_key(row.id));
    problems.extend(unlisted.map(|row| format!("{} is not in the list", row.id)));
    problems
}

/// Catches a fact without a row, without a state or with two, a name that is gone, and an excuse without a reason.
#[test]
fn every_fact_of_the_list_has_a_row_and_what_covers_it_exists() {
    let [page, list] = texts();
    let found = problems(&page, &list, &Known::new());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Catches a check that does not look: each change to the page or the list is one problem.
#[test]
fn a_missing_row_and_a_state_without_evidence_are_found() {
    let ([page, list], known) = (texts(), Known::new());
    let line = |id: &str| page.lines().find(|line| line.starts_with(&format!("| `{id}` |"))).unwrap();
    let without = |id: &str| page.replace(&format!("{}\n", line(id)), "");
    let with = |id: &str, from: &str, to: &str| {
        assert!(line(id).contains(from), "{id}");
        page.replace(line(id), &line(id).replace(from, to))
    };
    let [test, rule] = ["`devices_of_macbooks_are_numbered_otherwise`", "`device-per-port`"];
    let cases = [
        (without("gid-table-length"), "gid-table-length has 0 rows"),
        (page.replace(line("keys"), &format!("{0}\n{0}", line("keys"))), "keys has 2 rows"),
        (with("keys", "| `keys` | The", "| `key` | The"), "keys has 0 rows\nkey is not in the list"),
        (with("keys", "The first key", "The last key"), "on the page"),
        (with("macbook-numbers", test, "`a_test_that_no_crate_has`"), "a_test_that_no_crate_has"),
        (with("macbook-numbers", test, "`rdma-sim/scenarios/gone.toml`"), "rdma-sim/scenarios/gone.toml"),
        (with("macbook-numbers", test, "`docs/PUBLISHED.md`"), "without evidence"),
        (with("macbook-numbers", test, "the program sees it"), "without evidence"),
        (with("macbook-numbers", "| modelled |", "| variant |"), "without evidence"),
        (with("macbook-numbers", "| modelled |", "| perhaps |"), "unknown state"),
        (with("permissions", "| not visible |", "| not modelled |"), "unknown state"),
        (with("linux-drain", "`lose`, ", ""), "without evidence"),
        (with("device-per-port", &format!("| {rule} |"), "| `a-rule-that-is-gone` |"), "a-rule-that-is-gone"),
    ];
    for (changed, expected) in cases {
        let found = problems(&changed, &list, &known).join("\n");
        assert!(found.contains(expected), "{expected}: {found:?}");
    }
    let longer = format!("{list}\nnew-fact: A source adds a fact.\n");
    assert_eq!(problems(&page, &longer, &known), ["new-fact has 0 rows"]);
    let twice = format!("{list}\n{}: {}\n", facts(&list)[0].0, facts(&list)[0].1);
    assert_eq!(problems(&page, &twice, &known), [format!("{} is in the list twice", facts(&list)[0].0)]);
}

/// Catches a rule of the model that stands for no fact.
#[test]
fn every_disputed_rule_is_among_the_facts() {
    let [page, _] = texts();
    let named: BTreeSet<_> = rows(&page).iter().flat_map(|row| names(row.by)).collect();
    let lacking: Vec<_> = rules()
        .filter(|rule| rule.status == RuleStatus::Disputed)
        .map(|rule| rule.name)
        .filter(|name| !named.contains(name))
        .collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
