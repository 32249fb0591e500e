//! What the device does to a program without an error

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_core::crosses_boundary;
use rdma_sim::Model;
use rdma_sim::rules::UcWrite;

use crate::log::log_error;

/// Logs what the device does to a program without an error, each outcome once in a process
pub(crate) struct SilentOutcomes {
    /// What becomes of an RDMA WRITE; `None` if the device places it as asked.
    write: Option<UcWrite>,
    has_reported_write: AtomicBool,
    /// Whether the device misplaces data beyond a 4 GiB boundary.
    has_boundary: bool,
    has_reported_boundary: AtomicBool,
}

impl SilentOutcomes {
    pub(crate) fn new(model: &Model) -> Self {
        Self {
            write: (!model.caps.one_sided).then_some(model.rules.uc_write),
            has_reported_write: AtomicBool::new(false),
            has_boundary: model.rules.boundary,
            has_reported_boundary: AtomicBool::new(false),
        }
    }

    /// Logs that an RDMA WRITE posted in `call` writes nothing
    ///
    /// The program gets no usable error: a WRITE that travels like a SEND waits for a receive, and 102 names no rule.
    pub(crate) fn log_write(&self, call: &str) {
        let outcome = match self.write {
            None => return,
            Some(UcWrite::AsSend) => "travels like a SEND and places nothing at the peer",
            Some(_) => "is refused",
        };
        if !self.has_reported_write.swap(true, Ordering::Relaxed) {
            log_error(&format!("{call}: an RDMA WRITE {outcome} (rule uc-write); post a SEND instead"));
        }
    }

    /// Logs that the device finds a part of registered `memory` only
    ///
    /// No verb reports it, and the system chooses where memory lies.
    pub(crate) fn log_region(&self, memory: NonNull<[u8]>) {
        let (start, len) = (memory.addr().get() as u64, memory.len() as u64);
        if self.has_boundary
            && crosses_boundary(start, len)
            && !self.has_reported_boundary.swap(true, Ordering::Relaxed)
        {
            log_error(&format!(
                "ibv_reg_mr: {len} bytes at {start:#x} lie across a 4 GiB boundary, beyond which the device misplaces data (rule \
                 four-gib-boundary); register memory inside one 4 GiB window"
            ));
        }
    }
}
