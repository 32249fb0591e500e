//! Findings of the demonstration, each result beside its limit

use rdma_sim::LineRate;
use serde::Serialize;

use super::super::comparison::Comparison;
use crate::copy::remote::Outcome;
use crate::devices::DeviceList;
use crate::machines::Carried;
use crate::measure::{RemoteBw, RemotePing};
use crate::report::{bytes, duration, rate};

/// Everything that the report shows
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    /// Carrier of the ping: `rdma` or `tcp`
    pub(super) backend: &'static str,
    pub(super) peer: String,
    pub(super) carrier: String,
    /// Devices of this machine.
    pub(super) machine: DeviceList,
    pub(super) ping: RemotePing,
    pub(super) tcp_ping: Option<RemotePing>,
    /// With one send in flight, and with several.
    pub(super) bw: [RemoteBw; 2],
    pub(super) tcp_bw: Option<RemoteBw>,
    /// Why TCP was not measured, if it was not
    pub(super) tcp_missing: Option<&'static str>,
    pub(super) copy: Outcome,
    /// With all paths broken in its middle
    pub(super) copy_drill: Outcome,
    pub(super) all_reduce: Reduced,
}

/// The all_reduces
#[derive(Debug, Serialize)]
pub(super) struct Reduced {
    pub(super) bytes: u64,
    /// Of the fastest one
    pub(super) time_ns: u64,
    /// Of one with all paths broken in its middle
    pub(super) drill_ns: u64,
    #[serde(flatten)]
    pub(super) carried: Carried,
}

/// Reference rate for goodput
struct Limit {
    bytes_per_second: f64,
    name: &'static str,
    /// Whether it is independent of the measured goodput
    is_independent: bool,
}

impl Findings {
    /// The most payload that the cables carry, in bytes per second, if all state their rate
    pub(super) fn ceiling(&self) -> Option<f64> {
        let rates = self.ping.carried.devices.iter().filter(|device| *device != Carried::TCP);
        let rates: Option<Vec<_>> = rates.map(|device| self.machine.bits_per_second(device)).collect();
        let ceilings =
            rates?.into_iter().map(|rate| LineRate { bits_per_second: rate }.ceiling_bytes_per_second());
        Some(ceilings.sum()).filter(|ceiling| *ceiling > 0.0)
    }

    fn limit(&self) -> Limit {
        match (self.ceiling(), &self.tcp_bw) {
            (Some(bytes_per_second), _) => {
                Limit { bytes_per_second, name: "the ceiling of the cables", is_independent: true }
            }
            (None, Some(tcp)) => {
                Limit { bytes_per_second: tcp.best(), name: "the best over TCP", is_independent: true }
            }
            (None, None) => {
                Limit { bytes_per_second: self.best(), name: "the best of messages", is_independent: false }
            }
        }
    }

    /// The highest goodput of messages
    fn best(&self) -> f64 {
        self.bw.iter().map(RemoteBw::best).fold(0.0, f64::max)
    }

    /// The results that the tables show
    pub(super) fn comparisons(&self) -> Vec<Comparison> {
        let limit = self.limit();
        let beside_limit = format!("{}, {}", rate(limit.bytes_per_second), limit.name);
        let of = |rate: f64| format!("{:.1} %", rate / limit.bytes_per_second * 100.0);
        let Self { ping, copy, copy_drill, all_reduce, .. } = self;
        let bound_ns = (all_reduce.bytes as f64 / limit.bytes_per_second * 1e9) as u64;
        let drill = |name, time_ns: u64, undisturbed_ns: u64, carried: &Carried| Comparison {
            name,
            result: duration(time_ns),
            limit: format!("{} undisturbed", duration(undisturbed_ns)),
            verdict: format!("{}; {}", beside(time_ns, undisturbed_ns), carried.describe()),
        };
        let nanos = |outcome: &Outcome| (outcome.wall_seconds * 1e9) as u64;
        vec![
            Comparison {
                name: "ping of 64 B, median",
                result: duration(ping.rtt_ns.p50),
                limit: self.tcp_ping.as_ref().map_or_else(
                    || self.tcp_missing.unwrap_or_default().to_owned(),
                    |tcp| format!("{} over TCP", duration(tcp.rtt_ns.p50)),
                ),
                verdict: self.tcp_ping.as_ref().map_or_else(String::new, |tcp| {
                    format!("{:.1} times as fast", tcp.rtt_ns.p50 as f64 / ping.rtt_ns.p50 as f64)
                }),
            },
            Comparison {
                name: "best goodput",
                result: rate(self.best()),
                limit: if limit.is_independent {
                    beside_limit.clone()
                } else {
                    format!(
                        "none: {} states no rate",
                        if self.backend == Carried::TCP { "TCP" } else { "the cable" }
                    )
                },
                verdict: if limit.is_independent { of(self.best()) } else { String::new() },
            },
            Comparison {
                name: "copy of a directory",
                result: rate(copy.goodput_bytes_per_second),
                limit: beside_limit,
                verdict: format!("{}; {} verified", of(copy.goodput_bytes_per_second), bytes(copy.bytes)),
            },
            Comparison {
                name: "all_reduce of 16 MiB",
                result: duration(all_reduce.time_ns),
                limit: format!("{} for the bytes alone", duration(bound_ns)),
                verdict: format!("{:.1} %", bound_ns as f64 / all_reduce.time_ns as f64 * 100.0),
            },
            drill("copy, all paths broken", nanos(copy_drill), nanos(copy), &copy_drill.carried),
            drill(
                "all_reduce, all paths broken",
                all_reduce.drill_ns,
                all_reduce.time_ns,
                &all_reduce.carried,
            ),
        ]
    }
}

/// Difference between the times of a drill and of the same undisturbed: two measurements, of which either may be the slower one
pub(super) fn beside(drill_ns: u64, undisturbed_ns: u64) -> String {
    match drill_ns.checked_sub(undisturbed_ns) {
        Some(more) => format!("{} more", duration(more)),
        None => format!("{} less", duration(undisturbed_ns - drill_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a drill that took less time than the first measurement took "0.000 µs more".
    #[test]
    fn a_drill_may_take_less_time() {
        assert_eq!(beside(3_000, 1_000), "2.000 µs more");
        assert_eq!(beside(1_000, 3_000), "2.000 µs less");
    }
}
