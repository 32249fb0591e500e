//! This process as one of the hosts of a fabric, alone or beside others of the same host

mod faults;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use rdma_core::Time;
use rdma_sim::driver::{Process, RemoteInput, Session};
use rdma_sim::remote::{LinkMessage, ProcessName};
use rdma_sim::{CableStats, Driver, Fault, Sim};

use super::clock;
use super::codec;
use super::error::FabricError;
use super::fabric::{Claim, Lateness, SharedFabric};
use super::objects::{HostObjects, Leaks};
use super::process;
use super::ring::{Reader, RingMemory};
use super::segment::{MAX_PROCESSES, index};
use super::senders::{Announced, Senders};
use super::wake_pipe::WakePipe;

/// This process as one of the hosts of a fabric
///
/// It sees the ports of its host at once, and becomes one of its processes when it begins to use them: any number of programs that
/// only look may run beside those that do more.
pub(crate) struct LocalHost {
    host: usize,
    /// Position of its first port among those of all.
    first_port: usize,
    /// The incarnation of each process of which messages are applied.
    seen: Box<[AtomicU32]>,
    announced: Announced,
    /// Bytes of the log of faults that were applied.
    faults_read: AtomicUsize,
    receivers: Mutex<Receivers>,
    /// A fault waits for frames of this host.
    has_waiting_faults: AtomicBool,
    claim: OnceLock<HostClaim>,
    /// Something waits for room in a ring.
    is_blocked: Arc<AtomicBool>,
    fabric: SharedFabric,
}

/// That this process is one of its host
struct HostClaim {
    process: ProcessName,
    incarnation: u32,
    pipe: WakePipe,
    /// The rings that lead here, by the process that writes them.
    rings: Vec<RingMemory>,
    /// What its predecessors in its slot had sent from each port.
    before_here: Vec<CableStats>,
    /// Held for as long as the process is one of the host.
    _lock: File,
}

/// What arrives from other hosts; its lock is taken before that of the simulation
struct Receivers {
    readers: Vec<Reader>,
    /// Faults that wait for frames of this host.
    waiting: Vec<FrameFault>,
    /// The state of each host at the last look, and how often they were started.
    processes: Vec<(Process, u32)>,
}

/// A fault that waits for frames, and its position in the log
struct FrameFault {
    fault: Fault,
    position: usize,
}

/// The incarnation of a process that does not exist, and its process ID
const NONE: u32 = 0;

/// What a host on paced cables waits for, before it looks at the clock
struct Pace {
    /// The time of its last look.
    from: Time,
    next_event: Option<Time>,
    /// A fault has stopped its processes: it is not late.
    is_stopped: bool,
}

impl Pace {
    fn look(session: &mut Session<'_>, host: u32) -> Self {
        let is_stopped = session.process(host) != Process::Running;
        Self { from: session.now(), next_event: session.next_event(), is_stopped }
    }

    /// For how long the host was behind at `now`, and by how much, if it is late; `late` is how late a message has come
    fn lateness(&self, now: Time, late: Duration) -> Option<(Duration, Duration)> {
        let worst = self.next_event.map_or(late, |due| late.max(now.since(due)));
        let is_late = worst > Lateness::TOLERANCE && !self.is_stopped;
        is_late.then(|| (worst.min(now.since(self.from)), worst))
    }
}

impl LocalHost {
    /// Looks at the fabric as the host called `name`, or of that number
    pub(crate) fn open(fabric: SharedFabric, name: &str) -> Result<(Self, Driver), FabricError> {
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
        // Programs in C spawn no tasks, and may do with their memory what they like.
        let sim = Sim::new()
            .model(settings.model())
            .topology(settings.topology().clone())
            .seed(settings.seed_of(host))
            .real_addresses()
            .sanitize(false);
        let driver = Driver::new(sim, drop).expect("there are no faults yet");
        let none = || (0..count * MAX_PROCESSES).map(|_| AtomicU32::new(NONE));
        let receivers = Receivers {
            readers: Vec::new(),
            waiting: Vec::new(),
            processes: vec![(Process::Running, 1); count],
        };
        let host = Self {
            host,
            first_port: hosts[..host].iter().map(|host| host.ports().len()).sum(),
            seen: none().collect(),
            announced: none().collect(),
            faults_read: AtomicUsize::new(0),
            receivers: Mutex::new(receivers),
            has_waiting_faults: AtomicBool::new(false),
            claim: OnceLock::new(),
            is_blocked: Arc::default(),
            fabric,
        };
        Ok((host, driver))
    }

