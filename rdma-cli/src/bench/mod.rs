//! `tb5 bench`: how long collective operations take, beside the bound and the published schedules of JACCL

mod cluster;
mod elements;
mod group;
mod jaccl;
mod number;
mod reduce;
mod report;
mod workload;

use std::time::Duration;

use anyhow::{Result, bail};
use half::{bf16, f16};
use rdma_collectives::{Costs, Plan, plan};
use rdma_sim::FaultPlan;
use rdma_sim::topology::Shape;

use self::cluster::Macs;
use self::elements::Elements;
use self::group::run_operation;
use self::jaccl::Jaccl;
pub(crate) use self::number::NumberType;
pub(crate) use self::reduce::AllReduce;
pub(crate) use self::report::Row;
use self::report::{Header, Rows};
use self::workload::{ROOT, Workload};
use crate::args::Bench;
use crate::failure::Failure;
use crate::report::{Output, note};
use crate::topo::{cabling, operation, unplanned};
use crate::{cabled_macs, mac, sizes};

/// Hosts of a shape without a number.
const HOSTS: usize = 4;
/// The most data of all ranks together, in bytes: a measurement takes a few times as much memory.
const MAX_DATA: u64 = 4 << 30;

pub(crate) fn run(args: &Bench, output: Output) -> Result<()> {
    let hosts = args.hosts.or_else(|| default_hosts(&args.topology));
    let topology = cabled_macs::read(&args.topology, hosts)?;
    let cabling = cabling(&args.topology, &topology)?;
    if topology.hosts().iter().any(|host| host.cap().is_some()) {
        note("the simulator does not slow Macs with caps down: plans and bounds are those without");
    }
    let ranks = cabling.hosts().len();
    let longest = args.bytes.each().last().unwrap_or(0);
    if longest.saturating_mul(ranks as u64) > MAX_DATA {
        let why =
            format!("--bytes: {ranks} hosts with {} each have more than 4GiB together", sizes::text(longest));
        bail!(Failure::usage(why));
    }
    let model = mac::model(&args.profile)?;
    let operation = operation(args.operation, ranks, ROOT);
    let macs = Macs {
        topology: &topology,
        cabling: &cabling,
        model,
        seed: args.seed,
        faults: FaultPlan::none(),
        keeps_records: false,
    };
    let setup = Setup {
        args,
        elements: elements(args.dtype),
        plan: plan(&cabling, &operation).map_err(|error| unplanned(&args.topology, &error, &cabling))?,
        jaccl: Jaccl::new(&topology, args.operation),
        macs,
    };
    let header = Header::new(args, ranks, setup.jaccl.describe());
    let mut rows = Rows::new(header, args.bytes.each().count(), output)?;
    setup.measure_sizes(&mut rows)?;
    rows.finish()
}

/// The number of hosts of a shape without one; `None` for a pair, a file, and a shape with a number
fn default_hosts(topology: &str) -> Option<usize> {
    match topology.parse() {
        Ok(Shape::Pair) | Err(_) => None,
        Ok(_) => Some(HOSTS),
    }
}

fn elements(dtype: NumberType) -> Elements {
    match dtype {
        NumberType::Bf16 => Elements::new::<bf16>(),
        NumberType::F16 => Elements::new::<f16>(),
        NumberType::F32 => Elements::new::<f32>(),
        NumberType::F64 => Elements::new::<f64>(),
        NumberType::I8 => Elements::new::<i8>(),
        NumberType::I16 => Elements::new::<i16>(),
        NumberType::I32 => Elements::new::<i32>(),
        NumberType::I64 => Elements::new::<i64>(),
        NumberType::U8 => Elements::new::<u8>(),
        NumberType::U16 => Elements::new::<u16>(),
        NumberType::U32 => Elements::new::<u32>(),
        NumberType::U64 => Elements::new::<u64>(),
    }
}

/// A group, the schedules of JACCL, and the Macs for both
struct Setup<'a> {
    args: &'a Bench,
    elements: Elements,
    macs: Macs<'a>,
    plan: Plan,
    jaccl: Jaccl<'a>,
}

impl Setup<'_> {
    /// Measures each size, as long as the output is read
    fn measure_sizes(&self, rows: &mut Rows<'_>) -> Result<()> {
        let ranks = self.macs.cabling.hosts().len();
        let (mut last, mut is_noted) = (0, false);
        for bytes in self.args.bytes.each() {
            let workload = Workload::new(self.args.operation, ranks, bytes, self.elements.size)?;
            // Short vectors are rounded to the same length.
            if workload.elements() == last {
                continue;
            }
            last = workload.elements();
            let measured = (last * self.elements.size) as u64;
            if measured != bytes && !is_noted {
                let [asked, measured] = [bytes, measured].map(sizes::text);
                note(&format!("sizes are whole elements in equal parts: {measured} instead of {asked}"));
                is_noted = true;
            }
            if !rows.push(self.row(&workload)?)? {
                break;
            }
        }
        Ok(())
    }

    fn row(&self, workload: &Workload) -> Result<Row> {
        let Self { args, elements, macs, plan, jaccl } = self;
        let (mut measured, _) = run_operation(macs, workload, elements)?;
        if let Some(element) = args.spoil
            && let Some(found) = measured.outputs[ROOT].chunks_exact_mut(elements.size).nth(element)
        {
            found.fill(0);
        }
        let jaccl = jaccl.run_fastest(macs, workload, elements)?;
        let mut row = beside_bound(macs, plan, workload, elements.size, measured.time)?;
        let wrong = jaccl.as_ref().map_or(0, |jaccl| workload.wrong(&jaccl.outputs, elements));
        row.set_wrong(workload.wrong(&measured.outputs, elements), wrong);
        row.jaccl_ns = jaccl.map(|jaccl| jaccl.time.as_nanos() as u64);
        Ok(row)
    }
}

/// The figures of what was measured, beside the bound
fn beside_bound(
    macs: &Macs<'_>,
    plan: &Plan,
    workload: &Workload,
    element_size: usize,
    time: Duration,
) -> Result<Row> {
    let mut row = Row::new(workload, element_size, time);
    let prediction = plan.predict(macs.cabling, workload.payload(row.size_bytes), Costs::default())?;
    row.lower_bound_ns = (prediction.lower_bound * 1e9) as u64;
    Ok(row)
}
