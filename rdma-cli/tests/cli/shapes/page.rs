//! The page of the guide that lists the keys of JSON output, and whether output has these keys

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::types::{Json, Sources};

/// A section of the page, and the type that the command prints
pub(super) const SECTIONS: [(&str, &str); 36] = [
    ("bench", "bench::report::Report"),
    ("bw", "bw::BwResult"),
    ("bw HOST:", "measure::bw::RemoteBw"),
    ("calibrate", "calibrate::outcome::Outcome"),
    ("calibrate --conformance", "calibrate::conformance::Conformance"),
    ("calibrate --listen", "calibrate::machines::Served"),
    ("calibrate HOST:", "calibrate::outcome::Outcome"),
    ("completions", "manual::Completed"),
    ("copy", "copy::simulate::CopyResult"),
    ("copy --listen", "copy::remote::outcome::Outcome"),
    ("copy HOST:", "copy::remote::outcome::Outcome"),
    ("demo", "demo::simulated::DemoResult"),
    ("demo HOST:", "demo::two_machines::TwoMachinesResult"),
    ("devices", "devices::DeviceList"),
    ("doctor", "doctor::DiagnosisOutput"),
    ("fabric", "fabric::List"),
    ("fabric NAME", "fabric::Shown"),
    ("fabric NAME FAULT", "fabric::Scheduled"),
    ("man", "manual::Manual"),
    ("man --out", "manual::Pages"),
    ("ping", "ping::PingResult"),
    ("ping HOST:", "measure::ping::RemotePing"),
    ("run", "run::summary::Summary"),
    ("serve, first line", "machines::listen::Listening"),
    ("serve", "serve::report::Served"),
    ("sim check", "sim::check::Checked"),
    ("sim replay", "sim::SeedResult"),
    ("sim run", "sim::SeedResult"),
    ("sim run --seeds", "sim::Reports"),
    ("sim trace", "sim::trace::TraceOutput"),
    ("topo check", "topo::check::Checked"),
    ("topo convert", "topo::convert::Converted"),
    ("topo discover", "topo::convert::Converted"),
    ("topo draw", "topo::draw::Drawn"),
    ("topo plan", "topo::plan::Planned"),
    ("topo plan --ports", "topo::ports::Recommended"),
];

const HEAD: &str = "# JSON output\n\nWith `--json`, a command prints one object, which has all keys of its table. `serve`, `copy --listen` \
                    and `calibrate --listen` print one in a line: first the address, then one for each peer; of `serve`, that of a copy has the keys \
                    of `copy --listen`. Units are in the keys; `[]` \
                    stands for each element of a list. `doctor --probe` prints the object of `doctor`, with more findings. The types are \
                    those of the sources of `tb5`; a test compares them with this page and with what the commands print.\n";

/// What keys mean, and which of the meanings a page has used
struct Meanings {
    texts: BTreeMap<&'static str, &'static str>,
    used: BTreeSet<&'static str>,
}

/// The page
pub(super) fn page(sources: &Sources) -> String {
    let mut page = HEAD.to_owned();
    let mut meanings = Meanings::read();
    for (section, path) in SECTIONS {
        let mut keys = BTreeMap::new();
        add_keys(&sources.of(path), "", &mut keys);
        let (command, which) = section.split_at(section.find(',').unwrap_or(section.len()));
        // Writing to a string does not fail.
        let _ = write!(page, "\n## `tb5 {command}`{which}\n\n| key | type | meaning |\n|---|---|---|\n");
        for (key, types) in &keys {
            page.extend(row(section, key, types, &mut meanings));
        }
    }
    let unused: Vec<_> = meanings.texts.keys().filter(|key| !meanings.used.contains(*key)).collect();
    assert!(unused.is_empty(), "meanings.txt has keys that no command prints: {unused:?}");
    page
}

/// Adds the types of all keys below `path`
fn add_keys(of: &Json, path: &str, keys: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let name = match of {
        Json::Bool => "true or false",
        Json::Whole => "whole number",
        Json::Number => "number",
        Json::Text => "text",
        Json::Nullable(inner) => {
            add_keys(inner, path, keys);
            "null"
        }
        Json::List(element) => {
            add_keys(element, &format!("{path}[]"), keys);
            "list"
        }
        Json::Map(value) => {
            add_keys(value, &below(path, "NAME"), keys);
            "object"
        }
        Json::Object(fields) | Json::OneOf(fields) => {
            fields.iter().for_each(|(key, value)| add_keys(value, &below(path, key), keys));
            "object"
        }
    };
    keys.entry(path.to_owned()).or_default().insert(name);
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A row of the page, or nothing for the whole and for an element that has rows of its own
fn row(section: &str, key: &str, types: &BTreeSet<&'static str>, meanings: &mut Meanings) -> Option<String> {
    let is_element = key.ends_with("[]");
    if key.is_empty() || (is_element && ["object", "list"].iter().any(|kind| types.contains(kind))) {
        return None;
    }
    let types = types.iter().copied().collect::<Vec<_>>().join(", ");
    let text = if is_element { "each of them" } else { meanings.of(section, key, &types) };
    Some(format!("| `{key}` | {types} | {text} |\n"))
}

impl Meanings {
    fn read() -> Self {
        let line = |line: &'static str| {
            line.split_once('\t')
                .unwrap_or_else(|| panic!("meanings.txt: {line}: a key, a tabulator and its meaning"))
        };
        Self { texts: include_str!("../meanings.txt").lines().map(line).collect(), used: BTreeSet::new() }
    }

    /// The meaning of a key: that of the section if there is one, and else that of the longest end of the path, with the type or without
    fn of(&mut self, section: &str, key: &str, types: &str) -> &'static str {
        let ends = std::iter::successors(Some(key), |end| end.split_once('.').map(|(_, rest)| rest));
        let ends = ends.flat_map(|end| [format!("{end} ({types})"), end.to_owned()]);
        let mut names = std::iter::once(format!("{section} | {key}")).chain(ends);
        let found = names.find_map(|name| self.texts.get_key_value(name.as_str()));
        let (name, text) = found.unwrap_or_else(|| panic!("{section}: meanings.txt lacks {key} ({types})"));
        self.used.insert(name);
        text
    }
}

/// Why a value is not of a type: the path of the first key that differs
pub(super) fn difference(value: &Value, of: &Json, path: &str) -> Option<String> {
    let differs = || Some(format!("{path}: {value} is not {of:?}"));
    match (of, value) {
        (Json::Nullable(_), Value::Null) | (Json::Bool, Value::Bool(_)) | (Json::Text, Value::String(_)) => {
            None
        }
        (Json::Whole, Value::Number(number)) if !number.is_f64() => None,
        (Json::Number, Value::Number(number)) if number.is_f64() => None,
        (Json::Nullable(inner), _) => difference(value, inner, path),
        (Json::List(element), Value::Array(values)) => {
            values.iter().find_map(|value| difference(value, element, &format!("{path}[]")))
        }
        (Json::Map(of), Value::Object(values)) => {
            values.values().find_map(|value| difference(value, of, &below(path, "NAME")))
        }
        (Json::OneOf(fields), Value::Object(values)) => {
            let mut all = values.iter();
            match (all.next().and_then(|(key, value)| Some((key, value, fields.get(key)?))), all.next()) {
                (Some((key, value, of)), None) => difference(value, of, &below(path, key)),
                _ => differs(),
            }
        }
        (Json::Object(fields), Value::Object(values)) if fields.keys().eq(values.keys()) => {
            fields.iter().find_map(|(key, of)| difference(&values[key], of, &below(path, key)))
        }
        _ => differs(),
    }
}
