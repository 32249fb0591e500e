//! The catalogue as a page for people: `MODEL.md`

use std::fmt::Write;

use super::failures::{FAILURES, Modelled};
use super::rules::{RuleStatus, SECTIONS};
use super::switches::switches;
use crate::fault::FAULTS;
use crate::model::Model;

const HEAD: &str = "\
# The model

How the simulator models a Thunderbolt 5 Mac. This file is generated from the tables in `src/catalogue` and
`src/fault/kind.rs`; `UPDATE_GOLDEN=1 cargo test -p rdma-tests --test rules` regenerates it.

**This project compared none of it with hardware.** Everything is from public sources, which the tables name.

";

const NOT: &str = "\
## Limits of the model

* It is not Apple's driver, and this project measured none of it. Where sources disagree, a rule is *disputed* and has a switch;
  where they are silent, it is *assumed*.
* The CPU takes no time: computation between two verbs takes no virtual time at all, and neither scheduling nor polling costs
  anything.
* Verbs take no time. A transition to RTR that fails takes about a second on a Mac and nothing here; registering memory pins pages
  there and costs nothing here.
* No process crashes and no kernel panics. Where a Mac ends the process (a post after the cable was pulled, a missing protection
  domain), a verb fails here; the kernel panics of the field failures are the fault `reboot`.
* All memory is alike: that a Mac refuses some kinds of it (from `malloc`, in one report), and that dead processes leave gigabytes
  wired, is not modelled. Pages are not counted.
* The interface is that of the traits of `rdma-core`: one request per post, no `bad_wr`, no immediate or inline data, no shared
  receive queues, no registration at chosen addresses, no device memory, no events. Error numbers are positive. A task that waits
  for completions is woken; a Mac has to poll.
* The cable carries RDMA only. Thunderbolt networking, with which it shares the link on a Mac, is not there, and neither are the
  TCP connections of a program.
* Frames have no content but their bytes: the markers of first and last frames, and how a receiver treats a message whose middle is
  missing, are not modelled. `lose` drops whole messages.
* Peers are Macs. A Linux peer that ignores credits, and its effect on a Mac, is not modelled.
* Versions of macOS differ only in the profile of 26.2. That different versions do not find each other is the fault `rdma-off`.
* With the variant `HandOff` of `send-completion` the memory of a completed send is still read until it has left. Whether a Mac
  does so is not known.
* The profile `roce` is for programs that must not depend on Apple's device, not a model of an adapter: cables that are pulled
  still end every queue pair silently, and reliable queue pairs do not repair damaged frames.

";

/// The text of `MODEL.md`
pub fn model_md() -> String {
    let mut md = HEAD.to_owned();
    rules(&mut md);
    faults(&mut md);
    failures(&mut md);
    profiles(&mut md);
    md.push_str(NOT);
    md.push_str(SOURCES);
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
    md.push_str(
        "## Rules

",
    );
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
        "
The switch is a field of the model, with its default, or the fault that brings the rule about.
",
    );
    let model = Model::tb5();
    for (title, rules) in SECTIONS {
        let _ = writeln!(
            md,
            "
### {title}
"
        );
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
        "
## Faults

Written as `at TIME TARGET NAME ARGUMENT` or `after N frames TARGET NAME ARGUMENT`.

",
    );
    table(md, &["Fault", "Argument", "What happens", "Stands for", "Test"]);
    for info in FAULTS {
        let stands_for = FAILURES.iter().filter(|failure| match failure.modelled {
            Modelled::Fault(names) => names.contains(&info.name),
            Modelled::Rule(_) | Modelled::No(_) => false,
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
        "
## Field failures

",
    );
    table(md, &["Number", "What happened", "Source", "Modelled by"]);
    for failure in FAILURES {
        let all = |kind: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| code(name)).collect();
            format!("{kind} {}", names.join(", "))
        };
        let by = match failure.modelled {
            Modelled::Fault(names) => all("fault", names),
            Modelled::Rule(names) => all("rule", names),
            Modelled::No(reason) => format!("not modelled: {reason}"),
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
        let [tb5, old, lenient, roce] = &cells;
        line(md, &[&code(name), tb5, old, lenient, roce]);
    }
    md.push('\n');
}

const SOURCES: &str = "\
## Sources

| Name | Description |
| --- | --- |
| Apple TN3205 | Apple's technical note on low-latency communication with RDMA over Thunderbolt |
| asmi | apple-smi/asmi, a monitor for Apple silicon |
| ds4 | antirez/ds4 |
| exo | exo-explore/exo: issues, pull requests and README |
| gojaccl, tmc/apple rdma | Go implementations by tmc, with notes from two Macs |
| hellas thunderbolt-ibverbs | hellas-ai/thunderbolt-ibverbs, a Linux module that talks to Macs, with its pull requests |
| libibverbs manual | the manual pages of rdma-core |
| llama.cpp | ggml-org/llama.cpp, its RPC back end for Apple |
| mesh-flow field notes | a bridge between two Macs, with months of logs |
| mlx, mlx-lm | ml-explore/mlx and mlx-lm: issues, pull requests and the source of JACCL |
| mlx-jaccl-cluster | jasonpaulso/mlx-jaccl-cluster |
| nix-ai | its page rdma-protection-domains.md |
| omlx | issues of omlx |
| openclawradar, 2026-05-06 | an article on registering Metal buffers |
| pytorch PR 181087, 189856 | pull requests of pytorch/pytorch with back ends for Macs |
| tb5-jaccl-toolkit | qubitcontracting/tb5-jaccl-toolkit |
| unsloth | issues of unsloth |
| Verbifrost notes | notes on the RDMA family of macOS |
";

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
        for (name, _) in switches(&Model::tb5()).iter().filter(|(name, _)| name.starts_with("Rules::")) {
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
                Modelled::No(reason) => !reason.is_empty(),
            };
            assert!(is_known, "{failure:?}");
        }
        assert_eq!(FAILURES.len(), 83);
    }
}
