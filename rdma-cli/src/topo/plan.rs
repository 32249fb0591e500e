//! `tb5 topo plan`: the best plan of a collective operation, its proof, and what each cable is worth

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use rdma_collectives::{
    Addition, Cabling, Certificate, Operation, Plan, PlanError, PlanFile, Price as GivenPrice, Resource,
    Unplug, additions, plan, unplugs, verify,
};
use rdma_sim::LineRate;
use rdma_sim::topology::Topology;
use serde::Serialize;

use super::best::{Best, BestCabling};
use super::cabling::{bytes_per_second, cable, capped, unplanned};
use super::operation::{operation, root};
use super::ports;
use crate::args::{OperationName, TopoPlan};
use crate::failure::{Failure, at};
use crate::file::{is_same, require_other, reserve_standard_output, write_all};
use crate::report::{Output, plain, rate, table};
use crate::{cabled_macs, progress};

#[derive(Debug, Serialize)]
struct Planned<'a> {
    operation: String,
    hosts: &'a [String],
    cable_bytes_per_second: f64,
    bound_seconds_per_byte: f64,
    plan_seconds_per_byte: f64,
    optimal: bool,
    certificate: Proof<'a>,
    trees: Vec<Share<'a>>,
    unplugs: Vec<Without<'a>>,
    additions: Vec<With<'a>>,
    /// `null` for Macs of different speeds, and for Macs with caps
    best_cabling: Option<BestCabling>,
}

