//! Failures that people met in the field, F1 to F83, and what stands for each of them here

mod above;
mod kinds;
mod setup;
mod traffic;

/// A field failure
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its number, after `F`
    pub number: u32,
    /// What happened
    pub title: &'static str,
    /// Who met it
    pub source: &'static str,
    /// What stands for it
    pub modelled: Modelled,
}

/// What stands for a field failure in the simulator
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Modelled {
    /// These [faults](FAULTS) bring it about
    Fault(&'static [&'static str]),
    /// Nothing, for this reason
    No(&'static str),
    /// These [rules](crate::rules::table::RULES) do, once a program gives occasion
    Rule(&'static [&'static str]),
}

/// What a fault does, for people
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FaultInfo {
    /// Its name in a plan
    pub name: &'static str,
    /// What follows the name: `N`, `TIME`, `PERCENT`, `DEVICE`, or `–` for nothing
    pub argument: &'static str,
    /// What happens
    pub says: &'static str,
    /// The test that shows it
    pub test: &'static str,
}

impl FaultInfo {
    /// The field failures that it stands for
    pub fn failures(&self) -> impl Iterator<Item = u32> {
        let stands_for = |entry: &&Entry| match entry.modelled {
            Modelled::Fault(names) => names.contains(&self.name),
            _ => false,
        };
        entries().filter(stands_for).map(|entry| entry.number)
    }
}

/// All faults, by name
pub const FAULTS: &[FaultInfo] = &kinds::KINDS;

/// All field failures, by number
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    setup::ENTRIES.iter().chain(&traffic::ENTRIES).chain(&above::ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::text;
    use crate::rules::table::RULES;
    use crate::{Fault, FaultPlan};

    #[test]
    fn every_fault_is_told_of_and_can_be_written() {
        assert_eq!(
            FAULTS.iter().map(|kind| kind.name).collect::<Vec<_>>(),
            text::names().collect::<Vec<_>>()
        );
        for FaultInfo { name, argument, .. } in FAULTS {
            let argument = match *argument {
                "–" => "",
                "N" => " 3",
                "TIME" => " 5ms",
                "PERCENT" => " 50%",
                "DEVICE" => " rdma_en3",
                other => panic!("{other}"),
            };
            let texts = ["a", "a:rdma_en2"].map(|place| format!("at 1s {place} {name}{argument}"));
            let is_one = |text: &String| text.parse::<Fault>().is_ok();
            assert_eq!(texts.iter().filter(|text| is_one(text)).count(), 1, "{texts:?}");
            assert!(
                texts.iter().any(|text| FaultPlan::from_iter(text.parse::<Fault>()).to_string() == *text)
            );
        }
    }

    #[test]
    fn every_field_failure_is_there_once_and_stands_for_something_that_exists() {
        let numbers: Vec<_> = entries().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=83).collect::<Vec<_>>());
        for Entry { number, modelled, .. } in entries() {
            let is_known = match modelled {
                Modelled::Fault(names) => names.iter().all(|name| text::names().any(|known| known == *name)),
                Modelled::Rule(names) => names.iter().all(|name| RULES.iter().any(|rule| rule.name == *name)),
                Modelled::No(reason) => !reason.is_empty(),
            };
            assert!(is_known, "F{number}: {modelled:?}");
        }
    }
}
