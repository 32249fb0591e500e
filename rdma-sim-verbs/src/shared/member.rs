//! A process as one of the hosts of a fabric

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use rdma_core::Time;
use rdma_sim::driver::{Process, RemoteInput};
use rdma_sim::{Driver, Fault, Sim, Trigger};

use super::bell::Bell;
use super::clock;
use super::codec;
use super::lane::Reader;
use super::outlets::{Introduced, Outlets};
use super::place::{self, FabricError, Sent, SharedFabric};

/// This process in a fabric
///
/// It sees the ports of its host from the beginning, and takes the place of the host when it begins to use them: programs that
/// only look may run beside one that does more.
pub(crate) struct Member {
    host: usize,
    introduced: Introduced,
    inlets: Mutex<Inlets>,
    place: OnceLock<Place>,
    /// Something waits for room.
    is_waiting: Arc<AtomicBool>,
    fabric: SharedFabric,
}

/// The place of a host that this process has taken
struct Place {
    incarnation: u32,
    bell: Mutex<Bell>,
    /// What processes that were here before have sent from each port.
    before: Vec<Sent>,
    /// Says that the host is taken.
    _lock: File,
}

/// What comes from the others
struct Inlets {
    readers: Vec<Reader>,
    /// Who was met: whose signals are taken in.
    met: Vec<u32>,
    /// How much of the log of faults has been read.
    faults: usize,
    /// Faults that wait for frames of this host, until it sends some.
    after: Vec<Fault>,
    /// What the processes of each host did when it was asked last, by the faults that have happened.
    processes: Vec<(Process, u32)>,
}

const NOBODY: u32 = 0;

impl Member {
    /// Looks at the fabric as the host called `name`, or of that number
    pub(crate) fn look(fabric: SharedFabric, name: &str) -> Result<(Self, Driver), FabricError> {
        let hosts = fabric.settings().topology().hosts();
        let by_number = || name.parse().ok().filter(|number| *number < hosts.len());
        let found = hosts.iter().position(|host| host.name() == name).or_else(by_number);
        let host = found.ok_or_else(|| FabricError::NoHost {
            fabric: fabric.name().to_owned(),
            host: name.to_owned(),
            hosts: hosts.iter().map(rdma_sim::topology::Host::name).collect::<Vec<_>>().join(", "),
        })?;
        let count = hosts.len();
        let settings = fabric.settings();
        // Nothing is spawned: programs in C have no tasks. What they do to their memory is their affair.
        let sim = Sim::new()
            .model(settings.model())
            .topology(settings.topology().clone())
            .seed(settings.seed_of(host))
            .real_addresses()
            .sanitize(false);
        let driver = Driver::new(sim, drop).expect("there are no faults yet");
        let introduced: Introduced = (0..count).map(|_| AtomicU32::new(NOBODY)).collect();
        let processes = vec![(Process::Running, 1); count];
        let inlets =
            Inlets { readers: Vec::new(), met: vec![NOBODY; count], faults: 0, after: Vec::new(), processes };
        let is_waiting = Arc::default();
        let member =
            Self { host, introduced, inlets: Mutex::new(inlets), place: OnceLock::new(), is_waiting, fabric };
        Ok((member, driver))
    }

