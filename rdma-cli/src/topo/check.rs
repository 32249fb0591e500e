//! `tb5 topo check`: whether a plan is what it claims to be

use std::io::Read as _;

use anyhow::{Context as _, bail};
use rdma_collectives::{Plan, verify};
use serde::Serialize;

use super::cabling::{cabling, read};
use crate::args::TopoCheck;
use crate::failure::{Failure, at};
use crate::file::{self, is_standard};
use crate::report::Output;

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
    if is_standard(&args.plan) && is_standard(&args.topology.topology) {
        let why = "standard input is read once: write `-` for the topology or for the plan";
        bail!(Failure::usage(why));
    }
    let topology = read(&args.topology)?;
    let cabling = cabling(&topology)?;
    let mut text = String::new();
    let read = file::open(&args.plan).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(|error| anyhow::anyhow!(at(&args.plan, error)))?;
    let plan = text.parse::<Plan>().with_context(|| args.plan.display().to_string())?;
    let factor = verify(&cabling, &plan).with_context(|| args.plan.display().to_string())?;
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
    output.outcome(&checked, [("plan", args.plan.display().to_string()), ("verdict", verdict)])
}
