//! `tb5 topo plan --ports`: the best cabling of Macs with so many ports

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use rdma_collectives::{Cabling, MAX_EXACT_HOSTS, plan, verify};
use rdma_sim::LineRate;
use serde::Serialize;

use super::best::{Best, BestCabling};
use super::draw::text as drawn;
use super::operation::{operation, root};
use crate::args::TopoPlan;
use crate::failure::Failure;
use crate::file::write_all;
use crate::progress;
use crate::report::{Output, plain, table};

#[derive(Debug, Serialize)]
struct Recommended<'a> {
    best_cabling: BestCabling,
    cable_bytes_per_second: f64,
    hosts: Vec<String>,
    operation: String,
    ports: &'a [usize],
}

pub(super) fn run(args: &TopoPlan, output: Output) -> Result<()> {
    let ports = ports(args)?;
    let hosts = Cabling::of_pairs(ports.len(), [], 1).hosts().to_vec();
    let operation = operation(args.operation, hosts.len(), root(args, &hosts)?);
    let progress = progress::spinner("looking for the best cabling");
    let best = Best::of_ports(&ports, &operation).map_err(Failure::usage)?;
    if let Some(path) = &args.out {
        let made = plan(best.cabling(), &operation)?;
        // The verifier shares no code with the planner.
        verify(best.cabling(), &made).context("the planner has made a wrong plan; please report this")?;
        write_all(path, &made.to_string())?;
    }
    if let Some(path) = &args.write_cabling {
        write_all(path, &best.topology.to_toml())?;
    }
    progress.finish_and_clear();
    let name = args.operation.to_possible_value().expect("no operation is skipped").get_name().to_owned();
    let text = match output {
        Output::Json => String::new(),
        Output::Text => text(&best, &name, hosts.len()),
    };
    let report = Recommended {
        best_cabling: best.into_report(),
        cable_bytes_per_second: LineRate::TB5.ceiling_bytes_per_second(),
        hosts,
        operation: name,
        ports: &ports,
    };
    output.print(&report, || text)
}

/// The ports of each host
fn ports(args: &TopoPlan) -> Result<Vec<usize>, Failure> {
    match (&args.ports[..], args.hosts) {
        ([_], None) => Err(Failure::usage(
            "--ports has one number: write one for each host, as in --ports 3,3,2, or how many hosts have so many, as in --hosts 5",
        )),
        ([each], Some(hosts)) => Ok(vec![*each; hosts]),
        (each, Some(hosts)) if each.len() != hosts => Err(Failure::usage(format!(
            "--ports has {} numbers for {hosts} hosts: write one for each, or one for all",
            each.len()
        ))),
        (each, _) if each.len() > MAX_EXACT_HOSTS => {
            let hosts = each.len();
            Err(Failure::usage(format!(
                "--ports has {hosts} numbers: cablings of at most {MAX_EXACT_HOSTS} hosts are compared"
            )))
        }
        (each, _) => Ok(each.to_vec()),
    }
}

fn text(best: &Best, operation: &str, hosts: usize) -> String {
    let rows = table([
        ["operation".to_owned(), format!("{operation}, {hosts} hosts")],
        ["takes".to_owned(), format!("{}: {}", best.takes(), best.verdict())],
        ["because".to_owned(), plain(&best.because())],
    ]);
    format!("{rows}\n\n{}", drawn(&best.topology).trim_end())
}
