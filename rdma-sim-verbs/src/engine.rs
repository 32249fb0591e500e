//! The one simulation of this process, and its clock

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdma_core::Time;
use rdma_sim::driver::Session;
use rdma_sim::{Driver, FaultPlan, Rules, Sim, Topology};
use rdma_verbs_abi::constants;

use crate::devices::{self, Listed};
use crate::environment::{self, VirtualClock, variable};
use crate::errno::{EINVAL, Errno};
use crate::lifetime;
use crate::log::log_error;
use crate::progress::{Progress, Work};
use crate::shared::{FabricError, LocalHost, Settings, SharedFabric};
use crate::silent_outcomes::SilentOutcomes;

/// The simulation, and how its time passes
pub(crate) struct Engine {
    pub(crate) driver: Driver,
    clock: Clock,
    /// In the order in which the provider lists them.
    pub(crate) devices: Vec<Listed>,
    /// The topology in which faults have their targets.
    pub(crate) topology: Topology,
    /// The name of the profile, for [`rdma_sim_profile`](crate::exports)
    pub(crate) profile: String,
    pub(crate) is_roce: bool,
    /// The link layer that ports report.
    pub(crate) link_layer: u8,
    /// How the device decides where sources disagree.
    pub(crate) rules: Rules,
    /// Whether the process ends where Apple's provider crashes it.
    crashes: bool,
    pub(crate) silent_outcomes: SilentOutcomes,
    progress: Progress,
    /// Polls in a row that found nothing.
    idle: AtomicU32,
}

/// Polls in vain before each of the next ones yields the core: about as long as a round trip takes
const YIELD_AFTER_POLLS: u32 = 200;
/// Polls that find nothing before the progress thread is woken once more
const POLLS_PER_WAKE: u32 = 16;

/// Events that pass at most during one poll of an empty queue: a reliable queue pair retries for ever
pub(crate) const MAX_JUMPS: usize = 4096;

enum Clock {
    /// Time jumps to the next event when the program waits, or passes only when the program says so.
    Virtual {
        jumps: bool,
    },
    Wall(Instant),
    /// The clock of a fabric of several processes.
    Shared(Box<LocalHost>),
}

static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();

/// Takes `NAME=VALUE` words instead of environment variables; returns false if the simulation has begun
pub(crate) fn configure(text: &str) -> bool {
    let has_begun = ENGINE.get().is_some();
    if !has_begun {
        environment::configure(text);
    }
    !has_begun
}