    /// Takes the place of the host, unless that is done
    pub(crate) fn join(&self, driver: &Driver) -> Result<(), FabricError> {
        let mut inlets = self.inlets();
        if self.place.get().is_some() {
            return Ok(());
        }
        let failed = |error: io::Error| FabricError::Io(format!("fabric {:?}", self.fabric.name()), error);
        let (host, fabric) = (self.host, &self.fabric);
        let lock = fabric.take(host)?;
        fabric.reserve(host).map_err(failed)?;
        let bell = Mutex::new(Bell::listen(&fabric.bell(host)).map_err(failed)?);
        let segment = &fabric.segment;
        let slot = segment.slot(host);
        slot.is_asleep.store(0, Ordering::Relaxed);
        // What was told to a predecessor carries another number, and is passed over.
        let incarnation = slot.incarnation.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let outlets = Outlets::new(
            Arc::clone(segment),
            host,
            incarnation,
            Arc::clone(&self.introduced),
            Arc::clone(&self.is_waiting),
            |to| fabric.bell(to),
        );
        driver.simulate_only(self.name(), Box::new(outlets));
        inlets.readers = (0..segment.hosts()).map(|from| Reader::new(segment.lane(from, host))).collect();
        self.revive(driver, &mut inlets)?;
        let before = fabric.sent();
        for fault in std::mem::take(&mut inlets.after) {
            if let Trigger::AfterFrames(frames) = fault.trigger {
                self.arm(fault, frames, &before, &mut driver.remote_input());
            }
        }
        let _ = self.place.set(Place { incarnation, bell, before, _lock: lock });
        slot.pid.store(std::process::id(), Ordering::Release);
        slot.incarnation.store(incarnation, Ordering::Release);
        drop(inlets);
        // Others see at once who has come.
        (0..segment.hosts()).for_each(|host| super::bell::ring(&fabric.bell(host)));
        Ok(())
    }

    /// Whether the place of the host is taken by this process
    pub(crate) fn has_joined(&self) -> bool {
        self.place.get().is_some()
    }

