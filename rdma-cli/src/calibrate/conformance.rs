//! Results of `tb5 calibrate --conformance`

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use rdma_calibrate::{Behaviour, Conformance as Found, Verdict};
use serde::Serialize;

use super::outcome::named;
use crate::failure::Failure;
use crate::report::Output;

#[derive(Debug, Serialize)]
struct Conformance<'a> {
    backend: &'static str,
    role: &'static str,
    device: &'a str,
    /// `None` for a real device
    simulated_profile: Option<&'a str>,
    passed_count: usize,
    /// Each with the reason
    skipped: BTreeMap<&'static str, &'a str>,
    /// Each with what the device does instead
    failed: BTreeMap<&'static str, &'a str>,
}

/// Prints what came of each behaviour; fails if the device lacks one, or if the others could not be tried
pub(super) fn print(
    found: Found,
    backend: &'static str,
    device: &str,
    simulated_profile: Option<&str>,
    output: Output,
) -> Result<()> {
    let Found { behaviours, ended, .. } = found;
    let mut conformance = Conformance {
        backend,
        role: "client",
        device,
        simulated_profile,
        passed_count: 0,
        skipped: BTreeMap::new(),
        failed: BTreeMap::new(),
    };
    for Behaviour { name, verdict, .. } in &behaviours {
        match verdict {
            Verdict::Passed => conformance.passed_count += 1,
            Verdict::Skipped(why) => drop(conformance.skipped.insert(name, why)),
            Verdict::Failed(why) => drop(conformance.failed.insert(name, why)),
        }
    }
    let counts = [
        ("device", named(device, simulated_profile)),
        ("passed", format!("{} of {} behaviours", conformance.passed_count, behaviours.len())),
    ];
    let others = conformance.skipped.iter().map(|(name, why)| (*name, format!("skipped: {why}")));
    let failed = conformance.failed.iter().map(|(name, why)| (*name, format!("FAILED: {why}")));
    output.outcome(&conformance, counts.into_iter().chain(others).chain(failed))?;
    match ended {
        Some(error) => Err(error.into()),
        None if !conformance.failed.is_empty() => bail!(Failure::Reported),
        None => Ok(()),
    }
}