impl Engine {
    /// The simulation that the environment describes; [`EINVAL`], and an error in the log, if the description is invalid
    pub(crate) fn get() -> Result<&'static Self, Errno> {
        let engine = ENGINE.get_or_init(|| Self::from_environment().inspect_err(|why| log_error(why)).ok());
        engine.as_ref().ok_or(EINVAL)
    }

    fn from_environment() -> Result<Self, String> {
        let faults = variable("RDMA_SIM_FAULTS").unwrap_or_default();
        let virtual_clock = environment::virtual_clock()?;
        match (variable("RDMA_SIM_FABRIC"), variable("RDMA_SIM_HOST")) {
            (Some(_), _) if virtual_clock.is_some() => Err(format!(
                "RDMA_SIM_CLOCK={} is for one process: leave it or RDMA_SIM_FABRIC out",
                variable("RDMA_SIM_CLOCK").unwrap_or_default()
            )),
            (Some(name), Some(host)) => Self::in_fabric(&name, &host, &faults),
            (Some(_), None) => Err("RDMA_SIM_FABRIC needs RDMA_SIM_HOST, the host to be".to_owned()),
            (None, Some(_)) => Err("RDMA_SIM_HOST needs RDMA_SIM_FABRIC, the fabric to be in".to_owned()),
            (None, None) => Self::alone(&faults, virtual_clock),
        }
    }

    /// A simulation of all hosts in this process
    #[expect(clippy::disallowed_methods, reason = "programs in C live on the clock on the wall")]
    fn alone(faults: &str, virtual_clock: Option<VirtualClock>) -> Result<Self, String> {
        let settings = environment::settings()?;
        let faults: FaultPlan = faults.parse().map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        let sim = Sim::new()
            .model(settings.model_at_line_rate())
            .topology(settings.topology().clone())
            .faults(faults)
            .seed(settings.seed_of(0))
            .real_addresses()
            .sanitize(false);
        // Programs in C spawn no tasks.
        let driver = Driver::new(sim, drop).map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        // A virtual clock stands at zero for the first verbs: faults of that instant are in effect already.
        driver.advance_to(Time::ZERO);
        let clock = match virtual_clock {
            Some(clock) => Clock::Virtual { jumps: clock == VirtualClock::Jumping },
            None => Clock::Wall(Instant::now()),
        };
        let devices = devices::list(settings.topology(), None);
        Self::new(driver, clock, devices, &settings)
    }

    /// A simulation of one host, beside other processes that simulate the others
    fn in_fabric(name: &str, host: &str, faults: &str) -> Result<Self, String> {
        let found = match environment::has_settings() {
            true => Err(FabricError::Missing(name.to_owned())),
            false => SharedFabric::open(name),
        };
        let fabric = match found {
            Err(FabricError::Missing(_)) => SharedFabric::create(name, &environment::settings()?),
            found => found,
        };
        let fabric = fabric.map_err(|error| error.to_string())?;
        if !faults.is_empty() {
            fabric.add_fault(faults).map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        }
        let settings = fabric.settings().clone();
        let devices = devices::list(settings.topology(), Some(host));
        let (host, driver) = LocalHost::open(fabric, host).map_err(|error| error.to_string())?;
        lifetime::refuse_in_children();
        lifetime::at_exit(leave);
        Self::new(driver, Clock::Shared(Box::new(host)), devices, &settings)
    }

    fn new(driver: Driver, clock: Clock, devices: Vec<Listed>, settings: &Settings) -> Result<Self, String> {
        let (is_roce, topology) = (settings.is_roce(), settings.topology().clone());
        let link_layer = match variable("RDMA_SIM_LINK_LAYER").as_deref() {
            None if is_roce => constants::LINK_LAYER_ETHERNET,
            None | Some("thunderbolt") => constants::THUNDERBOLT as u8,
            Some("ethernet") => constants::LINK_LAYER_ETHERNET,
            Some("infiniband") => constants::LINK_LAYER_INFINIBAND,
            Some(other) => {
                return Err(format!(
                    "RDMA_SIM_LINK_LAYER={other:?} is not thunderbolt, ethernet or infiniband"
                ));
            }
        };
        let rules = settings.model().rules;
        let crashes = match variable("RDMA_SIM_CRASHES").as_deref() {
            None => rules.crashes,
            Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(format!("RDMA_SIM_CRASHES={other:?} is neither 0 nor 1")),
        };
        let (progress, idle) = (Progress::default(), AtomicU32::new(0));
        Ok(Self {
            driver,
            clock,
            devices,
            topology,
            profile: settings.profile_name(),
            is_roce,
            link_layer,
            rules,
            crashes,
            silent_outcomes: SilentOutcomes::new(&settings.model()),
            progress,
            idle,
        })
    }

    /// Makes this process one of its host, if it has one; returns whether the program may use its devices
    pub(crate) fn claim_host(&'static self) -> bool {
        let Clock::Shared(host) = &self.clock else { return true };
        if host.is_claimed() {
            return true;
        }
        match host.claim(&self.driver) {
            Ok(()) => {
                self.progress.start(self);
                true
            }
            Err(error) => {
                log_error(&error.to_string());
                false
            }
        }
    }

    /// Notes, for the summary of a run, that the program has opened a device
    pub(crate) fn note_opened(&self) {
        if let Clock::Shared(host) = &self.clock {
            host.note_opened();
        }
    }

    // ─── Verbs ───

    /// Posts within `f`, and runs what that sets off at once
    ///
    /// What has arrived before is applied first: adapters drop what finds no receive. In the common case, one lock is taken.
    pub(crate) fn post<T>(&self, f: impl FnOnce(&mut Session<'_>) -> T) -> T {
        self.progress.count_call();
        self.wake_progress();
        let mut session = self.advanced(true);
        let result = f(&mut session);
        if !self.is_virtual() {
            let now = session.now();
            session.advance_to(now);
        }
        self.leave_verb(session);
        result
    }

    /// Polls within `f`
    ///
    /// A program that polls now and then, and finds nothing, leaves the progress thread asleep: to wake it for each poll costs more than
    /// the poll.
    pub(crate) fn poll<T>(&self, f: impl FnOnce(&mut Session<'_>) -> T) -> T {
        self.progress.count_call();
        if self.idle.load(Ordering::Relaxed).is_multiple_of(POLLS_PER_WAKE) {
            self.wake_progress();
        }
        let mut session = self.advanced(false);
        let result = f(&mut session);
        self.leave_verb(session);
        result
    }

    /// Unlocks the simulation after a post or poll, and keeps the thread for as long as a fault lets it take
    fn leave_verb(&self, session: Session<'_>) {
        let takes_time = session.takes_time();
        self.leave(session);
        if takes_time {
            self.spend_blocked();
        }
    }

    /// Runs what is due before a verb that neither posts nor polls; the progress thread sleeps on, unless an event is due before it wakes
    pub(crate) fn catch_up(&self) {
        self.leave(self.advanced(false));
    }

    /// Ends the sleep of the progress thread
    fn wake_progress(&self) {
        match &self.clock {
            Clock::Virtual { .. } => (),
            Clock::Wall(_) => self.progress.wake(),
            Clock::Shared(host) => host.wake(),
        }
    }

    /// Ends the sleep of the progress thread, also if the thread has only just announced it
    fn interrupt_progress(&self) {
        match &self.clock {
            Clock::Shared(host) => host.interrupt(),
            Clock::Virtual { .. } | Clock::Wall(_) => self.progress.unpark(),
        }
    }

    /// Locks the simulation, with everything applied that has arrived and is due
    fn advanced(&self, waits: bool) -> Session<'_> {
        match &self.clock {
            Clock::Virtual { .. } => return self.driver.session(),
            Clock::Wall(_) => (),
            Clock::Shared(host) => return host.session(&self.driver, waits),
        }
        let mut session = self.driver.session();
        session.advance_to(self.now());
        session
    }

    fn leave(&self, mut session: Session<'_>) {
        let has_counted = match &self.clock {
            Clock::Shared(host) => host.publish(&mut session),
            Clock::Virtual { .. } | Clock::Wall(_) => false,
        };
        let sleeps_past = self.progress.sleeps_past(session.next_event());
        let has_host_news = session.end();
        if sleeps_past {
            self.interrupt_progress();
        }
        if let (true, Clock::Shared(host)) = (has_counted, &self.clock) {
            host.fire_due_faults();
        }
        if let (true, Clock::Shared(host)) = (has_host_news, &self.clock) {
            host.follow_faults(&self.driver);
        }
    }

    /// Looks how long the progress thread may sleep, at most for `most`, and announces it to the calls of the program
    fn announce_sleep(&self, most: Duration) -> Duration {
        let mut session = self.driver.session();
        let now = self.now();
        let time = session.next_event().map_or(most, |next| next.since(now)).min(most);
        self.progress.announce_sleep(now + time);
        time
    }

    /// Sleeps for `time`, or until something arrives or is due earlier than was announced
    fn sleep(&self, time: Duration) {
        match &self.clock {
            Clock::Shared(host) if host.is_blocked() => host.sleep(time.min(Duration::from_millis(1))),
            Clock::Shared(host) => host.sleep(time),
            Clock::Virtual { .. } | Clock::Wall(_) => self.progress.sleep(time),
        }
        self.progress.end_sleep();
    }

    fn is_virtual(&self) -> bool {
        matches!(self.clock, Clock::Virtual { .. })
    }

    /// The time
    pub(crate) fn now(&self) -> Time {
        match &self.clock {
            Clock::Virtual { .. } => self.driver.now(),
            Clock::Wall(start) => Time::ZERO + start.elapsed(),
            Clock::Shared(host) => host.now(),
        }
    }

    /// On a virtual clock that jumps, advances `session` to the next event; returns whether there is one
    ///
    /// A call that a fault makes slow waits for none: time passes when it ends.
    pub(crate) fn jump(&self, session: &mut Session<'_>) -> bool {
        let jumps = matches!(self.clock, Clock::Virtual { jumps: true }) && !session.takes_time();
        let next = if jumps { session.next_event() } else { None };
        next.inspect(|next| session.advance_to(*next)).is_some()
    }

    /// Counts polls that find nothing; after many, lets other processes run
    ///
    /// On a machine with more hosts than cores, the program may wait for one of them.
    pub(crate) fn count_poll(&self, found: bool) {
        if found {
            self.idle.store(0, Ordering::Relaxed);
        } else if self.idle.fetch_add(1, Ordering::Relaxed) >= YIELD_AFTER_POLLS && !self.is_virtual() {
            std::thread::yield_now();
        }
    }

    /// Advances a virtual clock by `ns`
    pub(crate) fn rest(&self, ns: u64) {
        if self.is_virtual() {
            self.driver.advance_to(self.driver.now() + Duration::from_nanos(ns));
        }
    }

    /// Advances a virtual clock to the next event, or to `most` if that is earlier; returns the time
    pub(crate) fn step(&self, most: Time) -> Time {
        if self.is_virtual() {
            let mut session = self.driver.session();
            let next = session.next_event().unwrap_or(Time::MAX).min(most);
            if next < Time::MAX {
                session.advance_to(next);
            }
            self.leave(session);
        }
        self.now()
    }

    /// Lets the verbs take their time that the calling thread has called: it does nothing else meanwhile, for ever if one of them does not
    /// return
    pub(crate) fn spend_blocked(&self) {
        match self.driver.take_blocked() {
            None => loop {
                std::thread::park();
            },
            Some(Duration::ZERO) => (),
            Some(time) if self.is_virtual() => {
                self.driver.advance_to(self.driver.now() + time);
            }
            Some(time) => std::thread::sleep(time),
        }
    }

    /// Apple's provider crashes the program in `call` because of `why`: so does this one, if it was told to
    pub(crate) fn crash(&self, call: &str, why: &str) {
        if self.crashes {
            log_error(&format!("{call}: {why}; Apple's provider crashes here, and so does this one"));
            std::process::abort();
        }
    }

    /// Makes the progress thread poll at once: the program asks for an event, and may block until it comes
    pub(crate) fn start_progress(&'static self) {
        if !self.is_virtual() {
            self.progress.start(self);
            self.progress.take_over();
        }
    }
}