    /// The time since the beginning of the fabric
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(clock::now_ns().saturating_sub(self.fabric.segment.epoch_ns()))
    }

    /// Takes in what the others have told, and what has happened to the fabric, unless somebody else does it just now
    pub(crate) fn hear(&self, driver: &Driver) {
        match self.inlets.try_lock() {
            Ok(inlets) => self.take_in(inlets, driver),
            Err(TryLockError::Poisoned(poisoned)) => self.take_in(poisoned.into_inner(), driver),
            Err(TryLockError::WouldBlock) => (),
        }
    }

    /// Takes in all that the others have told by now
    ///
    /// What is sent next may depend on it: adapters drop what finds no receive, and one that was posted before must be found.
    pub(crate) fn hear_out(&self, driver: &Driver) {
        self.take_in(self.inlets(), driver);
    }

    fn take_in(&self, mut inlets: MutexGuard<'_, Inlets>, driver: &Driver) {
        if !self.has_news(&mut inlets) {
            return;
        }
        let mut remote_input = driver.remote_input();
        self.read_faults(&mut inlets, &mut remote_input);
        let Some(Place { incarnation, .. }) = self.place.get() else { return };
        let Inlets { readers, met, .. } = &mut *inlets;
        for (host, (reader, met)) in readers.iter_mut().zip(met).enumerate() {
            self.meet(host, met, &mut remote_input);
            while reader.read(|words, bytes| {
                let stamp = codec::stamp(words);
                if stamp.from != *met {
                    // It has come after the last look.
                    self.meet(host, met, &mut remote_input);
                }
                if (stamp.from, stamp.to) == (*met, *incarnation)
                    && let Some(message) = codec::decode(words, bytes)
                {
                    remote_input.apply(host as u32, &message);
                }
            }) {}
        }
    }

    /// Goes on with what waits for room, if something does
    pub(crate) fn resume(&self, driver: &Driver) {
        if self.is_waiting() && self.is_waiting.swap(false, Ordering::Relaxed) {
            driver.remote_input().resume();
        }
    }

    /// Whether something waits for room
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Whether another process has taken the place of a host since that was met
    fn is_new(&self, host: usize, met: u32) -> bool {
        let slot = self.fabric.segment.slot(host);
        host != self.host && slot.incarnation.load(Ordering::Acquire) != met
    }

    fn has_news(&self, inlets: &mut Inlets) -> bool {
        self.fabric.segment.faults_len() != inlets.faults
            || inlets.readers.iter_mut().any(Reader::has_next)
            || self.has_joined() && inlets.met.iter().enumerate().any(|(host, met)| self.is_new(host, *met))
    }

    /// Introduces this host to another, if that is new
    fn meet(&self, host: usize, met: &mut u32, remote_input: &mut RemoteInput<'_>) {
        if self.is_new(host, *met) {
            *met = self.fabric.segment.slot(host).incarnation.load(Ordering::Acquire);
            self.introduced[host].store(*met, Ordering::Relaxed);
            remote_input.announce_all_to(host as u32);
        }
    }

    fn read_faults(&self, inlets: &mut Inlets, remote_input: &mut RemoteInput<'_>) {
        let text = self.fabric.segment.faults_from(inlets.faults);
        inlets.faults += text.len();
        for line in text.lines() {
            // Whoever wrote it has checked it.
            for fault in self.fabric.settings().check_faults(line).into_iter().flat_map(|plan| plan.0) {
                match (fault.trigger, self.place.get()) {
                    // Who sends the frames counts them.
                    (Trigger::AfterFrames(_), _) if fault.target.host() != self.name() => (),
                    (Trigger::AfterFrames(_), None) => inlets.after.push(fault),
                    (Trigger::AfterFrames(frames), Some(place)) => {
                        self.arm(fault, frames, &place.before, remote_input)
                    }
                    _ => drop(remote_input.plan(fault, self.fabric.settings().topology())),
                }
            }
        }
    }

    /// Has a fault wait for frames, of which processes that were here before may have sent some, or all
    fn arm(&self, mut fault: Fault, frames: u64, before: &[Sent], remote_input: &mut RemoteInput<'_>) {
        let sent = self.fabric.port_of(&fault.target).map_or(0, |port| before[port].frames);
        if sent < frames {
            fault.trigger = Trigger::AfterFrames(frames - sent);
            drop(remote_input.plan(fault, self.fabric.settings().topology()));
        }
    }

    fn name(&self) -> &str {
        self.fabric.settings().topology().hosts()[self.host].name()
    }

    /// Position of the first port of this host among those of all
    fn first_port(&self) -> usize {
        let hosts = self.fabric.settings().topology().hosts();
        hosts[..self.host].iter().map(|host| host.ports().len()).sum()
    }

    // ─── What faults do to processes ───

    /// What killed a process that was this host before is past
    fn revive(&self, driver: &Driver, inlets: &mut Inlets) -> Result<(), FabricError> {
        let mut states = || {
            self.read_faults(inlets, &mut driver.remote_input());
            driver.advance_to(self.now());
            self.processes(driver)
        };
        let mut now = states();
        if now[self.host].0 != Process::Running {
            self.fabric.add_fault(&format!("at 0s {} restart", self.name()))?;
            now = states();
        }
        inlets.processes = now;
        Ok(())
    }

    /// What the processes of each host do by the faults that have happened, and how often they were started
    fn processes(&self, driver: &Driver) -> Vec<(Process, u32)> {
        let remote_input = driver.remote_input();
        (0..self.introduced.len()).map(|host| remote_input.process(host as u32)).collect()
    }

    /// Does to processes what the faults that have happened do to them: this one may stop, or die, here
    pub(crate) fn follow_faults(&self, driver: &Driver) {
        // Whoever only looks is nobody.
        if !self.has_joined() {
            return;
        }
        let fired = driver.remote_input().take_fired();
        for mut fault in fired {
            fault.trigger = Trigger::At(Time::ZERO);
            // The log is full: nothing more happens to this fabric.
            let _ = self.fabric.add_fault(&fault.to_string());
        }
        let now = self.processes(driver);
        let before = std::mem::replace(&mut self.inlets().processes, now.clone());
        for (host, (before, now)) in before.into_iter().zip(now).enumerate() {
            let is_killed = now.0 == Process::Dead || now.1 != before.1;
            let signal = match (before.0, now.0) {
                _ if is_killed && host == self.host => libc::SIGKILL,
                // Everybody goes on with a process that cannot do it itself, even to its end, which is its own affair: who is
                // the host by now may be another.
                (Process::Stopped, Process::Running | Process::Dead) => libc::SIGCONT,
                (Process::Running, Process::Stopped) if host == self.host => libc::SIGSTOP,
                _ => continue,
            };
            place::signal(self.fabric.process_of(host), signal);
        }
    }

    /// Forgets hosts whose processes have ended, as their system does
    pub(crate) fn bury(&self, driver: &Driver) {
        // Nobody is met meanwhile: who has just come would be taken for who has gone.
        let _inlets = self.inlets();
        for host in 0..self.introduced.len() {
            let is_gone = self.fabric.process_of(host) == NOBODY;
            if is_gone && self.introduced[host].swap(NOBODY, Ordering::Relaxed) != NOBODY {
                driver.remote_input().forget(host as u32);
            }
        }
    }

    // ─── Rest ───

    /// Waits until somebody tells something, or for so long; not at all if something is there
    pub(crate) fn rest(&self, time: Duration) {
        let Some(place) = self.place.get() else { return std::thread::sleep(time) };
        let slot = self.fabric.segment.slot(self.host);
        slot.is_asleep.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let has_news = self.has_news(&mut self.inlets());
        if !has_news {
            place.bell.lock().unwrap_or_else(PoisonError::into_inner).wait(time);
        }
        slot.is_asleep.store(0, Ordering::SeqCst);
    }

    /// Ends the rest of another thread
    pub(crate) fn rouse(&self) {
        let slot = self.fabric.segment.slot(self.host);
        if slot.is_asleep.load(Ordering::Relaxed) == 1 && slot.is_asleep.swap(0, Ordering::SeqCst) == 1 {
            super::bell::ring(&self.fabric.bell(self.host));
        }
    }

    fn inlets(&self) -> MutexGuard<'_, Inlets> {
        self.inlets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what has been sent from the ports of this host
    pub(crate) fn publish(&self, driver: &Driver) {
        let Some(Place { before, .. }) = self.place.get() else { return };
        let hosts = self.fabric.settings().topology().hosts();
        let host = &hosts[self.host];
        for (number, port) in (self.first_port()..).zip(host.ports()) {
            let Some([sent, _]) = driver.net().cable_stats(host.name(), port.device()) else { continue };
            let (counters, before) = (self.fabric.segment.port(number), before[number]);
            let counts = [
                (&counters.frames, before.frames + sent.frames),
                (&counters.messages, before.messages + sent.messages),
                (&counters.payload_bytes, before.payload_bytes + sent.payload_bytes),
                (&counters.wire_bytes, before.wire_bytes + sent.wire_bytes),
                (&counters.stalls, before.stalls + sent.stalls),
            ];
            for (counter, count) in counts {
                counter.store(count, Ordering::Relaxed);
            }
        }
    }

    /// The program ends
    pub(crate) fn leave(&self, driver: &Driver) {
        // Locks may have been held when it was forked, by threads that it does not have.
        if self.fabric.is_of_a_fork() {
            return;
        }
        if self.has_joined() {
            self.publish(driver);
            self.fabric.segment.slot(self.host).pid.store(NOBODY, Ordering::Release);
        }
        self.fabric.leave();
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::Topology;

    use super::*;
    use crate::shared::Settings;

    /// Catches a send that goes on while the thread beside the program has read what was told, and has not taken it in.
    #[test]
    fn who_sends_waits_for_who_takes_in() {
        let name = format!("sends-{}", std::process::id());
        let fabric = SharedFabric::create(&name, &Settings::new(Topology::pair())).unwrap();
        let (member, driver) = Member::look(fabric, "a").unwrap();
        let has_heard = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let inlets = member.inlets();
            scope.spawn(|| {
                member.hear_out(&driver);
                has_heard.store(true, Ordering::SeqCst);
            });
            // Nobody is kept from looking.
            member.hear(&driver);
            std::thread::sleep(Duration::from_millis(100));
            assert!(!has_heard.load(Ordering::SeqCst));
            drop(inlets);
        });
        assert!(has_heard.load(Ordering::SeqCst));
        member.leave(&driver);
    }
}
