//! Scenario files

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use rdma_async::NodeOptions;
use rdma_sim::topology::TopologyTable;
use rdma_sim::{Fault, FaultKind, FaultPlan, Model, Topology};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::expect::Expect;
use super::invalid::Invalid;
use super::period::Period;
use super::port::Port;
use super::rules::{self, RulesTable};
use super::workload::{Exchange, Idle, Kind, Ping, Program, Stream, Verbs, Workload};
use crate::failure::shown;
use crate::input::read_named;
use crate::report::plain;

/// Faults, the programs that run under them, and the expected end
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) about: String,
    pub(crate) topology: Topology,
    pub(crate) model: Model,
    pub(crate) faults: FaultPlan,
    pub(crate) links: Vec<[Port; 2]>,
    pub(crate) options: NodeOptions,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) expect: Expect,
}

/// Keys of scenarios of all kinds
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    name: Spanned<String>,
    source: String,
    about: String,
    profile: Option<Spanned<String>>,
    #[serde(default)]
    rules: RulesTable,
    topology: Option<TopologyTable>,
    links: Option<Spanned<Vec<Pair>>>,
    node: Option<Spanned<NodeTable>>,
    #[serde(default)]
    faults: Vec<Spanned<String>>,
    workload: KindOfWorkload,
    expect: Expect,
}

/// `[workload]`, of which the kind decides the type
#[derive(Deserialize)]
struct KindOfWorkload {
    kind: Kind,
}

/// The workload alone, in its own type
#[derive(Deserialize)]
struct WorkloadOf<P> {
    workload: Spanned<P>,
}

/// The ends of a link; their number is checked, because a fixed array would let further ones pass
type Pair = Spanned<Vec<Spanned<String>>>;

/// `[node]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    connect_timeout: Option<Period>,
    max_message: Option<u32>,
    peer_timeout: Option<Spanned<Period>>,
}

/// The shortest peer timeout: a day of the questions and reports of a shorter one takes too long to simulate.
const SHORTEST_TIMEOUT: Period = Period(std::time::Duration::from_millis(100));
/// Maximum length of a scenario file.
const MAX_BYTES: u64 = 1 << 20;

impl Scenario {
    /// Reads a scenario
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = text(path)?;
        Self::parse(&text).map_err(|Invalid { offset, why }| {
            let before = &text.as_bytes()[..offset.min(text.len())];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            anyhow!("{}:{line}: {}", shown(path), plain(&why))
        })
    }

    fn parse(text: &str) -> Result<Self, Invalid> {
        let body: Body = toml::from_str(text).map_err(|error| Invalid::of_toml(text, &error))?;
        let node = body.node.as_ref();
        let workload = match body.workload.kind {
            Kind::Exchange => workload::<Exchange>(text, node),
            Kind::Idle => workload::<Idle>(text, node),
            Kind::Ping => workload::<Ping>(text, node),
            Kind::Stream => workload::<Stream>(text, node),
            Kind::Verbs => workload::<Verbs>(text, node),
        }?;
        if body.name.get_ref().is_empty() {
            return Err(Invalid::at(
                &body.name,
                "the name is empty: write the name of the file without .toml",
            ));
        }
        let topology = match body.topology {
            Some(table) => table.build(text).map_err(|error| Invalid::in_line(text, &error))?,
            None => Topology::pair(),
        };
        let model = rules::model(body.profile.as_ref(), &body.rules)?;
        let faults = faults(&body.faults, &topology)?;
        let links = links(body.links, &topology)?;
        let options = options(node.map(Spanned::get_ref))?;
        body.expect.check(&links)?;
        Ok(Self {
            name: body.name.into_inner(),
            source: body.source,
            about: body.about,
            topology,
            model,
            faults,
            links,
            options,
            workload,
            expect: body.expect,
        })
    }

    /// Whether the processes of `host` die and do not come back
    pub(crate) fn kills(&self, host: &str) -> bool {
        let is_turn = |fault: &&Fault| {
            fault.target.host() == host && matches!(fault.kind, FaultKind::Kill | FaultKind::Restart)
        };
        let last = self.faults.0.iter().rfind(is_turn);
        last.is_some_and(|fault| fault.kind == FaultKind::Kill)
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    read_named(path, MAX_BYTES).map_err(|error| match error.downcast_ref::<io::Error>() {
        Some(missing) if missing.kind() == io::ErrorKind::NotFound => {
            anyhow!("{error:#}; examples are in rdma-sim/scenarios")
        }
        _ => error,
    })
}

