//! `tb5 bench`: how long collective operations take, beside the bound and the published schedules of JACCL

mod cluster;
mod jaccl;
mod measure;
mod number;
mod reduce;
mod report;
mod workload;

use anyhow::{Result, bail};
use half::{bf16, f16};
use rdma_collectives::{Costs, Plan, plan};
use rdma_sim::FaultPlan;
use rdma_sim::topology::Shape;

use self::cluster::Macs;
use self::jaccl::Jaccl;
use self::measure::{Measured, measure};
use self::number::Number;
pub(crate) use self::number::NumberType;
pub(crate) use self::reduce::AllReduce;
pub(crate) use self::report::Row;
use self::report::{Header, Rows};
use self::workload::{ROOT, Workload};
use crate::args::Bench;
use crate::failure::Failure;
use crate::report::Output;
use crate::topo::{cabling, operation, unplanned};
use crate::{cabled_macs, mac, sizes};

/// How many hosts a shape has without a number.
const HOSTS: usize = 4;
/// The most data of all ranks together, in bytes: a measurement takes a few times as much memory.
const MAX_DATA: u64 = 4 << 30;

pub(crate) fn run(args: &Bench, output: Output) -> Result<()> {
    let hosts = args.hosts.or_else(|| default_hosts(&args.topology));
    let topology = cabled_macs::read(&args.topology, hosts)?;
    let cabling = cabling(&topology)?;
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
    let bench = Measurement {
        args,
        plan: plan(&cabling, &operation).map_err(|error| unplanned(&error, &cabling))?,
        jaccl: Jaccl::new(&topology, args.operation),
        macs,
    };
    let header = Header::new(args, ranks, bench.jaccl.describe());
    let mut rows = Rows::new(header, args.bytes.each().count(), output)?;
    match args.dtype {
        NumberType::Bf16 => bench.measure::<bf16>(&mut rows),
        NumberType::F16 => bench.measure::<f16>(&mut rows),
        NumberType::F32 => bench.measure::<f32>(&mut rows),
        NumberType::F64 => bench.measure::<f64>(&mut rows),
        NumberType::I8 => bench.measure::<i8>(&mut rows),
        NumberType::I16 => bench.measure::<i16>(&mut rows),
        NumberType::I32 => bench.measure::<i32>(&mut rows),
        NumberType::I64 => bench.measure::<i64>(&mut rows),
        NumberType::U8 => bench.measure::<u8>(&mut rows),
        NumberType::U16 => bench.measure::<u16>(&mut rows),
        NumberType::U32 => bench.measure::<u32>(&mut rows),
        NumberType::U64 => bench.measure::<u64>(&mut rows),
    }?;
    rows.finish()
}

/// The number of hosts of a shape without one; `None` for a pair, a file, and a shape with a number
fn default_hosts(topology: &str) -> Option<usize> {
    match topology.parse() {
        Ok(Shape::Pair) | Err(_) => None,
        Ok(_) => Some(HOSTS),
    }
}

/// What is measured
struct Measurement<'a> {
    args: &'a Bench,
    macs: Macs<'a>,
    plan: Plan,
    jaccl: Jaccl<'a>,
}

impl Measurement<'_> {
    /// Measures each size, as long as the output is read
    fn measure<T: Number>(&self, rows: &mut Rows<'_>) -> Result<()> {
        let ranks = self.macs.cabling.hosts().len();
        let mut last = 0;
        for bytes in self.args.bytes.each() {
            let workload = Workload::new(self.args.operation, ranks, bytes, size_of::<T>());
            // Short vectors are rounded to the same length.
            if workload.elements() == last {
                continue;
            }
            last = workload.elements();
            if !rows.push(self.row::<T>(&workload)?)? {
                break;
            }
        }
        Ok(())
    }

    fn row<T: Number>(&self, workload: &Workload) -> Result<Row> {
        let (mut measured, _) = measure::<T>(&self.macs, workload)?;
        if let Some(element) = self.args.spoil
            && let Some(found) = measured.outputs[ROOT].get_mut(element)
        {
            *found = T::default();
        }
        let jaccl = self.jaccl.measure::<T>(&self.macs, workload)?;
        let mut row = beside_bound(&self.macs, &self.plan, workload, &measured)?;
        let wrong = jaccl.as_ref().map_or(0, |jaccl| workload.wrong(&jaccl.outputs));
        row.set_wrong(workload.wrong(&measured.outputs), wrong);
        row.jaccl_ns = jaccl.map(|jaccl| jaccl.time.as_nanos() as u64);
        Ok(row)
    }
}

/// The figures of what was measured, beside the bound
fn beside_bound<T>(macs: &Macs<'_>, plan: &Plan, workload: &Workload, measured: &Measured<T>) -> Result<Row> {
    let mut row = Row::new(workload, size_of::<T>(), measured.time);
    let prediction = plan.predict(macs.cabling, workload.payload(row.size_bytes), Costs::default())?;
    row.lower_bound_ns = (prediction.lower_bound * 1e9) as u64;
    Ok(row)
}