/// Why no plan is faster
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Proof<'a> {
    Partition(Vec<Vec<&'a str>>),
    Cut(Vec<&'a str>),
    Prices(Vec<Price<'a>>),
}

/// Cost of a byte over the cables from one host to another, or of one that a host with a cap sends or receives
#[derive(Debug, Serialize)]
struct Price<'a> {
    /// `null` for all neighbours
    from: Option<&'a str>,
    to: Option<&'a str>,
    price: u64,
}

#[derive(Debug, Serialize)]
struct Share<'a> {
    share: f64,
    root: &'a str,
    edges: Vec<[&'a str; 2]>,
}

#[derive(Debug, Serialize)]
struct Without<'a> {
    /// Host and device at each end
    ends: [[&'a str; 2]; 2],
    /// `null` if hosts cannot reach each other without it.
    seconds_per_byte: Option<f64>,
}

#[derive(Debug, Serialize)]
struct With<'a> {
    /// Host and first free device at each end
    ends: [[&'a str; 2]; 2],
    seconds_per_byte: f64,
}

/// Most cables to add that are shown.
const ADDITIONS: usize = 5;

pub(crate) fn run(args: &TopoPlan, output: Output) -> Result<()> {
    let mut written = [&args.out, &args.write_cabling].into_iter().flatten();
    reserve_standard_output(written.clone(), output)?;
    if let (Some(out), Some(cabling)) = (&args.out, &args.write_cabling)
        && is_same(out, cabling)
    {
        return Err(Failure::usage("--out and --write-cabling are two files: write two names").into());
    }
    match &args.topology {
        None => ports::run(args, output),
        Some(name) => {
            written.try_for_each(|file| require_other(file, [name]))?;
            plan_cabling(name, args, output)
        }
    }
}

/// Plans the operation over the cabling called `name`
fn plan_cabling(name: &str, args: &TopoPlan, output: Output) -> Result<()> {
    let topology = cabled_macs::read(name, args.hosts)?;
    let cabling = capped(name, &topology)?;
    let operation = operation(args.operation, cabling.hosts().len(), root(args, cabling.hosts())?);
    let progress = progress::spinner("planning");
    let made = plan(&cabling, &operation).map_err(|error| unplanned(name, &error, &cabling))?;
    // The verifier shares no code with the planner.
    verify(&cabling, &made).context("the planner has made a wrong plan; please report this")?;
    if let Some(path) = &args.out {
        write_all(path, &PlanFile { plan: made.clone(), cabling: Some(cabling.clone()) }.to_string())?;
    }
    progress.finish_and_clear();
    let free = free_ports(&topology);
    let counts: Vec<_> = free.iter().map(Vec::len).collect();
    let (without, with, best) = match unplugs(&cabling, &operation) {
        Err(PlanError::TooManyHosts { .. }) => (Vec::new(), Vec::new(), Err(INCOMPARABLE)),
        without => {
            let progress = progress::part(cabling.cables().len() as u64, "without each cable");
            let without = without?.inspect(|_| progress.inc(1)).collect::<Result<Vec<_>, _>>()?;
            progress.finish_and_clear();
            let with = with_each(&cabling, &operation, &counts)?;
            let progress = progress::spinner("looking for the best cabling");
            let best = match cabling.has_caps() {
                true => Err(CAPPED),
                false => Best::of_macs(&topology, &cabling, &operation, made.bound)?.ok_or(NO_BEST),
            };
            progress.finish_and_clear();
            (without, with, best)
        }
    };
    if let Some(path) = &args.write_cabling {
        let best = best.as_ref().map_err(|why| anyhow::Error::msg(at(Path::new(name), why)))?;
        write_all(path, &best.topology.to_toml())?;
    }
    let ends: Vec<_> = topology.links().map(|link| link.ends.map(|end| [end.host, end.device])).collect();
    let without = Without::all(&ends, &without);
    let with = With::all(&cabling, &free, &with);
    let mut report = report(args.operation, &cabling, &made, without, with);
    let text = match output {
        Output::Json => String::new(),
        Output::Text => text(&report, &made, best.as_ref()),
    };
    report.best_cabling = best.ok().map(Best::into_report);
    output.print(&report, || text)
}

/// What the operation takes with each further cable, the best first
fn with_each(cabling: &Cabling, operation: &Operation, free_ports: &[usize]) -> Result<Vec<Addition>> {
    let with = additions(cabling, operation, bytes_per_second(LineRate::TB5), free_ports)?;
    let progress = progress::part(with.size_hint().1.unwrap_or(0) as u64, "with each further cable");
    let mut with = with.inspect(|_| progress.inc(1)).collect::<Result<Vec<_>, _>>()?;
    progress.finish_and_clear();
    with.sort();
    Ok(with)
}

/// Why cablings are not compared.
const INCOMPARABLE: &str = "not looked for: the bounds of so many hosts (above 64, above 32 with caps, or above 16 in an all-to-all) do not say which cabling is better";

/// Why there is no best cabling of Macs with caps.
const CAPPED: &str = "some Macs have caps: their best cabling is not known";

/// Why there is no best cabling.
const NO_BEST: &str =
    "the ports of some Macs are faster than those of others: their best cabling is not known";

/// The devices without a cable, by host
fn free_ports(topology: &Topology) -> Vec<Vec<&str>> {
    let ends = topology.links().flat_map(|link| link.ends);
    let used: BTreeSet<_> = ends.map(|end| (end.host, end.device)).collect();
    let free = topology.hosts().iter().map(|host| {
        let devices = host.ports().iter().map(|port| port.device());
        devices.filter(|device| !used.contains(&(host.name(), *device))).collect()
    });
    free.collect()
}

impl<'a> Without<'a> {
    /// Times of the operation without each cable
    fn all(ends: &[[[&'a str; 2]; 2]], all: &[Unplug]) -> Vec<Self> {
        let without = all.iter().map(|unplug| Self {
            ends: ends[unplug.cable],
            seconds_per_byte: unplug.without.map(rdma_collectives::Ratio::to_f64),
        });
        without.collect()
    }
}

impl<'a> With<'a> {
    /// The best cables to add; `free` has the ports of each host that have no cable
    fn all(cabling: &'a Cabling, free: &[Vec<&'a str>], all: &[Addition]) -> Vec<Self> {
        let hosts = cabling.hosts();
        let with = all.iter().take(ADDITIONS).map(|addition| Self {
            ends: addition.ends.map(|end| [&hosts[end], free[end].first().copied().unwrap_or_default()]),
            seconds_per_byte: addition.with.to_f64(),
        });
        with.collect()
    }
}

fn report<'a>(
    name: OperationName,
    cabling: &'a Cabling,
    plan: &Plan,
    unplugs: Vec<Without<'a>>,
    additions: Vec<With<'a>>,
) -> Planned<'a> {
    let hosts = cabling.hosts();
    let host = |index: usize| hosts[index].as_str();
    let names = |indices: &[usize]| indices.iter().map(|index| host(*index)).collect::<Vec<_>>();
    let certificate = match &plan.certificate {
        Certificate::Partition(parts) => Proof::Partition(parts.iter().map(|part| names(part)).collect()),
        Certificate::Cut(set) => Proof::Cut(names(set)),
        Certificate::Prices(prices) => {
            let ends = |of: Resource| match of {
                Resource::Cables { from, to } => [Some(from), Some(to)],
                Resource::Receive { host } => [None, Some(host)],
                Resource::Send { host } => [Some(host), None],
            };
            let price = |given: &GivenPrice| {
                let [from, to] = ends(given.of).map(|end| end.map(host));
                Price { from, to, price: given.price }
            };
            Proof::Prices(prices.iter().map(price).collect())
        }
        other => unreachable!("{other:?} is a proof that this tool does not know"),
    };
    Planned {
        operation: name.to_possible_value().expect("no operation is skipped").get_name().to_owned(),
        hosts,
        cable_bytes_per_second: LineRate::TB5.ceiling_bytes_per_second(),
        bound_seconds_per_byte: plan.bound.to_f64(),
        plan_seconds_per_byte: plan.time.to_f64(),
        optimal: plan.is_optimal(),
        certificate,
        trees: plan
            .trees
            .iter()
            .map(|tree| Share {
                share: tree.share.to_f64(),
                root: host(tree.root),
                edges: tree.arcs.iter().map(|&(from, to)| [host(from), host(to)]).collect(),
            })
            .collect(),
        unplugs,
        additions,
        best_cabling: None,
    }
}

fn text(report: &Planned<'_>, plan: &Plan, best: Result<&Best, &&str>) -> String {
    let per_cable = |seconds: f64| seconds * report.cable_bytes_per_second;
    let verdict = if report.optimal {
        "no plan is faster".to_owned()
    } else {
        format!(
            "at most {:.3} × as long as the best",
            report.plan_seconds_per_byte / report.bound_seconds_per_byte
        )
    };
    let mut text = table([
        ["operation".to_owned(), format!("{}, {} hosts", report.operation, report.hosts.len())],
        [
            "takes".to_owned(),
            format!(
                "{:.3} × the time of one 80 Gb/s cable ({} of the payload): {verdict}",
                per_cable(report.plan_seconds_per_byte),
                rate(1.0 / report.plan_seconds_per_byte)
            ),
        ],
        ["because".to_owned(), plain(&proof(report))],
        ["trees".to_owned(), trees(plan)],
        ["best cabling".to_owned(), best.map_or_else(|why| (*why).to_owned(), best_cabling)],
    ]);
    let mut rows = vec![["cable", "if unplugged"].map(str::to_owned)];
    rows.extend(report.unplugs.iter().map(|unplug| {
        let cost = match unplug.seconds_per_byte {
            None => "hosts cannot reach each other".to_owned(),
            Some(seconds) => format!("{:.3} × as long", seconds / report.bound_seconds_per_byte),
        };
        [cable(unplug.ends), cost]
    }));
    // Writing to a string does not fail.
    if !report.unplugs.is_empty() {
        let _ = write!(text, "\n\n{}", table(rows));
    }
    if !report.additions.is_empty() {
        let _ = write!(text, "\n\n{}", additions_text(report));
    }
    if let Ok(best) = best
        && !best.is_present()
    {
        let _ = write!(text, "\n\n{}", best.moves_text());
    }
    text
}

/// The best cabling of the ports, in words
fn best_cabling(best: &Best) -> String {
    let which = if best.is_present() { "this one".to_owned() } else { best.takes() };
    format!("{which}: {}", best.verdict())
}

/// The cables to add that make the operation faster, as a table
fn additions_text(report: &Planned<'_>) -> String {
    let faster = report.additions.iter().filter(|addition| {
        // 1.000 in the table.
        addition.seconds_per_byte / report.plan_seconds_per_byte < 0.9995
    });
    let mut rows = vec![["cable to add", "then"].map(str::to_owned)];
    rows.extend(faster.map(|addition| {
        let gain = addition.seconds_per_byte / report.bound_seconds_per_byte;
        [cable(addition.ends), format!("{gain:.3} × as long")]
    }));
    if rows.len() == 1 { "no single cable makes it faster".to_owned() } else { table(rows) }
}

/// The certificate in words
fn proof(report: &Planned<'_>) -> String {
    let set = |hosts: &Vec<&str>| format!("{{{}}}", hosts.join(" "));
    match &report.certificate {
        Proof::Partition(parts) => {
            let crossings = 2 * (parts.len() - 1);
            let parts = parts.iter().map(set).collect::<Vec<_>>().join(" ");
            format!(
                "each byte crosses between {parts} at least {crossings} times, over all cables between them"
            )
        }
        Proof::Cut(hosts) => {
            format!("all data of {} for others goes over the cables out of this set", set(hosts))
        }
        Proof::Prices(prices) => {
            let has_hosts = prices.iter().any(|price| price.from.is_none() || price.to.is_none());
            let all = if has_hosts { "all cables and Macs with caps" } else { "all cables" };
            format!(
                "at the prices in the plan file (--out), even the cheapest ways of the data cost as much as that time of {all}"
            )
        }
    }
}

fn trees(plan: &Plan) -> String {
    let depth = plan.trees.iter().map(|tree| {
        let mut depths = vec![0; plan.hosts.len()];
        tree.arcs.iter().for_each(|&(from, to)| depths[to] = depths[from] + 1);
        depths.into_iter().max().unwrap_or(0)
    });
    let depth = depth.max().unwrap_or(0);
    format!("{}, {depth} {} deep", plan.trees.len(), if depth == 1 { "hop" } else { "hops" })
}
