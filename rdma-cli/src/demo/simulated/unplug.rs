//! A cable that is pulled in the middle of the work, and plugged in again

use std::time::Duration;

use anyhow::Result;
use rdma_core::Time;
use rdma_sim::{Fault, FaultPlan, History};
use serde::Serialize;

use crate::mac;

/// Time for which the cable is out.
const OUTAGE: Duration = Duration::from_millis(2);

/// Work during which a cable was out
#[derive(Debug, Serialize)]
pub(super) struct Unplugged {
    faults: String,
    pub(super) time_ns: u64,
    /// The same work without faults
    pub(super) undisturbed_ns: u64,
    pub(super) outage_ns: u64,
}

impl Unplugged {
    /// The time if nothing went over any cable during the outage, and nothing had to be repaired
    pub(super) fn limit_ns(&self) -> u64 {
        self.undisturbed_ns + self.outage_ns
    }
}

/// Does work again that took this long from `start`, and pulls the cable between `a` and `b` in its middle
pub(super) fn during(
    start: Time,
    took: Duration,
    work: impl FnOnce(FaultPlan) -> Result<(Duration, History)>,
) -> Result<(Unplugged, History)> {
    let middle = start + took / 2;
    let fault =
        |at: Time, kind: &str| format!("at {}ns a:{} {kind}", at.as_nanos(), mac::device(0)).parse::<Fault>();
    let faults = FaultPlan(vec![fault(middle, "unplug")?, fault(middle + OUTAGE, "replug")?]);
    let text = faults.to_string();
    let (time, history) = work(faults)?;
    let unplugged = Unplugged {
        faults: text,
        time_ns: time.as_nanos() as u64,
        undisturbed_ns: took.as_nanos() as u64,
        outage_ns: OUTAGE.as_nanos() as u64,
    };
    Ok((unplugged, history))
}
