//! Faults of the fabric, and what they do to the processes of hosts

use std::sync::atomic::Ordering;

use rdma_core::Time;
use rdma_sim::driver::{Process, RemoteInput};
use rdma_sim::remote::ProcessName;
use rdma_sim::{Driver, Fault, FaultKind, Trigger};
use rustix::process::Signal;

use super::super::error::FabricError;
use super::super::segment::index;
use super::{FrameFault, HostClaim, LocalHost, NONE, Receivers};
use crate::log::log_error;

impl LocalHost {
    /// Schedules the faults that were added to the log
    pub(super) fn read_faults(&self, receivers: &mut Receivers, input: &mut RemoteInput<'_>) {
        let read = self.faults_read.load(Ordering::Relaxed);
        let text = self.fabric.segment.faults_from(read);
        self.faults_read.store(read + text.len(), Ordering::Relaxed);
        let mut start = read;
        for line in text.lines() {
            // The process that added the line has checked it. Each of its faults is longer than a byte.
            let faults = self.fabric.settings().check_faults(line).into_iter().flat_map(|plan| plan.0);
            for (position, fault) in (start..).zip(faults) {
                match fault.trigger {
                    // The host that sends the frames counts them.
                    Trigger::AfterFrames(_) if fault.target.host() != self.name() => (),
                    Trigger::AfterFrames(_) => {
                        receivers.waiting.push(FrameFault { fault, position });
                        self.has_waiting_faults.store(true, Ordering::Relaxed);
                    }
                    _ if self.was_used_up(&fault) => (),
                    _ => drop(input.plan(fault, self.fabric.settings().topology())),
                }
            }
            start += line.len() + 1;
        }
    }

    /// Whether an earlier process of this host has lost or damaged the frames, or placed the region, that `fault` is for
    fn was_used_up(&self, fault: &Fault) -> bool {
        let is_for_once =
            matches!(fault.kind, FaultKind::Boundary | FaultKind::Corrupt { .. } | FaultKind::Lose { .. });
        let is_past = matches!(fault.trigger, Trigger::At(time) if time < self.now());
        let has_predecessor = self.fabric.segment.claimed(self.host) > 0;
        is_for_once && is_past && !self.is_claimed() && has_predecessor && fault.target.host() == self.name()
    }

