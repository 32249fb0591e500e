//! What a calibration leaves: the profile, the page, and the report of the command

use std::collections::BTreeMap;

use anyhow::Result;
use rdma_calibrate::Findings;
use rdma_sim::profile::{Decided, Profile};
use serde::Serialize;

use super::args::Arguments;
use crate::file::write_all;
use crate::report::{Output, plain};

#[derive(Debug, Serialize)]
struct Outcome {
    backend: &'static str,
    role: &'static str,
    device: String,
    took_seconds: f64,
    profile_file: String,
    page_file: String,
    contradictions: Vec<&'static str>,
    fields: BTreeMap<&'static str, Field>,
}

/// A field of the model
#[derive(Debug, Serialize)]
struct Field {
    value: String,
    decided: &'static str,
    why: Option<String>,
}

/// Writes the profile and the page, and prints where they are
pub(super) fn write(
    args: &Arguments,
    findings: &Findings,
    backend: &'static str,
    output: Output,
) -> Result<()> {
    let page = args.out.with_extension("md");
    for (path, text) in [(&args.out, findings.profile.to_toml()), (&page, findings.page())] {
        write_all(path, &text)?;
    }
    let profile = &findings.profile;
    let field = |name| {
        let decided = profile.decided(name)?;
        let word = if decided == Decided::Measured { "measured" } else { "undecided" };
        let why = profile.why(name).map(str::to_owned);
        Some((name, Field { value: profile.value(name)?, decided: word, why }))
    };
    let outcome = Outcome {
        backend,
        role: "asks",
        device: findings.device.clone(),
        took_seconds: findings.took.as_secs_f64(),
        profile_file: args.out.display().to_string(),
        page_file: page.display().to_string(),
        contradictions: findings.contradictions(),
        fields: Profile::fields().filter_map(field).collect(),
    };
    let count = |word| outcome.fields.values().filter(|field| field.decided == word).count().to_string();
    let contradictions = match &outcome.contradictions[..] {
        [] => "none".to_owned(),
        some => some.join(", "),
    };
    let rows = [
        ("device", plain(&outcome.device)),
        ("took", format!("{:.1} s", outcome.took_seconds)),
        ("measured", format!("{} fields", count("measured"))),
        ("undecided", format!("{} fields, each with its reason in the page", count("undecided"))),
        ("contradicts the simulator", contradictions),
        ("profile", outcome.profile_file.clone()),
        ("page", outcome.page_file.clone()),
    ];
    output.outcome(&outcome, rows)
}
