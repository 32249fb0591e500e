use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;

use rdma_core::{BlockingCall, Runtime, Time, Timer, Work};

use crate::driver::Task;
use crate::executor::{Origin, Owner, Start};
use crate::net::Net;
use crate::{OpenError, SimDevice};

/// The processes of a simulated Mac
///
/// A task that is spawned here stops, dies and starts with the host, see [`FaultKind::Pause`](crate::FaultKind::Pause) and
/// [`FaultKind::Kill`](crate::FaultKind::Kill). So does a task that is spawned through its [`runtime`](Self::runtime), such as those of a node.
#[derive(Clone, Debug)]
pub struct SimHost(Arc<HostRuntime>);

/// Virtual time, and tasks that belong to a host.
#[derive(Debug)]
struct HostRuntime {
    host: u32,
    net: Net,
}

impl Net {
    /// The processes of a host
    ///
    /// # Panics
    ///
    /// If there is no such host; the message has the names of those that there are.
    #[track_caller]
    pub fn host(&self, name: &str) -> SimHost {
        let host = self.find_host(name).unwrap_or_else(|error| panic!("{error}"));
        SimHost(Arc::new(HostRuntime { host, net: self.clone() }))
    }
}

impl SimHost {
    /// Runs `task` until it ends or the host's processes die
    #[track_caller]
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn_at(Some(Location::caller()), Box::pin(task));
    }

    /// Runs the task that `main` makes, now and whenever the host's processes start anew
    #[track_caller]
    pub fn start<F>(&self, mut main: impl FnMut(Self) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (host, site) = (self.clone(), Some(Location::caller()));
        let mut start: Start = Box::new(move || {
            let task = main(host.clone());
            host.0.spawn_at(site, Box::pin(task));
        });
        // A restart that was before is none of this task.
        self.0.net.shared().lock().fabric.world.take_start(self.0.host);
        start();
        self.0.net.sim_runtime().on_start(self.0.host, start);
    }

    /// Opens the first device of this host with a cable to `peer`
    ///
    /// ```
    /// use rdma_core::Device as _;
    /// use rdma_sim::{Sim, Topology};
    ///
    /// // Three Macs with three ports each, of which each has a cable to each other one.
    /// Sim::new().topology(Topology::mesh(3, 3)?).run(async |net| {
    ///     let device = net.host("a").open_to("c").expect("a cable leads there");
    ///     assert_eq!(device.name(), "rdma_en3");
    /// });
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError::NoCable`] if no cable leads there now, [`OpenError::UnknownHost`] if there is no such host, and those of
    /// [`Net::open`].
    pub fn open_to(&self, peer: &str) -> Result<SimDevice, OpenError> {
        let net = &self.0.net;
        let to = net.find_host(peer)?;
        let (host, device) = {
            let world = &net.shared().lock().fabric.world;
            let device = world.device_to(self.0.host, to).map(|device| world.device_name(device).to_owned());
            (world.host_name(self.0.host).to_owned(), device)
        };
        let Some(device) = device else { return Err(OpenError::NoCable { host, peer: peer.to_owned() }) };
        net.open(&host, &device)
    }

    /// The number of the host
    pub(crate) fn index(&self) -> u32 {
        self.0.host
    }

    /// The network of the host
    pub fn net(&self) -> &Net {
        &self.0.net
    }

    /// Virtual time and the tasks of the host
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.0) as Arc<dyn Runtime>
    }
}

impl HostRuntime {
    fn spawn_at(&self, site: Option<&'static Location<'static>>, task: Task) {
        let (_, generation) = self.net.shared().lock().fabric.world.process(self.host);
        let owner = Some(Owner { host: self.host, generation });
        self.net.sim_runtime().spawn_for(Origin { owner, site }, task);
    }
}

impl Runtime for HostRuntime {
    fn now(&self) -> Time {
        self.net.now()
    }

    fn spawn(&self, task: Task) {
        self.spawn_at(None, task);
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        let (_, generation) = self.net.shared().lock().fabric.world.process(self.host);
        let owner = Some(Owner { host: self.host, generation });
        self.net.spawn_blocking_for(Origin { owner, site: None }, call);
    }

    fn is_killed(&self) -> bool {
        self.net.sim_runtime().is_killing()
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.net.timer()
    }

    fn random(&self) -> u64 {
        self.net.sim_runtime().random()
    }

    fn spend(&self, work: Work) {
        self.net.sim_runtime().spend(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sim;

    #[test]
    #[should_panic(expected = "no host is called \"c\"; there are: a, b")]
    fn a_host_that_is_not_there_is_answered_by_those_that_are() {
        Sim::new().run(async |net| drop(net.host("c")));
    }

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