    /// Fires a fault that waits for frames, for all processes of the fabric, if those of this host have sent so many together
    ///
    /// Any of them may be the first to see that the frames were sent, and may be killed before it fires the fault: the log of faults says
    /// whether one has fired it, and if not, the next one that looks does. A process that ends looks, too.
    pub(crate) fn fire_due_faults(&self) {
        let is_due = |waiting: &mut FrameFault| {
            let Trigger::AfterFrames(frames) = waiting.fault.trigger else { return false };
            let port = self.fabric.port_of(&waiting.fault.target);
            let sent = port.map_or(0, |port| self.fabric.sent_from(port, self.host).frames);
            sent >= frames.max(1)
        };
        if !self.is_claimed() || !self.has_waiting_faults.load(Ordering::Relaxed) {
            return;
        }
        let mut receivers = self.receivers();
        receivers.waiting.retain(|waiting| !self.fabric.segment.has_fired(waiting.position));
        let due: Vec<_> = receivers.waiting.extract_if(.., is_due).collect();
        self.has_waiting_faults.store(!receivers.waiting.is_empty(), Ordering::Relaxed);
        drop(receivers);
        for waiting in due {
            let mut fault = waiting.fault.clone();
            fault.trigger = Trigger::At(Time::ZERO);
            let Err(error) = self.fabric.fire_fault(&fault, waiting.position) else { continue };
            log_error(&format!("fault \"{fault}\" does not fire: {error}"));
            if matches!(error, FabricError::Locked { .. }) {
                // The process that hangs may end.
                self.receivers().waiting.push(waiting);
                self.has_waiting_faults.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Adds the restart of this host to the log, if a fault has ended its earlier processes
    ///
    /// One that is paused and still has a process stays paused, and `process` with it.
    pub(super) fn restart(
        &self,
        process: ProcessName,
        driver: &Driver,
        receivers: &mut Receivers,
    ) -> Result<(), FabricError> {
        let mut states = || {
            self.read_faults(receivers, &mut driver.remote_input());
            driver.advance_to(self.now());
            self.processes(driver)
        };
        let mut now = states();
        let is_joined = now[self.host].0 == Process::Stopped && self.fabric.has_siblings(process)?;
        if is_joined {
            now[self.host].0 = Process::Running;
        } else if now[self.host].0 != Process::Running {
            self.fabric.add_fault(&format!("at 0s {} restart", self.name()))?;
            now = states();
        }
        receivers.processes = now;
        Ok(())
    }

    /// The state of the processes of each host by the faults that have fired, and how often they were started
    fn processes(&self, driver: &Driver) -> Vec<(Process, u32)> {
        let input = driver.remote_input();
        (0..self.fabric.segment.hosts()).map(|host| input.process(host as u32)).collect()
    }

    /// Stops, continues or kills processes by the faults that have fired; this one may stop, or end, here
    pub(crate) fn follow_faults(&self, driver: &Driver) {
        // An observer has not claimed a host: faults do not apply to it.
        let Some(HostClaim { process: own, .. }) = self.claim.get() else { return };
        let now = self.processes(driver);
        let before = std::mem::replace(&mut self.receivers().processes, now.clone());
        for (host, (before, now)) in before.into_iter().zip(now).enumerate() {
            let is_killed = now.0 == Process::Dead || now.1 != before.1;
            match (before.0, now.0) {
                _ if is_killed && host == self.host => self.fabric.signal(*own, Signal::KILL),
                // All processes continue those that are stopped, even for their end: each kills itself, because the host may
                // have others by now.
                (Process::Stopped, Process::Running | Process::Dead) => {
                    self.fabric.signal_all(host, Signal::CONT);
                }
                (Process::Running, Process::Stopped) if host == self.host => {
                    self.fabric.signal(*own, Signal::STOP);
                }
                _ => (),
            }
        }
    }

    /// Does for processes that have ended what they cannot do any more: forgets the queue pairs of those of other hosts, and fires the
    /// faults of those of this host
    pub(crate) fn reap_dead_processes(&self, driver: &Driver) {
        // No new process is detected meanwhile: one that comes while its predecessor is reaped would be forgotten.
        let receivers = self.receivers();
        for process in self.others() {
            let announced = &self.announced[index(process)];
            let is_announced = announced.load(Ordering::Relaxed) != NONE;
            if is_announced && self.fabric.find_process(process).is_none() {
                announced.store(NONE, Ordering::Relaxed);
                driver.remote_input().forget(process);
            }
        }
        drop(receivers);
        self.fire_due_faults();
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{QpType, Qpn};
    use rdma_sim::remote::{LinkMessage, QpName};
    use rdma_sim::{CableStats, Topology};

    use super::super::super::codec::{self, Stamp};
    use super::super::super::ring::Writer;
    use super::super::super::{Settings, SharedFabric};
    use super::*;

    /// Fires for the port at position 0 of all ports
    const WAITING: &str = "after 50 frames a:rdma_en2 slow 50%";
    const FIRED: &str = "at 0s a:rdma_en2 slow 50%";
    const LATER: &str = "at 3600s a:rdma_en2 unplug";

    fn fabric(name: &str) -> SharedFabric {
        let name = format!("{name}-{}", std::process::id());
        SharedFabric::create(&name, &Settings::new(Topology::pair())).unwrap()
    }

    /// A new process of `host`, for which this one stands in
    fn process(fabric: &SharedFabric, host: &str) -> (LocalHost, Driver) {
        let (host, driver) = LocalHost::open(SharedFabric::open(fabric.name()).unwrap(), host).unwrap();
        host.claim(&driver).unwrap();
        host.session(&driver, true).end();
        (host, driver)
    }

    /// Publishes how many frames a process of the first host has sent from its first port
    fn publish_frames(fabric: &SharedFabric, number: u32, frames: u64) {
        let mut sent = CableStats::default();
        sent.frames = frames;
        fabric.segment.port(0, ProcessName { host: 0, number }).store(sent);
    }

    fn log(fabric: &SharedFabric) -> Vec<String> {
        fabric.segment.faults_from(0).lines().map(str::to_owned).collect()
    }

    /// Catches processes that each count their own frames alone, a fault that each of them fires, and a host that fires the faults of
    /// another one.
    #[test]
    fn a_fault_fires_once_when_the_processes_of_a_host_have_sent_the_frames_together() {
        let fabric = fabric("together");
        fabric.add_fault(WAITING).unwrap();
        let processes = ["b", "a", "a"].map(|host| process(&fabric, host));
        let look = || processes.iter().for_each(|(host, driver)| host.reap_dead_processes(driver));
        publish_frames(&fabric, 0, 30);
        publish_frames(&fabric, 1, 19);
        look();
        assert_eq!(log(&fabric), [WAITING]);
        publish_frames(&fabric, 1, 20);
        look();
        assert_eq!(log(&fabric), [WAITING, FIRED]);
        look();
        assert_eq!(log(&fabric), [WAITING, FIRED]);
        // Regression: the line by which it fires was listed as a fault of its own.
        fabric.add_fault(LATER).unwrap();
        let added: Vec<_> = fabric.faults().iter().map(ToString::to_string).collect();
        assert_eq!(added, [WAITING, LATER]);
    }

    /// Regression: the fault was lost.
    ///
    /// Catches a process that takes a fault for fired because the frames were sent before it came, one that fires it again, and a log that
    /// knows only of the fault of its last line that it has fired.
    #[test]
    fn a_fault_that_a_process_has_not_fired_before_its_end_is_fired_by_the_next_one() {
        let fabric = fabric("successor");
        fabric.add_fault(WAITING).unwrap();
        let (first, driver) = process(&fabric, "a");
        publish_frames(&fabric, 0, 50);
        // As if it was killed: it does not leave.
        drop((first, driver));
        assert_eq!(log(&fabric), [WAITING]);
        let _second = process(&fabric, "a");
        assert_eq!(log(&fabric), [WAITING, FIRED]);
        fabric.add_fault(LATER).unwrap();
        let _third = process(&fabric, "a");
        assert_eq!(log(&fabric), [WAITING, FIRED, LATER]);
    }

    /// Regression: the fault never fired if no process of the host came later. Catches a process that leaves without a look.
    #[test]
    fn a_process_that_ends_fires_the_fault_that_waited_for_its_last_frames() {
        let fabric = fabric("last");
        fabric.add_fault(WAITING).unwrap();
        let (ends, driver) = process(&fabric, "a");
        publish_frames(&fabric, 0, 49);
        let (other, other_driver) = process(&fabric, "a");
        other.leave(&other_driver);
        assert_eq!(log(&fabric), [WAITING], "a frame is missing");
        publish_frames(&fabric, 0, 50);
        ends.leave(&driver);
        assert_eq!(log(&fabric), [WAITING, FIRED]);
    }

    /// Catches queue pairs of a killed process that stay in the processes of other hosts, which would send to them, and those of a process
    /// that lives and are forgotten.
    #[test]
    fn the_queue_pairs_of_a_killed_process_of_another_host_are_forgotten() {
        let fabric = fabric("reaped");
        let (here, driver) = process(&fabric, "a");
        let [killed, _alive] = ["b", "b"].map(|host| process(&fabric, host));
        let [here_name, first, second] =
            [(0, 0), (1, 0), (1, 1)].map(|(host, number)| ProcessName { host, number });
        for from in [first, second] {
            // The number of a queue pair says which process of its host has it.
            let qpn = Qpn((1..1 << 24).find(|qpn| ProcessName::of(1, Qpn(*qpn)) == from).unwrap());
            let qp = QpName { device: 3, qpn };
            let ready = LinkMessage::Ready { qp, peer: Qpn(1), qp_type: QpType::Uc, at: Time::ZERO };
            let (words, bytes) = codec::encode(Stamp { from: 1, to: 1 }, &ready);
            assert!(Writer::new(fabric.segment.ring(from, here_name)).write(&words, bytes));
        }
        let known = || {
            here.session(&driver, true).end();
            here.reap_dead_processes(&driver);
            driver.net().objects().queue_pairs
        };
        assert_eq!(known(), 2);
        // A killed process leaves its number behind, and no process has it.
        fabric.segment.slot(first).pid.store(i32::MAX as u32, Ordering::Release);
        assert_eq!(known(), 1);
        drop(killed);
    }
}
