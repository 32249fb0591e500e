//! Findings of the demonstration, each result beside its limit

use rdma_sim::History;
use rdma_sim::topology::Topology;

use super::super::comparison::Comparison;
use super::unplug::Unplugged;
use crate::bench::Row;
use crate::bw::BwResult;
use crate::copy::CopyResult;
use crate::devices::DeviceList;
use crate::ping::PingResult;
use crate::report::{bytes, duration, rate};

/// Everything that the report shows
pub(super) struct Findings {
    pub(super) topology: Topology,
    pub(super) machine: DeviceList,
    pub(super) devices: Vec<DeviceList>,
    pub(super) ping: PingResult,
    /// With one send in flight, and with several.
    pub(super) bw: [BwResult; 2],
    pub(super) copy: CopyResult,
    pub(super) all_reduce: Row,
    pub(super) copy_unplugged: (Unplugged, History),
    pub(super) all_reduce_unplugged: (Unplugged, History),
}

impl Findings {
    /// The results that the tables show
    pub(super) fn comparisons(&self) -> Vec<Comparison> {
        let of = |part: f64, whole: f64| format!("{:.1} %", part / whole * 100.0);
        let [_, bw] = &self.bw;
        let (ping, copy, reduce) = (&self.ping, &self.copy, &self.all_reduce);
        let ceiling = bw.ceiling_bytes_per_second.expect("bytes take time under the default profile");
        let unplugged = |name, unplugged: &Unplugged| Comparison {
            name,
            result: duration(unplugged.time_ns),
            limit: {
                let outage = if unplugged.outage_ns.is_some() { " and the outage" } else { "" };
                format!("{}, an undisturbed one{outage}", duration(unplugged.limit_ns()))
            },
            verdict: format!("{} more", duration(unplugged.time_ns.saturating_sub(unplugged.limit_ns()))),
        };
        vec![
            Comparison {
                name: "ping of 64 B, median",
                result: duration(ping.rtt_ns.p50),
                limit: format!("{} on bare verbs", duration(ping.bare_rtt_ns)),
                verdict: format!("{:+.2} %", ping.overhead_percent()),
            },
            Comparison {
                name: "best goodput",
                result: rate(bw.best()),
                limit: format!("{}, the ceiling of the cable", rate(ceiling)),
                verdict: of(bw.best(), ceiling),
            },
            Comparison {
                name: "copy of a directory",
                result: rate(copy.goodput_bytes_per_second),
                limit: format!("{}, the ceiling of the cable", rate(copy.ceiling_bytes_per_second)),
                verdict: format!(
                    "{}; {} in {} files verified",
                    of(copy.goodput_bytes_per_second, copy.ceiling_bytes_per_second),
                    bytes(copy.bytes),
                    copy.files
                ),
            },
            Comparison {
                name: "all_reduce of 16 MiB",
                result: duration(reduce.time_ns),
                limit: format!("{}, the bound of any plan", duration(reduce.lower_bound_ns)),
                verdict: match reduce.jaccl_ns {
                    Some(jaccl) => format!(
                        "{}; JACCL takes {}",
                        of(reduce.lower_bound_ns as f64, reduce.time_ns as f64),
                        duration(jaccl)
                    ),
                    None => of(reduce.lower_bound_ns as f64, reduce.time_ns as f64),
                },
            },
            unplugged("copy, cable pulled for 2 ms", &self.copy_unplugged.0),
            unplugged("all_reduce, cable pulled for good", &self.all_reduce_unplugged.0),
        ]
    }
}
