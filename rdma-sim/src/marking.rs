//! Keeps what the program of a run states of itself, for its page

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rdma_core::Runtime;
use rdma_core::probe::{self, Observation, Observer, PeeringState, ProtocolState, Statement};

use crate::executor::SimRuntime;
use crate::trace::{Mark, MarkContent};

/// Keeps states and statements, and shows all to the observer before it
struct Marking {
    runtime: Arc<SimRuntime>,
    outer: Option<Rc<dyn Observer>>,
}

/// Keeps the states and statements of the program of this thread in `runtime`, until the observation is dropped
pub(crate) fn observe(runtime: &Arc<SimRuntime>) -> Observation {
    probe::observe(Rc::new(Marking { runtime: Arc::clone(runtime), outer: probe::observer() }))
}

impl Marking {
    fn keep(&self, content: MarkContent) {
        self.runtime.mark(|host| Mark { time: self.runtime.now(), host, content });
    }
}

impl Observer for Marking {
    fn evaluated(&self, statement: Statement, holds: bool) {
        self.keep(MarkContent::Statement(statement, holds));
        if let Some(outer) = &self.outer {
            outer.evaluated(statement, holds);
        }
    }

    fn state(&self, label: &'static str, value: u64) {
        self.keep(MarkContent::State(label, value));
        if let Some(outer) = &self.outer {
            outer.state(label, value);
        }
    }

    fn waits_for(&self, event: fmt::Arguments<'_>) {
        if let Some(outer) = &self.outer {
            outer.waits_for(event);
        }
    }

    fn reached(&self, state: ProtocolState) {
        if let Some(outer) = &self.outer {
            outer.reached(state);
        }
    }

    fn watches_peerings(&self) -> bool {
        self.outer.as_ref().is_some_and(|outer| outer.watches_peerings())
    }

    fn peering(&self, has_connected: bool, state: PeeringState) {
        if let Some(outer) = &self.outer {
            outer.peering(has_connected, state);
        }
    }

    fn fault_fires(&self, host: &str, name: &str) {
        if let Some(outer) = &self.outer {
            outer.fault_fires(host, name);
        }
    }
}
