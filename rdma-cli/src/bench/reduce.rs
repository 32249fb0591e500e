//! One all_reduce, with the history of its run

use anyhow::Result;
use rdma_collectives::plan;
use rdma_core::Time;
use rdma_sim::topology::Topology;
use rdma_sim::{FaultPlan, History, Model};

use super::beside_bound;
use super::cluster::Macs;
use super::elements::Elements;
use super::group::run_operation;
use super::jaccl::Jaccl;
use super::report::Row;
use super::workload::{ROOT, Workload};
use crate::args::OperationName;
use crate::topo::{cabling, operation, unplanned};

/// An all_reduce of 32-bit floating-point numbers on simulated Macs
pub(crate) struct AllReduce<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) bytes: u64,
    pub(crate) seed: u64,
    pub(crate) faults: FaultPlan,
    pub(crate) keeps_records: bool,
}

/// An all_reduce whose result was checked, element by element
pub(crate) struct AllReduced {
    /// When all ranks started
    pub(crate) start: Time,
    pub(crate) row: Row,
    pub(crate) history: History,
}

/// Name of the topology in errors
const MACS: &str = "the simulated Macs";

impl AllReduce<'_> {
    /// Carries it out once; without faults, also by the schedules of JACCL
    pub(crate) fn run(self) -> Result<AllReduced> {
        let Self { topology, bytes, seed, faults, keeps_records } = self;
        let name = OperationName::AllReduce;
        let cabling = cabling(MACS, topology)?;
        let ranks = cabling.hosts().len();
        let operation = operation(name, ranks, ROOT);
        let plan = plan(&cabling, &operation).map_err(|error| unplanned(MACS, &error, &cabling))?;
        let has_faults = !faults.0.is_empty();
        let macs = Macs { topology, cabling: &cabling, model: Model::tb5(), seed, faults, keeps_records };
        let elements = Elements::new::<f32>();
        let workload = Workload::new(name, ranks, bytes, elements.size)?;
        let (measured, history) = run_operation(&macs, &workload, &elements)?;
        let mut row = beside_bound(&macs, &plan, &workload, elements.size, measured.time)?;
        // Bare verbs do not survive an unplugged cable.
        let jaccl = if has_faults {
            None
        } else {
            Jaccl::new(topology, name).run_fastest(&macs, &workload, &elements)?
        };
        let wrong = jaccl.as_ref().map_or(0, |jaccl| workload.wrong(&jaccl.outputs, &elements));
        row.set_wrong(workload.wrong(&measured.outputs, &elements), wrong);
        row.jaccl_ns = jaccl.map(|jaccl| jaccl.time.as_nanos() as u64);
        Ok(AllReduced { start: measured.start, row, history })
    }
}
