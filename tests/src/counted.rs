//! A runtime that counts the calls which may block

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdma_async::TokioRuntime;
use rdma_core::{BlockingCall, Runtime, Time, Timer};

/// The runtime of tokio, with a counter
#[derive(Debug)]
pub struct Counted {
    runtime: TokioRuntime,
    calls: AtomicUsize,
}

impl Counted {
    /// The runtime that the caller runs on
    pub fn current() -> Arc<Self> {
        Arc::new(Self { runtime: TokioRuntime::current(), calls: AtomicUsize::new(0) })
    }

    /// How many calls were started that may block
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Runtime for Counted {
    fn now(&self) -> Time {
        self.runtime.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.runtime.spawn(task);
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.runtime.spawn_blocking(call);
    }

    fn is_real_time(&self) -> bool {
        self.runtime.is_real_time()
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.runtime.timer()
    }
}