/// Reads the program that runs at each end of each link
fn workload<P>(text: &str, node: Option<&Spanned<NodeTable>>) -> Result<Arc<dyn Workload>, Invalid>
where
    P: Program + DeserializeOwned,
{
    let WorkloadOf::<P> { workload } =
        toml::from_str(text).map_err(|error| Invalid::of_toml(text, &error))?;
    let program = workload.get_ref();
    if let Some(node) = node
        && !program.has_sessions()
    {
        return Err(Invalid::at(node, "this kind of workload has no nodes: remove this table"));
    }
    program.check().map_err(|why| Invalid::at(&workload, why))?;
    Ok(Arc::new(workload.into_inner()))
}

fn faults(texts: &[Spanned<String>], topology: &Topology) -> Result<FaultPlan, Invalid> {
    let read = |text: &Spanned<String>| {
        let plan = text.get_ref().parse::<Fault>().map(|fault| FaultPlan(vec![fault]));
        let checked = plan.and_then(|plan| plan.check(topology).map(|()| plan));
        checked.map_err(|error| Invalid::at(text, error.to_string()))
    };
    let plans = texts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(plans.into_iter().flat_map(|plan| plan.0).collect())
}

/// The pairs of ports between which programs communicate
fn links(pairs: Option<Spanned<Vec<Pair>>>, topology: &Topology) -> Result<Vec<[Port; 2]>, Invalid> {
    let default = || {
        let pair = ["a:rdma_en2", "b:rdma_en2"].map(|end| Spanned::new(0..0, end.to_owned()));
        Spanned::new(0..0, vec![Spanned::new(0..0, pair.into())])
    };
    let pairs = pairs.unwrap_or_else(default);
    if pairs.get_ref().is_empty() {
        let why = "links is empty: write two ports, or remove it for a:rdma_en2 and b:rdma_en2";
        return Err(Invalid::at(&pairs, why));
    }
    let exists =
        |port: &Port| topology.find_host(&port.host).is_some_and(|host| host.port(&port.device).is_some());
    let read = |end: &Spanned<String>| {
        let text = end.get_ref();
        let port =
            text.split_once(':').map(|(host, device)| Port { host: host.into(), device: device.into() });
        port.filter(exists).ok_or_else(|| {
            let why = format!("there is no port {text:?}: write two ports as HOST:DEVICE in links");
            Invalid::at(end, why)
        })
    };
    let link = |pair: &Pair| match &pair.get_ref()[..] {
        [a, b] => Ok([read(a)?, read(b)?]),
        ends => {
            let why = format!("a link has 2 ports, not {}: write two ports as HOST:DEVICE", ends.len());
            Err(Invalid::at(pair, why))
        }
    };
    pairs.get_ref().iter().map(link).collect()
}

fn options(table: Option<&NodeTable>) -> Result<NodeOptions, Invalid> {
    let mut options = NodeOptions::new();
    let Some(table) = table else { return Ok(options) };
    if let Some(Period(connect_timeout)) = table.connect_timeout {
        options = options.connect_timeout(connect_timeout);
    }
    if let Some(bytes) = table.max_message {
        options = options.max_message(bytes as usize);
    }
    if let Some(timeout) = &table.peer_timeout {
        if *timeout.get_ref() < SHORTEST_TIMEOUT {
            let why = format!("peer_timeout is shorter than {SHORTEST_TIMEOUT}");
            return Err(Invalid::at(timeout, why));
        }
        options = options.peer_timeout(timeout.get_ref().0);
    }
    Ok(options)
}
