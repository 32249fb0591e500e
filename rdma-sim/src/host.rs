use std::pin::Pin;
use std::sync::Arc;

use rdma_core::{Runtime, Time, Timer};

use crate::executor::SimRuntime;
use crate::net::Net;

/// The processes of a simulated Mac
///
/// A task that is spawned here stops, dies and starts with the host, see [`FaultKind::Pause`](crate::FaultKind::Pause) and
/// [`FaultKind::Kill`](crate::FaultKind::Kill). So does a task that is spawned through its [`runtime`](Self::runtime), such as that of an endpoint.
#[derive(Clone, Debug)]
pub struct SimHost {
    net: Net,
    runtime: Arc<HostRuntime>,
}

/// Virtual time, and tasks that belong to a host.
#[derive(Debug)]
struct HostRuntime {
    runtime: Arc<SimRuntime>,
    host: u32,
    net: Net,
}

impl Net {
    /// The processes of a host
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn host(&self, name: &str) -> SimHost {
        let found = self.shared().lock().fabric.world.find_host(name);
        let index = found.unwrap_or_else(|| panic!("no host is called {name:?}"));
        SimHost::new(self.clone(), Arc::clone(self.sim_runtime()), index)
    }
}

impl SimHost {
    fn new(net: Net, runtime: Arc<SimRuntime>, host: u32) -> Self {
        let runtime = Arc::new(HostRuntime { runtime, host, net: net.clone() });
        Self { net, runtime }
    }

    /// Runs `task` until it ends or the host's processes die
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task));
    }

    /// Runs the task that `main` makes, now and whenever the host's processes start anew
    pub fn start<F>(&self, mut main: impl FnMut(Self) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(main(self.clone()));
        let host = self.clone();
        let start = Box::new(move || host.spawn(main(host.clone())));
        self.runtime.runtime.on_start(self.runtime.host, start);
    }

    /// The network of the host
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// Virtual time and the tasks of the host
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }
}

impl Runtime for HostRuntime {
    fn now(&self) -> Time {
        self.runtime.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let (_, generation) = self.net.shared().lock().fabric.world.process(self.host);
        self.runtime.spawn_on(self.host, generation, task);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.runtime.timer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sim;

    /// Regression: the task that starts anew holds the simulation that holds it, and no simulation was ever freed.
    #[test]
    fn a_host_that_starts_is_dropped_with_the_simulation() {
        let held = Arc::new(());
        let in_start = Arc::clone(&held);
        Sim::new().run(async move |net| {
            net.host("a").start(move |_| {
                let in_task = Arc::clone(&in_start);
                async move { drop(in_task) }
            });
        });
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