    /// Becomes a process of the host, unless that is done
    pub(crate) fn claim(&self, driver: &Driver) -> Result<(), FabricError> {
        let mut receivers = self.receivers();
        if self.is_claimed() {
            return Ok(());
        }
        let failed = |error: io::Error| FabricError::Io(format!("fabric {:?}", self.fabric.name()), error);
        let (host, fabric) = (self.host, &self.fabric);
        let Claim { process, lock, host_lock } = fabric.claim(host)?;
        fabric.reserve(process).map_err(failed)?;
        let pipe = WakePipe::open(&fabric.pipe(process)).map_err(failed)?;
        let slot = fabric.segment.slot(process);
        slot.sleep_flag.clear();
        // Messages to a predecessor carry another number, and are skipped.
        let incarnation = slot.incarnation.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let senders = Senders::new(
            Arc::clone(&fabric.segment),
            process,
            incarnation,
            Arc::clone(&self.announced),
            Arc::clone(&self.is_blocked),
            |to| fabric.pipe(to),
        );
        driver.simulate_only(self.name(), Box::new(senders));
        let rings: Vec<_> = self.all_processes().map(|from| fabric.segment.ring(from, process)).collect();
        receivers.readers = rings.iter().copied().map(Reader::new).collect();
        self.restart(process, driver, &mut receivers)?;
        self.share_objects(process, driver);
        let before_here = fabric.sent_by(process);
        let claim = HostClaim { process, incarnation, pipe, rings, before_here, _lock: lock };
        let _ = self.claim.set(claim);
        let (pid, started) = process::Process::own();
        slot.started.store(started, Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Release);
        fabric.segment.note_claim(process);
        slot.incarnation.store(incarnation, Ordering::Release);
        drop(receivers);
        // Unlocked, not closed: a child that was forked meanwhile has a copy of it.
        let _ = host_lock.unlock();
        // The others detect the new incarnation at once.
        fabric.wake_all();
        self.fire_due_faults();
        // It stops here if its host is paused.
        self.follow_faults(driver);
        Ok(())
    }

    /// Counts objects for all processes of the host; the faults that are due have fired
    fn share_objects(&self, process: ProcessName, driver: &Driver) {
        let segment = &self.fabric.segment;
        let rules = &self.fabric.settings().model().rules;
        let leaks = Leaks {
            pds: rules.process_end_leaks_pds,
            qps: rules.process_end_leaks_qps,
            boots: driver.remote_input().boots(process.host),
        };
        let directory = self.fabric.directory().to_owned();
        let objects = HostObjects::new(Arc::clone(segment), directory, process, leaks);
        objects.clear(self.ports());
        segment.slot(process).boots.store(leaks.boots, Ordering::Relaxed);
        driver.share_host(process.number, Box::new(objects));
    }

    /// The names of all processes that hosts may have
    fn all_processes(&self) -> impl Iterator<Item = ProcessName> + use<> {
        let numbers = |host| (0..MAX_PROCESSES as u32).map(move |number| ProcessName { host, number });
        (0..self.fabric.segment.hosts() as u32).flat_map(numbers)
    }

