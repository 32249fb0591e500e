//! The catalogue as a page for people: `MODEL.md`

use std::fmt::Write;

use super::failures::{FAILURES, Modelled};
use super::rules::{RuleStatus, SECTIONS};
use super::switches::switches;
use crate::fault::FAULTS;
use crate::model::Model;

/// The text of `MODEL.md`
pub fn model_md() -> String {
    let mut md = include_str!("head.md").to_owned();
    rules(&mut md);
    faults(&mut md);
    failures(&mut md);
    profiles(&mut md);
    md.push('\n');
    md.push_str(include_str!("limits.md"));
    md.push('\n');
    md.push_str(include_str!("sources.md"));
    md
}

fn line(md: &mut String, cells: &[&str]) {
    let _ = writeln!(md, "| {} |", cells.join(" | "));
}

fn table(md: &mut String, head: &[&str]) {
    line(md, head);
    line(md, &vec!["---"; head.len()]);
}

/// As code, unless there is nothing
fn code(text: &str) -> String {
    if text == "–" { text.to_owned() } else { format!("`{text}`") }
}

fn rules(md: &mut String) {
    md.push_str("\n## Rules\n\n");
    let statuses = [
        (RuleStatus::Documented, "Apple, or the vendor, states it"),
        (RuleStatus::Measured, "a source measured it, and says how"),
        (RuleStatus::Reported, "a report from the field, or programs that rely on it"),
        (RuleStatus::Disputed, "sources disagree; the default comes first"),
        (RuleStatus::Assumed, "no source states it; it was chosen"),
    ];
    for (status, meaning) in statuses {
        let _ = writeln!(md, "* *{status}*: {meaning}");
    }
    md.push_str(
        "\nThe switch is a field of the model, with its default, or the fault that brings the rule about.\n",
    );
    let model = Model::tb5();
    for (title, rules) in SECTIONS {
        let _ = writeln!(md, "\n### {title}\n");
        table(md, &["Rule", "What happens", "Status", "Source", "Switch", "Default", "Test"]);
        for rule in *rules {
            let [name, switch, default, test] =
                [rule.name, &rule.switch.name(), &rule.switch.value(&model), rule.test].map(code);
            line(
                md,
                &[&name, rule.description, &rule.status.to_string(), rule.source, &switch, &default, &test],
            );
        }
    }
}

fn faults(md: &mut String) {
    md.push_str(
        "\n## Faults\n\nWritten as `at TIME TARGET NAME ARGUMENT` or `after N frames TARGET NAME ARGUMENT`. `tb5 run --fault` \
         and `tb5 fabric NAME` take the same text, in which the time may be left out: such a fault fires at once.\n\n",
    );
    table(md, &["Fault", "Argument", "What happens", "Stands for", "Test"]);
    for info in FAULTS {
        let stands_for = FAILURES.iter().filter(|failure| match failure.modelled {
            Modelled::Fault(names) | Modelled::Symptom { by: names, .. } => names.contains(&info.name),
            Modelled::NotVisible(_) | Modelled::Rule(_) | Modelled::Test(_) => false,
        });
        let mut numbers: Vec<_> = stands_for.map(|failure| format!("F{}", failure.number)).collect();
        if numbers.is_empty() {
            numbers.push("–".to_owned());
        }
        line(md, &[&code(info.name), info.argument, info.description, &numbers.join(", "), &code(info.test)]);
    }
}

fn failures(md: &mut String) {
    md.push_str(
        "\n## Field failures\n\nEach has the fault or the rule that causes it, or the tests of the part of this project that treats it. \
         Or it is *not visible* over the verbs, for the reason given. Where the cause is not known, faults or rules show the *symptom* \
         that was reported, and say nothing of the cause.\n\n",
    );
    table(md, &["Number", "What happened", "Source", "Here"]);
    for failure in FAILURES {
        let all = |kind: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| code(name)).collect();
            format!("{kind} {}", names.join(", "))
        };
        let by = match failure.modelled {
            Modelled::Fault(names) => all("fault", names),
            Modelled::Rule(names) => all("rule", names),
            Modelled::Test(names) => all("test", names),
            Modelled::NotVisible(reason) => format!("not visible: {reason}"),
            Modelled::Symptom { by, shown, test } => {
                format!(
                    "{}: the cause is not known. The symptom: {shown} ({})",
                    all("symptom by", by),
                    code(test)
                )
            }
        };
        line(md, &[&format!("F{}", failure.number), failure.title, failure.source, &by]);
    }
}

fn profiles(md: &mut String) {
    md.push_str("\n## Profiles\n\nValues that differ from `tb5`, the default, are bold.\n\n");
    let models = Model::PROFILES.map(|name| switches(&Model::profile(name).expect("the profile exists")));
    let head: Vec<_> = ["Switch"].into_iter().map(str::to_owned).chain(Model::PROFILES.map(code)).collect();
    table(md, &head.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, (name, default)) in models[0].iter().enumerate() {
        let cells = models.each_ref().map(|model| {
            let (_, value) = &model[row];
            if value == default { value.clone() } else { format!("**{value}**") }
        });
        let row: Vec<_> = [code(name)].into_iter().chain(cells).collect();
        line(md, &row.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::{Switch, rules};
    use super::*;

    fn is_fault(name: &str) -> bool {
        FAULTS.iter().any(|info| info.name == name)
    }

    #[test]
    fn rules_have_unique_names_and_switches_that_exist() {
        for rule in rules() {
            if let Switch::Fault(fault) = rule.switch {
                assert!(is_fault(fault), "{}: no fault is called {fault}", rule.name);
            }
            let can_be_decided = rule.switch.name().starts_with("Rules::");
            assert!(rule.status != RuleStatus::Disputed || can_be_decided, "{} has two variants", rule.name);
            assert_eq!(rules().filter(|other| other.name == rule.name).count(), 1, "{}", rule.name);
        }
        // Limits are in several rules; how simulated tasks call verbs is no property of the device.
        let is_exempt = |name: &str| name.starts_with("Caps::") || name == "Timing::verbs_block_tasks";
        for (name, _) in switches(&Model::tb5()).iter().filter(|(name, _)| !is_exempt(name)) {
            assert!(rules().any(|rule| rule.switch.name() == *name), "{name} belongs to no rule");
        }
    }

    #[test]
    fn field_failures_are_numbered_and_name_faults_and_rules_that_exist() {
        for (failure, number) in FAILURES.iter().zip(1..) {
            assert_eq!(failure.number, number);
            let is_known = match failure.modelled {
                Modelled::Fault(names) => names.iter().all(|name| is_fault(name)),
                Modelled::Rule(names) => names.iter().all(|name| rules().any(|rule| rule.name == *name)),
                // A test of all crates finds the tests.
                Modelled::Test(names) => !names.is_empty(),
                Modelled::Symptom { by, .. } => {
                    !by.is_empty()
                        && by.iter().all(|name| is_fault(name) || rules().any(|rule| rule.name == *name))
                }
                Modelled::NotVisible(reason) => !reason.is_empty(),
            };
            assert!(is_known, "{failure:?}");
        }
        assert_eq!(FAILURES.len(), 83);
    }
}
