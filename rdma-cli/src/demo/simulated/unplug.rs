//! A cable that is pulled in the middle of the work

use std::time::Duration;

use anyhow::Result;
use rdma_core::Time;
use rdma_sim::{Fault, FaultPlan, History};
use serde::Serialize;

use crate::mac;

/// Work during which a cable was out
#[derive(Debug, Serialize)]
pub(super) struct Unplugged {
    faults: String,
    pub(super) time_ns: u64,
    /// The same work without faults
    pub(super) undisturbed_ns: u64,
    /// `None` if the cable is not plugged in again
    pub(super) outage_ns: Option<u64>,
}

impl Unplugged {
    /// The time of the same work without faults, and of the outage if there is an end to it
    pub(super) fn limit_ns(&self) -> u64 {
        self.undisturbed_ns + self.outage_ns.unwrap_or_default()
    }
}

/// Does work again that took this long from `start`, and pulls the cable between `a` and `b` in its middle
///
/// The cable is plugged in again after `outage`.
pub(super) fn during(
    start: Time,
    took: Duration,
    outage: Option<Duration>,
    work: impl FnOnce(FaultPlan) -> Result<(Duration, History)>,
) -> Result<(Unplugged, History)> {
    let middle = start + took / 2;
    let fault =
        |at: Time, kind: &str| format!("at {}ns a:{} {kind}", at.as_nanos(), mac::device(0)).parse::<Fault>();
    let mut faults = vec![fault(middle, "unplug")?];
    if let Some(outage) = outage {
        faults.push(fault(middle + outage, "replug")?);
    }
    let faults = FaultPlan(faults);
    let text = faults.to_string();
    let (time, history) = work(faults)?;
    let unplugged = Unplugged {
        faults: text,
        time_ns: time.as_nanos() as u64,
        undisturbed_ns: took.as_nanos() as u64,
        outage_ns: outage.map(|outage| outage.as_nanos() as u64),
    };
    Ok((unplugged, history))
}