impl Work for Engine {
    fn run(&self) {
        self.leave(self.advanced(false));
    }

    fn wait(&self, most: Duration) {
        self.sleep(self.announce_sleep(most));
    }

    fn housekeeping(&self) {
        if let Clock::Shared(host) = &self.clock {
            host.reap_dead_processes(&self.driver);
        }
    }
}

/// Leaves the host when the program ends
extern "C" fn leave() {
    if let Some(Some(Engine { clock: Clock::Shared(host), driver, .. })) = ENGINE.get() {
        // A panic must not unwind into the exit of the program.
        let _ = catch_unwind(AssertUnwindSafe(|| host.leave(driver)));
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::Fault;

    use super::*;

    /// Longer than anything takes on a loaded machine
    const LONG: Duration = Duration::from_secs(30);

    /// An engine of one process and one of a fabric; this thread stands in for the progress thread of both
    #[expect(clippy::disallowed_methods, reason = "as in programs in C")]
    fn engines(name: &str) -> [Engine; 2] {
        let settings = Settings::new(Topology::pair());
        let name = format!("{name}-{}", std::process::id());
        let (host, of_fabric) =
            LocalHost::open(SharedFabric::create(&name, &settings).unwrap(), "a").unwrap();
        host.claim(&of_fabric).unwrap();
        let alone = Driver::new(Sim::new(), drop).unwrap();
        let clocks = [(alone, Clock::Wall(Instant::now())), (of_fabric, Clock::Shared(Box::new(host)))];
        clocks.map(|(driver, clock)| {
            let engine = Engine::new(driver, clock, Vec::new(), &settings).unwrap();
            Engine { progress: Progress::of_this_thread(), ..engine }
        })
    }

    /// Schedules an event that is due at `time`, as a post does
    fn schedule(engine: &Engine, time: Duration) {
        let at = Time::ZERO + time;
        engine.post(|session| {
            let fault = Fault::at_port(at, "a", "rdma_en2", rdma_sim::FaultKind::LeakPds { count: 1 });
            session.remote_input().plan(fault, &engine.topology).unwrap();
        });
    }

    /// Regression: the event was seen up to 100 ms late, at the end of the sleep.
    ///
    /// Catches calls that do not look how long the thread sleeps, and an interruption that is lost unless the thread sleeps already.
    #[test]
    fn a_post_between_the_look_at_the_next_event_and_the_sleep_ends_the_sleep() {
        for engine in engines("sleep") {
            let start = engine.now();
            assert_eq!(engine.announce_sleep(LONG), LONG);
            schedule(&engine, (start.since(Time::ZERO)) + LONG / 2);
            engine.sleep(LONG);
            assert!(engine.now().since(start) < LONG / 2, "the sleep has ended at once");
            // The next sleep is known to last until the event.
            assert!(engine.announce_sleep(LONG) <= LONG / 2);
            assert!(!engine.progress.sleeps_past(Some(start + LONG)), "a later event ends no sleep");
            engine.progress.end_sleep();
            assert!(!engine.progress.sleeps_past(Some(start)), "the thread is awake");
        }
    }
}
