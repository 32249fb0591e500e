//! `tb5 topo check`: whether a plan is what it claims to be

use std::path::Path;

use anyhow::{Context as _, anyhow};
use rdma_collectives::{ParsePlanError, Plan, verify};
use serde::Serialize;

use super::cabling::{cabling, read};
use crate::args::TopoCheck;
use crate::failure::shown;
use crate::input::{read_named, require_one_standard};
use crate::report::Output;

/// More than the longest plan has, in bytes.
const MAX_LEN: u64 = 64 << 20;

#[derive(Debug, Serialize)]
struct Checked {
    hosts: usize,
    cables: usize,
    plan_seconds_per_byte: f64,
    bound_seconds_per_byte: f64,
    factor_above_bound: f64,
    optimal: bool,
}

pub(crate) fn run(args: &TopoCheck, output: Output) -> anyhow::Result<()> {
    require_one_standard([Path::new(&args.topology.topology), &args.plan])?;
    let topology = read(&args.topology)?;
    let cabling = cabling(&args.topology.topology, &topology)?;
    let name = shown(&args.plan);
    let plan = read_named(&args.plan, MAX_LEN)?.parse::<Plan>().map_err(|error| unparsed(&name, &error))?;
    let factor = verify(&cabling, &plan).with_context(|| name.clone())?;
    let checked = Checked {
        hosts: cabling.hosts().len(),
        cables: cabling.cables().len(),
        plan_seconds_per_byte: plan.time.to_f64(),
        bound_seconds_per_byte: plan.bound.to_f64(),
        factor_above_bound: factor.to_f64(),
        optimal: plan.is_optimal(),
    };
    let verdict = if checked.optimal {
        "every byte gets where it belongs, and no plan is faster".to_owned()
    } else {
        format!(
            "every byte gets where it belongs, in {:.3} × the time of the bound",
            checked.factor_above_bound
        )
    };
    output.outcome(&checked, [("plan", name), ("verdict", verdict)])
}

/// The failure of a text that is no plan
fn unparsed(name: &str, error: &ParsePlanError) -> anyhow::Error {
    let ParsePlanError { line, cell, found, expected } = error;
    anyhow!("{name}:{line}: is not a plan: word {cell} of the line is {found}, and should be {expected}")
}
