//! The rule book for people: `MODEL.md`

use std::fmt::Write;

use super::switches::switches;
use super::table::{RuleStatus, SECTIONS};
use crate::Model;
use crate::fault::catalogue::{FAULTS, Modelled, entries};

const HEAD: &str = "\
# The model

What the simulator takes a Thunderbolt 5 Mac for. This file is made from the tables in `src/rules/table` and
`src/fault/catalogue`; `UPDATE_GOLDEN=1 cargo test -p rdma-tests --test rules` writes it anew.

**Nothing in here was compared with hardware by this project.** Everything is from public sources, which the tables name.

";

const NOT: &str = "\
## What it is not

* It is not Apple's driver, and nothing here was measured by this project. Where sources disagree, a rule is *disputed* and has a
  switch; where they are silent, it is *assumed*.
* The CPU takes no time: what a program computes between two verbs happens in no virtual time at all, and neither scheduling nor
  polling costs anything.
* Verbs take no time. A step to RTR that fails takes about a second on a Mac and nothing here; registering memory pins pages
  there and costs nothing here.
* No process crashes and no kernel panics. Where a Mac ends the process (a post after the cable was pulled, a missing protection
  domain), a verb fails here; the panics of the catalogue are the fault `reboot`.
* Memory is memory: that some kinds of it are said to be refused (from `malloc`, in one report), and that dead processes leave
  gigabytes wired, is not modelled. Pages are not counted.
* The interface is that of the traits of `rdma-core`: one request per post, no `bad_wr`, no immediate or inline data, no shared
  receive queues, no registration at chosen addresses, no device memory, no events. Error numbers are positive. A task that waits
  for completions is woken; a Mac has to poll.
* The cable carries RDMA only. Thunderbolt networking, with which it shares the link on a Mac, is not there, and neither are the
  TCP connections of a program.
* Frames have no content but their bytes: the markers of first and last frames, and what a receiver makes of a message whose
  middle is missing, are not modelled. `lose` takes whole messages.
* Peers are Macs. A Linux peer that ignores credits, and what that does to a Mac, is not modelled.
* Versions of macOS differ only in the profile of 26.2. That different versions do not find each other is the fault `rdma-off`.
* With the variant `HandOff` of `send-completion` the memory of a completed send is still read until it has left. Whether a Mac
  does so is not known.
* The profile `roce` is for programs that must not depend on Apple's device, not a model of an adapter: cables that are pulled
  still end every queue pair in silence, and reliable queue pairs do not repair damaged frames.

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
    md.push_str("## Rules\n\n");
    let statuses = [
        (RuleStatus::Documented, "Apple, or the vendor, says so"),
        (RuleStatus::Measured, "somebody measured it, and says how"),
        (RuleStatus::Reported, "somebody met it, or programs are written as if it were so"),
        (RuleStatus::Disputed, "sources disagree; the default comes first"),
        (RuleStatus::Assumed, "nobody says so; it was chosen"),
    ];
    for (status, says) in statuses {
        let _ = writeln!(md, "* *{status}*: {says}");
    }
    md.push_str(
        "\nThe switch is a field of the model, with its default, or the fault that brings the rule about.\n",
    );
    for (title, rules) in SECTIONS {
        let _ = writeln!(md, "\n### {title}\n");
        table(md, &["Rule", "What happens", "Status", "Source", "Switch", "Default", "Test"]);
        for rule in *rules {
            let [name, switch, default, test] = [rule.name, rule.switch, rule.default, rule.test].map(code);
            line(md, &[&name, rule.says, &rule.status.to_string(), rule.source, &switch, &default, &test]);
        }
    }
}

fn faults(md: &mut String) {
    md.push_str("\n## Faults\n\nWritten as `at TIME PLACE NAME ARGUMENT` or `after N frames PLACE NAME ARGUMENT`.\n\n");
    table(md, &["Fault", "Argument", "What happens", "Stands for", "Test"]);
    for kind in FAULTS {
        let mut numbers: Vec<_> = kind.failures().map(|number| format!("F{number}")).collect();
        if numbers.is_empty() {
            numbers.push("–".to_owned());
        }
        line(md, &[&code(kind.name), kind.argument, kind.says, &numbers.join(", "), &code(kind.test)]);
    }
}

fn failures(md: &mut String) {
    md.push_str("\n## Field failures\n\n");
    table(md, &["Number", "What happened", "Source", "Modelled by"]);
    for entry in entries() {
        let all = |kind: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| code(name)).collect();
            format!("{kind} {}", names.join(", "))
        };
        let by = match entry.modelled {
            Modelled::Fault(names) => all("fault", names),
            Modelled::Rule(names) => all("rule", names),
            Modelled::No(reason) => format!("not modelled: {reason}"),
        };
        line(md, &[&format!("F{}", entry.number), entry.title, entry.source, &by]);
    }
}

const PROFILES: [&str; 3] = ["tb5", "tb5-macos-26.2", "roce"];

fn profiles(md: &mut String) {
    md.push_str("\n## Profiles\n\nWhat differs from `tb5`, the default, is bold.\n\n");
    let models = PROFILES.map(|name| switches(&Model::profile(name).expect("the profile exists")));
    let head: Vec<_> = ["Switch"].into_iter().map(str::to_owned).chain(PROFILES.map(code)).collect();
    table(md, &head.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, (name, default)) in models[0].iter().enumerate() {
        let cells = models.each_ref().map(|model| {
            let (_, value) = &model[row];
            if value == default { value.clone() } else { format!("**{value}**") }
        });
        let [tb5, old, roce] = &cells;
        line(md, &[&code(name), tb5, old, roce]);
    }
    md.push('\n');
}

const SOURCES: &str = "\
## Sources

| Name | What it is |
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
