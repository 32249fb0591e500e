use std::sync::Arc;

use rdma_core::{AnyDevice, Error, Runtime};

use crate::conformance::expectations::Expectations;
use crate::findings::Findings;

/// A side of a calibration: a device, and a clock
pub trait Machine: Send + Sync {
    /// Opens the device; transitions to RTR of its queue pairs have these attributes
    ///
    /// # Errors
    ///
    /// The [`Error`] of the backend.
    fn open(&self, path: Path) -> Result<AnyDevice, Error>;

    /// The number of cables to the other machine: those beside the first one carry together with it, in one experiment
    fn cables(&self) -> usize {
        1
    }

    /// Opens the device of a cable; number 0 is that of [`open`](Self::open), and both machines number the cables equally
    ///
    /// # Errors
    ///
    /// The [`Error`] of the backend.
    fn open_cable(&self, cable: usize) -> Result<AnyDevice, Error> {
        let _ = cable;
        self.open(Path::default())
    }

    /// The clock and the timers
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// True if a task that waits for a completion polls all the time, so that nothing wakes it
    fn is_polling(&self) -> bool {
        false
    }

    /// The number of processors of this machine, if the system states it; else the calibration counts how many tasks run at once
    fn cores(&self) -> Option<usize> {
        None
    }

    /// Called when the experiments called `name` begin, the first `number` being 1 and the last one `count`: for a display of progress
    fn begins(&self, name: &'static str, number: usize, count: usize) {
        let _ = (name, number, count);
    }

    /// Called with what was found so far when the experiments of a stage have ended: the last findings of a calibration that ends later
    /// with an error, or with a verb that does not return
    fn found(&self, findings: &Findings) {
        let _ = findings;
    }

    /// The kind of the device, for the conformance body; by default a network adapter if it has one-sided operations, and else Apple's, of
    /// which experiments find the rules in which devices differ
    fn expectations(&self) -> Option<Expectations> {
        None
    }

    /// Opens the device as programs in C see it; `None` if there is no such view, as of a simulated device without the provider
    fn open_for_c(&self) -> Option<Result<ViewOfC, Error>> {
        None
    }
}

/// A device, and what programs in C see of it beside the traits
pub struct ViewOfC {
    /// The device, of which each completion queue reports to a completion channel and asks for one event
    pub device: AnyDevice,
    /// The number of entries of the GID table, set or not
    pub gid_table_len: u32,
    /// Takes the events that have come to the completion channel, and returns how many there were; or why there is no channel
    pub completion_events: Result<Box<dyn FnMut() -> Result<u32, Error> + Send>, Error>,
}

/// Attributes of the transition to RTR
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Path {
    /// Index of the source in the GID table; by default that of a usable entry
    pub source_index: Option<u8>,
    /// Path MTU in bytes
    pub mtu: u32,
}

impl Default for Path {
    fn default() -> Self {
        Self { source_index: None, mtu: 1024 }
    }
}
