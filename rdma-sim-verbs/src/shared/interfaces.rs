//! The network interfaces of the hosts, for a process that is none of them

use rdma_core::Time;
use rdma_sim::{Driver, IpInterface, Sim, Trigger};

use super::fabric::SharedFabric;

/// The network interfaces of the hosts of a fabric, as the faults that have fired leave them
///
/// Simulates no traffic: only faults take place.
#[derive(Debug)]
pub struct Interfaces<'a> {
    fabric: &'a SharedFabric,
    driver: Driver,
    /// Bytes of the log of faults that were applied.
    faults_read: usize,
}

impl<'a> Interfaces<'a> {
    /// The interfaces of `fabric`, before any fault
    pub fn new(fabric: &'a SharedFabric) -> Self {
        let settings = fabric.settings();
        let sim = Sim::new().model(settings.model()).topology(settings.topology().clone()).sanitize(false);
        let driver = Driver::new(sim, drop).expect("there are no faults yet");
        Self { fabric, driver, faults_read: 0 }
    }

    /// Applies the faults that have fired since; returns whether there were any, or an earlier one has ended
    pub fn update(&mut self) -> bool {
        let (text, now) = (self.fabric.segment.faults_from(self.faults_read), self.fabric.now_ns());
        self.faults_read += text.len();
        for line in text.lines() {
            // The process that added the line has checked it.
            for fault in self.fabric.settings().check_faults(line).into_iter().flat_map(|plan| plan.0) {
                // The host that sends the frames counts them, and adds the fault again when it fires.
                if !matches!(fault.trigger, Trigger::AfterFrames(_)) {
                    let planned = self.driver.remote_input().plan(fault, self.fabric.settings().topology());
                    planned.expect("the target was checked with the line");
                }
            }
        }
        let now = Time::from_nanos(now);
        let has_news = !text.is_empty() || self.driver.next().is_some_and(|next| next <= now);
        if has_news {
            self.driver.advance_to(now);
        }
        has_news
    }

    /// The interface of a device; `None` if there is no such device
    pub fn of(&self, host: &str, device: &str) -> Option<IpInterface> {
        self.driver.net().interface(host, device)
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::Topology;

    use super::super::Settings;
    use super::*;

    /// Catches an interface whose cable stays in when a fault of the log pulls it, and faults that fire before their time or their
    /// frames.
    #[test]
    fn a_fault_of_the_log_cuts_the_cable_for_a_process_that_is_no_host() {
        let name = format!("interfaces-{}", std::process::id());
        let fabric = SharedFabric::create(&name, &Settings::new(Topology::pair())).unwrap();
        let mut interfaces = Interfaces::new(&fabric);
        let neighbour = |interfaces: &Interfaces<'_>| interfaces.of("a", "rdma_en2").unwrap().neighbour;
        let peer = Some(("b".to_owned(), "rdma_en2".to_owned()));
        assert!(!interfaces.update());
        assert_eq!(neighbour(&interfaces), peer);
        fabric.add_fault("after 9 frames a:rdma_en2 unplug; at 3600s a:rdma_en2 unplug").unwrap();
        assert!(interfaces.update());
        assert_eq!(neighbour(&interfaces), peer);
        fabric.add_fault("at 0s b:rdma_en2 unplug").unwrap();
        assert!(interfaces.update());
        assert_eq!(neighbour(&interfaces), None);
        fabric.add_fault("at 0s a:rdma_en2 replug").unwrap();
        assert!(interfaces.update());
        assert_eq!(neighbour(&interfaces), peer);
        assert_eq!(interfaces.of("a", "rdma_en9"), None);
    }
}
