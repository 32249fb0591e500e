//! Starts the programs and supervises them until the last one has ended

use std::sync::mpsc::Receiver;
use std::time::Duration;

use rdma_sim::FaultKind;
use rdma_sim_verbs::shared::SharedFabric;
use rustix::process::Signal;

use super::cause::Cause;
use super::faults;
use super::host::Host;
use super::listening::is_listening;
use super::net::Wires;
use super::orphans::Orphans;
use super::output::{LAST_LINES_TIMEOUT, OwnLines};
use super::outside::{End, Outside, POLL_INTERVAL};

/// If hosts have different programs, the first may be a server: how long the others wait for it to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(3);
/// The same where the system does not show listening processes.
const LISTEN_DELAY: Duration = Duration::from_millis(500);
/// Time to wait for output that a process outside of the group keeps open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeouts and start order
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) grace: Duration,
    /// Time between the starts of two hosts; `None` starts them at once, or when the first of several programs listens.
    pub(super) stagger: Option<Duration>,
    /// Whether hosts have programs of their own.
    pub(super) differ: bool,
}

/// Stages of the end of a run
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    Running,
    /// A program has failed; the others may end by themselves.
    Grace,
    /// All were sent SIGTERM.
    Terminating,
    /// All were sent SIGKILL.
    Killed,
}

pub(super) struct Watch<'a, 'f> {
    policy: Policy,
    fabric: &'a SharedFabric,
    /// The network of the hosts, if they have one.
    wires: Option<&'a mut Wires<'f>>,
    own: &'a OwnLines,
    outside: &'a Outside<'a>,
    orphans: &'a Orphans,
    started: Duration,
    stage: Stage,
    since: Duration,
    end: End,
}

impl<'a, 'f> Watch<'a, 'f> {
    pub(super) fn new(
        policy: Policy,
        fabric: &'a SharedFabric,
        wires: Option<&'a mut Wires<'f>>,
        own: &'a OwnLines,
        outside: &'a Outside<'a>,
        orphans: &'a Orphans,
    ) -> Self {
        let (started, since, stage) = (Duration::ZERO, Duration::ZERO, Stage::Running);
        let end = End { cause: Cause::Done, is_from_outside: false };
        Self { policy, fabric, wires, own, outside, orphans, started, stage, since, end }
    }

    /// Starts `count` programs, and returns when the last one has ended
    pub(super) fn run(
        mut self,
        hosts: &mut Vec<Host>,
        count: usize,
        silences: &Receiver<()>,
        start: impl Fn(usize) -> anyhow::Result<Host>,
    ) -> anyhow::Result<End> {
        let mut silent = 0;
        loop {
            if let Some(wires) = &mut self.wires {
                wires.update()?;
            }
            while hosts.len() < count && self.stage == Stage::Running && self.is_time_for_next(hosts) {
                hosts.push(start(hosts.len())?);
                self.started = self.now();
            }
            for (number, host) in hosts.iter_mut().enumerate() {
                if host.has_ended_now() {
                    self.has_ended(host, number);
                }
            }
            let is_complete = hosts.len() == count || self.stage > Stage::Running;
            let have_ended = hosts.iter().all(|host| host.ended.is_some());
            if is_complete && have_ended && !hosts.iter_mut().any(Host::reap_group) {
                break;
            }
            self.advance(hosts, is_complete && have_ended);
            // A process that survives SIGKILL is stuck in the system.
            if self.stage == Stage::Killed && self.has_passed(OUTPUT_TIMEOUT) {
                break;
            }
            silent += usize::from(silences.recv_timeout(POLL_INTERVAL).is_ok());
        }
        self.orphans.kill(&hosts.iter().flat_map(Host::children).collect::<Vec<_>>());
        self.since = self.now();
        while silent < hosts.len() * 2 && !self.has_passed(self.output_timeout()) {
            silent += usize::from(silences.recv_timeout(POLL_INTERVAL).is_ok());
            // A slow reader gets everything, as from other programs, and some time for the rest when the run is ended.
            if self.ends_from_outside() || !self.end.is_from_outside && self.outside.relay.is_writing() {
                self.since = self.now();
            }
        }
        Ok(self.end)
    }

    fn is_time_for_next(&self, hosts: &[Host]) -> bool {
        let [.., last] = hosts else { return true };
        let passed = self.now().saturating_sub(self.started);
        match self.policy.stagger {
            Some(stagger) => passed >= stagger,
            None if !self.policy.differ || hosts.len() > 1 || last.ended.is_some() => true,
            None => match is_listening(last.pid()) {
                Some(is_listening) => is_listening || passed >= LISTEN_TIMEOUT,
                None => passed >= LISTEN_DELAY,
            },
        }
    }

    fn has_ended(&mut self, host: &Host, number: usize) {
        let code = host.code().unwrap_or(0);
        if code == 0 || self.stage >= Stage::Terminating {
            return;
        }
        if let Some(fault) = faults::that_killed(self.fabric, host) {
            let rest = if matches!(fault.kind, FaultKind::Kill) { "" } else { "; it is not restarted" };
            return self.own.print(&format!("{} was killed by a fault: {fault}{rest}", host.name));
        }
        let how = match host.ended_by() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("failed with exit code {code}"),
        };
        self.own.print(&format!("{} {how}", host.name));
        if self.end.cause == Cause::Done {
            self.end.cause = Cause::Failed(number);
            self.enter(Stage::Grace);
        }
    }

    /// Enters the next stage of the end if it is due
    fn advance(&mut self, hosts: &[Host], have_ended: bool) {
        if self.stage < Stage::Terminating {
            let is_over = self.stage == Stage::Grace && self.has_passed(self.policy.grace);
            if self.ends_from_outside() || is_over || have_ended {
                self.terminate(hosts);
            }
        } else if self.stage == Stage::Terminating && self.has_passed(self.policy.grace) {
            hosts.iter().for_each(|host| host.signal(Signal::KILL));
            self.enter(Stage::Killed);
        }
    }

    /// Records and reports a cause from outside; true only once
    fn ends_from_outside(&mut self) -> bool {
        if self.end.is_from_outside {
            return false;
        }
        let cause = self.outside.cause();
        if let (Some(Cause::TimedOut), Some(timeout)) = (cause, self.outside.timeout) {
            self.own.print(&format!("ended after {:.3} s by --timeout", timeout.as_secs_f64()));
        }
        self.end.add(cause);
        cause.is_some()
    }

    fn output_timeout(&self) -> Duration {
        if self.end.is_from_outside { LAST_LINES_TIMEOUT } else { OUTPUT_TIMEOUT }
    }

    fn terminate(&mut self, hosts: &[Host]) {
        for host in hosts {
            host.signal(Signal::TERM);
            // A stopped process does not handle SIGTERM before it continues.
            host.signal(Signal::CONT);
        }
        self.enter(Stage::Terminating);
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, self.now());
    }

    fn now(&self) -> Duration {
        self.outside.begun.elapsed()
    }

    fn has_passed(&self, time: Duration) -> bool {
        self.now().saturating_sub(self.since) >= time
    }
}