    /// The names of the processes of other hosts that were ever there
    fn others(&self) -> impl Iterator<Item = ProcessName> + '_ {
        let hosts = (0..self.fabric.segment.hosts()).filter(|host| *host != self.host);
        hosts.flat_map(|host| self.fabric.segment.processes_of(host))
    }

    /// The positions of the ports of the host among those of all
    fn ports(&self) -> Range<usize> {
        let count = self.fabric.settings().topology().hosts()[self.host].ports().len();
        self.first_port..self.first_port + count
    }

    /// Notes that a program of the host has opened a device
    pub(crate) fn note_opened(&self) {
        self.fabric.segment.note_opened(self.host);
    }

    /// Whether this process is one of the host
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim.get().is_some()
    }

    /// The time since the start of the fabric
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(clock::now_ns().saturating_sub(self.fabric.segment.epoch_ns()))
    }

    // ─── Receiving ───

    /// Locks the simulation, with everything applied that has arrived and is due
    ///
    /// With `waits`, another thread that applies messages is waited for: what is sent next may depend on them, because
    /// adapters drop what finds no receive. Without, its messages may come later.
    pub(crate) fn session<'a>(&self, driver: &'a Driver, waits: bool) -> Session<'a> {
        // In the common case nothing has arrived, and the lock of the simulation is the only one.
        let receivers = match self.has_arrivals() {
            false => None,
            true if waits => Some(self.receivers()),
            true => match self.receivers.try_lock() {
                Ok(receivers) => Some(receivers),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            },
        };
        let mut session = driver.session();
        let pace = self.fabric.settings().is_paced().then(|| Pace::look(&mut session, self.host as u32));
        let late = receivers
            .map_or(Duration::ZERO, |mut receivers| self.receive(&mut receivers, session.remote_input()));
        if self.is_blocked() && self.is_blocked.swap(false, Ordering::Relaxed) {
            session.remote_input().resume();
        }
        let now = self.now();
        if let Some(claim) = self.claim.get()
            && let Some((behind, worst)) = pace.and_then(|pace| pace.lateness(now, late))
        {
            self.fabric.segment.slot(claim.process).lateness.add(behind, worst);
        }
        session.advance_to(now);
        session
    }

    /// Applies what has arrived; returns how late the latest message came
    fn receive(&self, receivers: &mut Receivers, input: &mut RemoteInput<'_>) -> Duration {
        self.read_faults(receivers, input);
        let (now, mut late) = (self.now(), Duration::ZERO);
        let Some(HostClaim { incarnation, .. }) = self.claim.get() else { return late };
        for from in self.others() {
            self.detect_new_incarnation(from, input);
            while receivers.readers[index(from)].read(|words, bytes| {
                let stamp = codec::stamp(words);
                if stamp.from != self.seen(from) {
                    // The process has come after the last look.
                    self.detect_new_incarnation(from, input);
                }
                if (stamp.from, stamp.to) == (self.seen(from), *incarnation)
                    && let Some(message) = codec::decode(words, bytes)
                {
                    if let LinkMessage::Filled { at, .. } = message {
                        late = late.max(now.since(at));
                    }
                    input.apply(from, &message);
                }
            }) {}
        }
        late
    }

    /// Whether something has arrived that was not applied
    fn has_arrivals(&self) -> bool {
        let has_messages = |claim: &HostClaim| {
            self.others().any(|from| !claim.rings[index(from)].is_empty() || self.is_new(from))
        };
        self.fabric.segment.faults_len() != self.faults_read.load(Ordering::Relaxed)
            || self.claim.get().is_some_and(has_messages)
    }

    fn seen(&self, process: ProcessName) -> u32 {
        self.seen[index(process)].load(Ordering::Relaxed)
    }

    /// Whether another process than the one that was seen has that name
    fn is_new(&self, process: ProcessName) -> bool {
        let slot = self.fabric.segment.slot(process);
        slot.incarnation.load(Ordering::Acquire) != self.seen(process)
    }

    /// Announces this process to one of another host, if that is new
    fn detect_new_incarnation(&self, process: ProcessName, input: &mut RemoteInput<'_>) {
        if self.is_new(process) {
            let incarnation = self.fabric.segment.slot(process).incarnation.load(Ordering::Acquire);
            self.seen[index(process)].store(incarnation, Ordering::Relaxed);
            self.announced[index(process)].store(incarnation, Ordering::Relaxed);
            input.announce_all_to(process);
        }
    }

    /// Whether something waits for room in a ring
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    fn receivers(&self) -> MutexGuard<'_, Receivers> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ─── Sleeping ───

    /// Sleeps for `time`, or until something arrives; not at all if something has arrived
    pub(crate) fn sleep(&self, time: Duration) {
        let Some(claim) = self.claim.get() else { return std::thread::sleep(time) };
        let sleep_flag = &self.fabric.segment.slot(claim.process).sleep_flag;
        sleep_flag.sleep_unless(|| self.has_arrivals(), || claim.pipe.wait(time));
    }

    /// Ends the sleep of another thread of this process, or its next one
    pub(crate) fn interrupt(&self) {
        if let Some(claim) = self.claim.get() {
            claim.pipe.notify();
        }
    }

    /// Ends the sleep of another thread of this process, if it sleeps
    pub(crate) fn wake(&self) {
        if let Some(claim) = self.claim.get()
            && self.fabric.segment.slot(claim.process).sleep_flag.must_wake_own()
        {
            claim.pipe.notify();
        }
    }

    // ─── The account of the process ───

    fn name(&self) -> &str {
        self.fabric.settings().topology().hosts()[self.host].name()
    }

    /// Publishes what this process has sent from the ports of its host: at once, because it may be killed at any time
    ///
    /// Returns whether a fault may have waited for it: the caller [fires](Self::fire_due_faults) those that are due after the session.
    #[must_use]
    pub(crate) fn publish(&self, session: &mut Session<'_>) -> bool {
        let Some(HostClaim { process, before_here, .. }) = self.claim.get() else { return false };
        let Some(sent) = session.take_sent(self.host as u32) else { return false };
        for (number, sent) in self.ports().zip(sent) {
            self.fabric.segment.port(number, *process).store(before_here[number] + sent);
        }
        self.has_waiting_faults.load(Ordering::Relaxed)
    }

    /// Leaves the host: the program ends
    pub(crate) fn leave(&self, driver: &Driver) {
        // A forked child has neither the shared memory nor the threads that may hold locks.
        if self.fabric.is_of_a_fork() {
            return;
        }
        if let Some(claim) = self.claim.get() {
            let _ = self.publish(&mut driver.session());
            // Another thread may have published the frames that a fault waits for, and not come to fire it: no later process has to come.
            self.fire_due_faults();
            self.fabric.segment.slot(claim.process).pid.store(NONE, Ordering::Release);
        }
        self.fabric.leave();
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::Topology;

    use super::super::codec::Stamp;
    use super::super::ring::Writer;
    use super::*;
    use crate::shared::Settings;

    /// Catches messages that are not counted, time that counts twice, and a pause by a fault that counts as lateness.
    #[test]
    fn a_host_is_late_by_what_it_does_or_receives_too_late() {
        let time = |us: u64| Time::from_nanos(us * 1000);
        let us = Duration::from_micros;
        let pace = |next_event: Option<u64>, is_stopped| Pace {
            from: time(10_000),
            next_event: next_event.map(time),
            is_stopped,
        };
        let late = |event, message, is_stopped| pace(event, is_stopped).lateness(time(15_000), us(message));
        assert_eq!(late(None, 0, false), None);
        assert_eq!(late(Some(15_700), 0, false), None, "it is not due");
        assert_eq!(late(Some(14_800), 200, false), None, "it is within the tolerance");
        assert_eq!(late(Some(14_799), 0, false), Some((us(201), us(201))));
        assert_eq!(late(Some(14_000), 3_000, false), Some((us(3_000), us(3_000))));
        assert_eq!(late(None, 9_000, false), Some((us(5_000), us(9_000))), "it has looked in between");
        assert_eq!(late(Some(14_000), 3_000, true), None);
    }

    /// Regression: a process that joined later lost the frames once more that its predecessor had lost.
    #[test]
    fn a_fault_that_was_used_up_does_not_fire_in_a_later_process() {
        let name = format!("once-{}", std::process::id());
        let settings = Settings::new(Topology::pair());
        let fabric = SharedFabric::create(&name, &settings).unwrap();
        for line in ["at 0s a:rdma_en2 slow 50%", "at 0s a:rdma_en2 lose 3", "at 0s b:rdma_en2 corrupt 2"] {
            fabric.add_fault(line).unwrap();
        }
        let faults_of_a_process = || {
            let (host, driver) = LocalHost::open(SharedFabric::open(&name).unwrap(), "a").unwrap();
            host.claim(&driver).unwrap();
            host.session(&driver, true).end();
            let faults = driver.net().faults().to_string();
            host.leave(&driver);
            faults
        };
        assert_eq!(
            faults_of_a_process(),
            "at 0s a:rdma_en2 slow 50%; at 0s a:rdma_en2 lose 3; at 0s b:rdma_en2 corrupt 2"
        );
        assert_eq!(faults_of_a_process(), "at 0s a:rdma_en2 slow 50%; at 0s b:rdma_en2 corrupt 2");
    }

    /// Catches a send that goes on while another thread has read messages and has not applied them.
    #[test]
    fn a_sender_waits_for_a_thread_that_applies_messages_and_a_poller_does_not() {
        let name = format!("sends-{}", std::process::id());
        let fabric = SharedFabric::create(&name, &Settings::new(Topology::pair())).unwrap();
        let (host, driver) = LocalHost::open(fabric, "a").unwrap();
        host.claim(&driver).unwrap();
        let message = rdma_sim::remote::LinkMessage::Closed {
            qp: rdma_sim::remote::QpName { device: 3, qpn: rdma_core::Qpn(1) },
        };
        let has_applied = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receivers = host.receivers();
            let (words, bytes) = codec::encode(Stamp { from: 1, to: 1 }, &message);
            let [here, there] = [0, 1].map(|host| ProcessName { host, number: 0 });
            host.fabric.segment.note_claim(there);
            assert!(Writer::new(host.fabric.segment.ring(there, here)).write(&words, bytes));
            scope.spawn(|| {
                host.session(&driver, true).end();
                has_applied.store(true, Ordering::SeqCst);
            });
            host.session(&driver, false).end();
            std::thread::sleep(Duration::from_millis(100));
            assert!(!has_applied.load(Ordering::SeqCst));
            drop(receivers);
        });
        assert!(has_applied.load(Ordering::SeqCst) && !host.has_arrivals());
        host.leave(&driver);
    }
}
