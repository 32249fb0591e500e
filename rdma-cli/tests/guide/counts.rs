//! Counts that sentences state, beside what they count

use std::fs;

use rdma_doctor::FIELD_FAILURES;

use crate::book::root;

/// A phrase with N for its number, and the number
pub(crate) fn counts() -> [(&'static str, usize); 6] {
    let scenarios = fs::read_dir(root().join("rdma-sim/scenarios")).expect("the scenarios").flatten();
    let scenarios = scenarios.filter(|file| file.path().extension().is_some_and(|of| of == "toml")).count();
    let model = fs::read_to_string(root().join("rdma-sim/MODEL.md")).expect("the model");
    let reported = model.lines().filter(|line| {
        let number = line.strip_prefix("| F").and_then(|rest| rest.split_once(' '));
        number.is_some_and(|(number, _)| number.bytes().all(|digit| digit.is_ascii_digit()))
    });
    let reported = reported.count();
    [
        ("[N scenarios](", scenarios),
        ("and N examples", scenarios),
        ("lists all N by their symptoms", FIELD_FAILURES.len()),
        ("; N failures from", FIELD_FAILURES.len()),
        ("lists N failures", reported),
        ("(F1 to FN)", reported),
    ]
}

/// The numbers with which a text has a phrase
pub(crate) fn stated(text: &str, phrase: &str) -> Vec<usize> {
    let (before, after) = phrase.split_once('N').expect("N stands for the number");
    let rests = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    let numbers = rests.filter_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        rest[end..].starts_with(after).then(|| rest[..end].parse().ok())?
    });
    numbers.collect()
}
