//! The report of the command

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use rdma_calibrate::Findings;
use rdma_sim::profile::{Decided, Profile};
use serde::Serialize;

use crate::report::{Output, SIMULATOR, plain};

#[derive(Debug, Serialize)]
struct Outcome {
    backend: &'static str,
    role: &'static str,
    device: String,
    /// `None` for a real device
    simulated_profile: Option<String>,
    /// `None` if the other Mac is another process
    virtual_seconds: Option<f64>,
    /// `None` if both Macs are in this process
    wall_seconds: Option<f64>,
    profile_file: String,
    /// `None` if the profile went to standard output.
    page_file: Option<String>,
    contradictions: Vec<&'static str>,
    fields: BTreeMap<&'static str, Field>,
    /// Experiments that an unexpected answer of the device has stopped, with that answer
    stopped: BTreeMap<&'static str, String>,
    /// `None` if the port connects.
    wedged_port: Option<String>,
}

/// A field of the model
#[derive(Debug, Serialize)]
struct Field {
    value: String,
    decided: &'static str,
    why: Option<String>,
}

/// The name of a device, with the profile under which it was simulated
pub(super) fn named(device: &str, simulated_profile: Option<&str>) -> String {
    let simulated = simulated_profile.map_or_else(String::new, |of| format!(", simulated ({of})"));
    plain(device) + &simulated
}

pub(super) fn print(
    findings: &Findings,
    profile_file: &Path,
    page: Option<&Path>,
    backend: &'static str,
    output: Output,
) -> Result<()> {
    let profile = &findings.profile;
    let field = |name| {
        let decided = profile.decided(name)?.word();
        let why = profile.why(name).map(str::to_owned);
        Some((name, Field { value: profile.value(name)?, decided, why }))
    };
    let (seconds, is_simulated) = (findings.took.as_secs_f64(), backend == SIMULATOR);
    let outcome = Outcome {
        backend,
        role: "client",
        device: findings.device.clone(),
        simulated_profile: findings.simulated().map(|of| of.profile.clone()),
        virtual_seconds: is_simulated.then_some(seconds),
        wall_seconds: (!is_simulated).then_some(seconds),
        profile_file: profile_file.display().to_string(),
        page_file: page.map(|page| page.display().to_string()),
        contradictions: findings.contradictions(),
        fields: Profile::fields().filter_map(field).collect(),
        stopped: findings.stopped.iter().cloned().collect(),
        wedged_port: findings.wedged.clone(),
    };
    let count =
        |decided: Decided| outcome.fields.values().filter(|field| field.decided == decided.word()).count();
    // The page lists all of them.
    let is_of_machine = |name: &str| {
        name.starts_with("timing.") && findings.simulated().is_some_and(|simulated| simulated.is_in_real_time)
    };
    let told = outcome.contradictions.iter().copied().filter(|name| !is_of_machine(name)).collect::<Vec<_>>();
    let contradictions = match (&told[..], told.len() < outcome.contradictions.len()) {
        ([], false) => "none".to_owned(),
        ([], true) => "only in times, which are those of this machine".to_owned(),
        (some, false) => some.join(", "),
        (some, true) => format!("{}; also in times, which are those of this machine", some.join(", ")),
    };
    let rows = [
        ("device", named(&outcome.device, outcome.simulated_profile.as_deref())),
        ("took", format!("{seconds:.1} s")),
        ("measured", format!("{} fields", count(Decided::Measured))),
        ("sum", format!("{} fields, each a part of a measured sum", count(Decided::Sum))),
        ("undecided", format!("{} fields, each with its reason in the page", count(Decided::Undecided))),
        ("contradicts the simulator", contradictions),
        ("profile", outcome.profile_file.clone()),
    ];
    let page = outcome.page_file.iter().map(|page| ("page", page.clone()));
    output.outcome(&outcome, rows.into_iter().chain(page))
}
