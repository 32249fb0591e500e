//! From the start of the programs to the end of the last one

use std::io;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rdma_sim::FaultKind;
use rdma_sim_verbs::shared::SharedFabric;

use super::faults;
use super::host::Host;
use super::listening::is_listening;
use super::output::{Relay, say};
use crate::report::Wall;
use crate::signals::Interrupt;

/// How often signals and processes are looked at; the end of an output is noticed at once.
const TURN: Duration = Duration::from_millis(10);
/// A program that is first of several different ones may be a server: how long the others wait for it to listen.
const LISTENING: Duration = Duration::from_secs(3);
/// The same where the system does not say who listens.
const BLIND: Duration = Duration::from_millis(500);
/// Output that something out of reach keeps open is not waited for longer than this.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What was asked for
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) grace: Duration,
    pub(super) timeout: Option<Duration>,
    /// Between the starts of two hosts; `None` for none, but a first program that differs may get to listen.
    pub(super) stagger: Option<Duration>,
    /// Whether hosts have programs of their own.
    pub(super) differ: bool,
}

/// Why all of it has ended
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    /// Every program has done what it had to
    Done,
    /// The program of this host failed first
    Failed(usize),
    /// A signal
    Interrupted(i32),
    /// Time was up
    TimedOut,
    /// Nobody reads the output any more
    Unread,
}

/// How far the end has come
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    Running,
    /// Those that are left may end by themselves.
    Grace,
    Asked,
    Killed,
}

pub(super) struct Watch<'a> {
    policy: Policy,
    fabric: &'a SharedFabric,
    relay: &'a Relay,
    interrupt: &'a Interrupt,
    begun: Wall,
    started: Duration,
    stage: Stage,
    since: Duration,
    cause: Option<Cause>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        policy: Policy,
        fabric: &'a SharedFabric,
        relay: &'a Relay,
        interrupt: &'a Interrupt,
    ) -> Self {
        let (begun, zero) = (Wall::start(), Duration::ZERO);
        let (stage, cause) = (Stage::Running, None);
        Self { policy, fabric, relay, interrupt, begun, started: zero, stage, since: zero, cause }
    }

    /// Starts so many programs, and returns when none is left
    pub(super) fn run(
        mut self,
        hosts: &mut Vec<Host>,
        count: usize,
        silences: &Receiver<()>,
        start: impl Fn(usize) -> io::Result<Host>,
    ) -> io::Result<Cause> {
        let mut silent = 0;
        loop {
            while hosts.len() < count && self.stage == Stage::Running && self.is_time_for_next(hosts) {
                hosts.push(start(hosts.len())?);
                self.started = self.begun.elapsed();
            }
            for (number, host) in hosts.iter_mut().enumerate() {
                if host.has_ended_now() {
                    self.has_ended(host, number);
                }
            }
            let is_complete = hosts.len() == count || self.stage > Stage::Running;
            let have_ended = hosts.iter().all(|host| host.ended.is_some());
            if is_complete && have_ended && !hosts.iter().any(Host::is_there) {
                break;
            }
            self.go_on(hosts, is_complete && have_ended);
            // A process that even this does not end is the system's.
            if self.stage == Stage::Killed && self.has_passed(LAST_WORDS) {
                break;
            }
            silent += usize::from(silences.recv_timeout(TURN).is_ok());
        }
        let end = self.begun.elapsed() + LAST_WORDS;
        while silent < hosts.len() * 2 && self.begun.elapsed() < end {
            silent += usize::from(silences.recv_timeout(TURN).is_ok());
        }
        Ok(self.cause.unwrap_or(Cause::Done))
    }

    fn is_time_for_next(&self, hosts: &[Host]) -> bool {
        let [.., last] = hosts else { return true };
        let passed = self.begun.elapsed().saturating_sub(self.started);
        match self.policy.stagger {
            Some(stagger) => passed >= stagger,
            None if !self.policy.differ || hosts.len() > 1 || last.ended.is_some() => true,
            None => match is_listening(last.pid()) {
                Some(is_listening) => is_listening || passed >= LISTENING,
                None => passed >= BLIND,
            },
        }
    }

    fn has_ended(&mut self, host: &Host, number: usize) {
        let code = host.code().unwrap_or(0);
        if code == 0 || self.stage >= Stage::Asked {
            return;
        }
        if let Some(fault) = faults::that_killed(self.fabric, host) {
            let rest = if matches!(fault.kind, FaultKind::Kill) { "" } else { "; it is not started again" };
            return say(&format!("{} was killed by a fault: {fault}{rest}", host.name));
        }
        let how = match host.ended_by() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("failed with exit code {code}"),
        };
        say(&format!("{} {how}", host.name));
        if self.cause.is_none() {
            self.cause = Some(Cause::Failed(number));
            self.enter(Stage::Grace);
        }
    }

    /// Goes on with the end, if it has begun or begins now
    fn go_on(&mut self, hosts: &[Host], have_ended: bool) {
        if self.stage < Stage::Asked {
            let now = self.begun.elapsed();
            let cause = if let Some(signal) = self.interrupt.signal() {
                Some(Cause::Interrupted(signal))
            } else if self.relay.is_unread.load(std::sync::atomic::Ordering::Relaxed) {
                Some(Cause::Unread)
            } else if let Some(timeout) = self.policy.timeout.filter(|timeout| now >= *timeout) {
                say(&format!("ended after {:.3} s by --timeout", timeout.as_secs_f64()));
                Some(Cause::TimedOut)
            } else {
                None
            };
            let is_over = self.stage == Stage::Grace && self.has_passed(self.policy.grace);
            if cause.is_some() || is_over || have_ended {
                self.cause = self.cause.or(cause);
                self.ask(hosts);
            }
        } else if self.stage == Stage::Asked && self.has_passed(self.policy.grace) {
            hosts.iter().for_each(|host| host.signal(libc::SIGKILL));
            self.enter(Stage::Killed);
        }
    }

    fn ask(&mut self, hosts: &[Host]) {
        for host in hosts {
            host.signal(libc::SIGTERM);
            // One that is stopped would not hear of it.
            host.signal(libc::SIGCONT);
        }
        self.enter(Stage::Asked);
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, self.begun.elapsed());
    }

    fn has_passed(&self, time: Duration) -> bool {
        self.begun.elapsed().saturating_sub(self.since) >= time
    }
}
