//! Faults of the fabric, and what they do to the processes of hosts

use std::sync::atomic::Ordering;

use rdma_core::Time;
use rdma_sim::driver::{Process, RemoteInput};
use rdma_sim::remote::ProcessName;
use rdma_sim::{CableStats, Driver, Fault, FaultKind, Trigger};
use rustix::process::Signal;

use super::super::error::FabricError;
use super::super::segment::index;
use super::{FrameFault, HostClaim, LocalHost, NONE, Receivers};

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
                match (fault.trigger, self.claim.get()) {
                    // The host that sends the frames counts them.
                    (Trigger::AfterFrames(_), _) if fault.target.host() != self.name() => (),
                    (Trigger::AfterFrames(_), None) => {
                        receivers.unarmed.push(FrameFault { fault, position });
                    }
                    (Trigger::AfterFrames(_), Some(HostClaim { before, .. })) => {
                        self.arm(FrameFault { fault, position }, receivers, before, input)
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

    /// Schedules the faults that wait for frames of this host
    pub(super) fn arm_all(&self, receivers: &mut Receivers, before: &[CableStats], driver: &Driver) {
        for fault in std::mem::take(&mut receivers.unarmed) {
            self.arm(fault, receivers, before, &mut driver.remote_input());
        }
    }

    /// Schedules a fault that waits for frames, of which other processes of this host may have sent some, or all
    ///
    /// Processes of one host count apart: the first to have sent the rest by itself fires the fault.
    fn arm(
        &self,
        mut waiting: FrameFault,
        receivers: &mut Receivers,
        before: &[CableStats],
        input: &mut RemoteInput<'_>,
    ) {
        let Trigger::AfterFrames(frames) = waiting.fault.trigger else { return };
        let sent = self.fabric.port_of(&waiting.fault.target).map_or(0, |port| before[port].frames);
        if sent < frames {
            waiting.fault.trigger = Trigger::AfterFrames(frames - sent);
            drop(input.plan(waiting.fault.clone(), self.fabric.settings().topology()));
            receivers.armed.push(waiting);
        }
    }

    /// Fires a fault that has waited for frames, for all processes of the fabric, unless another process of this host has fired it
    fn fire(&self, mut fault: Fault) {
        let mut receivers = self.receivers();
        let found = receivers.armed.iter().position(|waiting| waiting.fault == fault);
        let Some(waiting) = found.map(|found| receivers.armed.swap_remove(found)) else { return };
        drop(receivers);
        if self.fabric.segment.fire(waiting.position) {
            fault.trigger = Trigger::At(Time::ZERO);
            // If the log is full, no further fault fires in this fabric.
            let _ = self.fabric.add_fault(&fault.to_string());
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
        let is_joined = now[self.host].0 == Process::Stopped && self.fabric.has_siblings(process);
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
        let fired = driver.remote_input().take_fired();
        fired.into_iter().for_each(|fault| self.fire(fault));
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

    /// Forgets the queue pairs of processes that have ended
    pub(crate) fn reap_dead_processes(&self, driver: &Driver) {
        // No new process is detected meanwhile: one that comes while its predecessor is reaped would be forgotten.
        let _receivers = self.receivers();
        for process in self.others() {
            let announced = &self.announced[index(process)];
            let is_announced = announced.load(Ordering::Relaxed) != NONE;
            if is_announced && self.fabric.find_process(process).is_none() {
                announced.store(NONE, Ordering::Relaxed);
                driver.remote_input().forget(process);
            }
        }
    }
}
