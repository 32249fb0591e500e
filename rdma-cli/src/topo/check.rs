//! `tb5 topo check`: whether a plan is what it claims to be

use std::path::Path;

use anyhow::{Context as _, anyhow};
use rdma_collectives::{ParsePlanError, PlanFile, verify};
use serde::Serialize;

use super::cabling::capped;
use crate::args::TopoCheck;
use crate::cabled_macs;
use crate::failure::{at, shown};
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
    require_one_standard(args.topology.as_ref().map(Path::new).into_iter().chain([&*args.plan]))?;
    let given = match &args.topology {
        Some(name) => Some(capped(name, &cabled_macs::read(name, args.hosts)?)?),
        None => None,
    };
    let name = shown(&args.plan);
    let file =
        read_named(&args.plan, MAX_LEN)?.parse::<PlanFile>().map_err(|error| unparsed(&name, &error))?;
    let plan = file.plan;
    // Also the cables in the file, which other readers of it believe.
    let cablings: Vec<_> = given.into_iter().chain(file.cabling).collect();
    let factors = cablings.iter().map(|cabling| verify(cabling, &plan));
    let factors = factors.collect::<Result<Vec<_>, _>>().with_context(|| name.clone())?;
    let (Some(cabling), Some(factor)) = (cablings.first(), factors.first()) else {
        let why = "has no cables, as a plan of another program may: write the cabling before it";
        return Err(anyhow!(at(&args.plan, why)));
    };
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
    let cabling = format!("{} hosts, {} cables", checked.hosts, checked.cables);
    output.outcome(&checked, [("plan", name), ("cabling", cabling), ("verdict", verdict)])
}

/// The failure of a text that is no plan
fn unparsed(name: &str, error: &ParsePlanError) -> anyhow::Error {
    let ParsePlanError { line, cell, found, expected } = error;
    anyhow!("{name}:{line}: is not a plan: word {cell} of the line is {found}, and should be {expected}")
}
