//! The one simulation of this process, and its clock

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rdma_core::Time;
use rdma_sim::{Driver, FaultPlan, Sim, Topology};
use rdma_verbs_abi::constants;

use crate::complain;
use crate::progress::Progress;
use crate::shared::{self, FabricError, Member, Settings, SharedFabric};

/// The simulation, and how its time passes
pub(crate) struct Engine {
    pub(crate) driver: Driver,
    clock: Clock,
    /// In the order in which the provider lists them.
    pub(crate) devices: Vec<Listed>,
    /// Where faults have their places.
    pub(crate) topology: Topology,
    pub(crate) is_roce: bool,
    /// What ports say of their link.
    pub(crate) link_layer: u8,
    /// Calls of the program, so that the thread that works beside it sees whether it polls.
    calls: AtomicU32,
    pub(crate) progress: Progress,
    /// Looks in a row that found nothing.
    idle: AtomicU32,
}

/// A device as programs find it
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) host: String,
    pub(crate) device: String,
    /// What the provider calls it.
    pub(crate) name: String,
    pub(crate) guid: u64,
}

/// Looks in vain before each of the next ones lets others run: about what a round trip takes
const PATIENCE: u32 = 200;
/// `IBV_LINK_LAYER_INFINIBAND`
const INFINIBAND: u8 = 1;
/// `IBV_LINK_LAYER_ETHERNET`
const ETHERNET: u8 = 2;

/// Events that pass at most while a program looks once at what stays empty: a reliable queue pair asks for ever
pub(crate) const MOST_JUMPS: usize = 4096;

enum Clock {
    /// Time jumps to the next event when somebody waits.
    Virtual,
    Wall(Instant),
    /// That of a fabric that others are in, too.
    Shared(Box<Member>),
}

/// What a program said instead of the environment.
static CONFIGURED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Takes `NAME=VALUE` words that stand for environment variables; false if the simulation has begun
pub(crate) fn configure(text: &str) -> bool {
    if ENGINE.get().is_some() {
        return false;
    }
    let words = text.split(',').filter_map(|word| word.split_once('='));
    let mut configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
    configured.extend(words.map(|(name, value)| (name.trim().to_owned(), value.to_owned())));
    true
}

/// What was configured, or else said in the environment
fn setting(name: &str) -> Option<String> {
    let configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
    let said = configured.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    said.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();

impl Engine {
    /// The simulation that the environment describes; `None` if it describes none, which was said on standard error
    pub(crate) fn get() -> Option<&'static Self> {
        ENGINE.get_or_init(|| Self::from_environment().inspect_err(|why| complain(why)).ok()).as_ref()
    }

    fn from_environment() -> Result<Self, String> {
        let faults = setting("RDMA_SIM_FAULTS").unwrap_or_default();
        match setting("RDMA_SIM_FABRIC") {
            Some(name) => Self::in_fabric(&name, &faults),
            None => Self::alone(&faults),
        }
    }

    fn settings() -> Result<Settings, String> {
        let topology = setting("RDMA_SIM_TOPOLOGY").unwrap_or_else(|| "pair".to_owned());
        let topology =
            shared::topology(&topology, None).map_err(|error| format!("RDMA_SIM_TOPOLOGY: {error}"))?;
        let profile = setting("RDMA_SIM_PROFILE").unwrap_or_else(|| "tb5".to_owned());
        let settings = Settings::new(topology).profile(&profile);
        let settings = settings.map_err(|error| format!("RDMA_SIM_PROFILE: {error}"))?;
        let is_paced = match setting("RDMA_SIM_PACE").as_deref() {
            None | Some("none") => false,
            Some("tb5") => true,
            Some(other) => return Err(format!("RDMA_SIM_PACE={other:?} is neither tb5 nor none")),
        };
        let seed = setting("RDMA_SIM_SEED").unwrap_or_else(|| "0".to_owned());
        let seed = seed.parse().map_err(|_| format!("RDMA_SIM_SEED={seed:?} is not a number"))?;
        Ok(settings.paced(is_paced).seed(seed))
    }

    /// All hosts are in this process
    #[expect(clippy::disallowed_methods, reason = "programs in C live on the clock on the wall")]
    fn alone(faults: &str) -> Result<Self, String> {
        let settings = Self::settings()?;
        let faults: FaultPlan = faults.parse().map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        let sim = Sim::new()
            .model(settings.model_at_line_rate())
            .topology(settings.topology().clone())
            .faults(faults)
            .seed(settings.seed_of(0))
            .real_addresses()
            .sanitize(false);
        // Nothing is spawned: programs in C have no tasks.
        let driver = Driver::new(sim, drop).map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        let clock = match setting("RDMA_SIM_CLOCK").as_deref() {
            Some("virtual") => Clock::Virtual,
            _ => Clock::Wall(Instant::now()),
        };
        let devices = listed(settings.topology(), None);
        Self::new(driver, clock, devices, &settings)
    }

    /// Other processes are the other hosts
    fn in_fabric(name: &str, faults: &str) -> Result<Self, String> {
        let decides = ["RDMA_SIM_TOPOLOGY", "RDMA_SIM_PROFILE", "RDMA_SIM_PACE", "RDMA_SIM_SEED"];
        let is_decided = decides.iter().any(|name| setting(name).is_some());
        let host = setting("RDMA_SIM_HOST").ok_or("RDMA_SIM_FABRIC needs RDMA_SIM_HOST, the host to be")?;
        let found =
            if is_decided { Err(FabricError::Missing(name.to_owned())) } else { SharedFabric::open(name) };
        let fabric = match found {
            Err(FabricError::Missing(_)) => SharedFabric::create(name, &Self::settings()?),
            found => found,
        };
        let fabric = fabric.map_err(|error| error.to_string())?;
        if !faults.is_empty() {
            fabric.add_fault(faults).map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        }
        let settings = fabric.settings().clone();
        let devices = listed(settings.topology(), Some(&host));
        let (member, driver) = Member::look(fabric, &host).map_err(|error| error.to_string())?;
        // SAFETY: the function is one that exit handlers may be.
        unsafe { libc::atexit(leave) };
        Self::new(driver, Clock::Shared(Box::new(member)), devices, &settings)
    }

    fn new(driver: Driver, clock: Clock, devices: Vec<Listed>, settings: &Settings) -> Result<Self, String> {
        let (is_roce, topology) = (settings.is_roce(), settings.topology().clone());
        let link_layer = match setting("RDMA_SIM_LINK_LAYER").as_deref() {
            None if is_roce => ETHERNET,
            None | Some("thunderbolt") => constants::THUNDERBOLT as u8,
            Some("ethernet") => ETHERNET,
            Some("infiniband") => INFINIBAND,
            Some(other) => {
                return Err(format!(
                    "RDMA_SIM_LINK_LAYER={other:?} is not thunderbolt, ethernet or infiniband"
                ));
            }
        };
        let (calls, progress) = (AtomicU32::new(0), Progress::new());
        Ok(Self {
            driver,
            clock,
            devices,
            topology,
            is_roce,
            link_layer,
            calls,
            progress,
            idle: AtomicU32::new(0),
        })
    }

    /// Whether the program may use its devices: from now on they are its own
    pub(crate) fn join(&'static self) -> bool {
        let Clock::Shared(member) = &self.clock else { return true };
        if member.has_joined() {
            return true;
        }
        match member.join(&self.driver) {
            Ok(()) => {
                self.progress.begin(self);
                true
            }
            Err(error) => {
                complain(&error.to_string());
                false
            }
        }
    }

    /// The time
    fn now(&self) -> Time {
        match &self.clock {
            Clock::Virtual => self.driver.now(),
            Clock::Wall(start) => Time::ZERO + start.elapsed(),
            Clock::Shared(member) => member.now(),
        }
    }

    /// The program calls: lets happen what is due
    pub(crate) fn catch_up(&self) {
        if self.is_called() {
            self.go_on();
        }
    }

    /// The program calls to send: what the others have told before is known then
    pub(crate) fn catch_up_to_send(&self) {
        if self.is_called() {
            if let Clock::Shared(member) = &self.clock {
                member.hear_out(&self.driver);
            }
            self.go_further();
        }
    }

    /// The program calls; false if nothing happens by itself
    fn is_called(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match &self.clock {
            Clock::Virtual => return false,
            Clock::Wall(_) => self.progress.rouse(),
            Clock::Shared(member) => member.rouse(),
        }
        true
    }

    /// Something was posted: lets happen what that sets off at once
    pub(crate) fn kick(&self) {
        if !matches!(self.clock, Clock::Virtual) {
            self.advance_to(self.driver.now());
        }
    }

    /// Lets happen what is due
    pub(crate) fn go_on(&self) {
        if let Clock::Shared(member) = &self.clock {
            member.hear(&self.driver);
        }
        self.go_further();
    }

    fn go_further(&self) {
        if let Clock::Shared(member) = &self.clock {
            member.resume(&self.driver);
        }
        self.advance_to(self.now());
    }

    fn advance_to(&self, time: Time) {
        let has_host_news = self.driver.advance_to(time);
        if let (true, Clock::Shared(member)) = (has_host_news, &self.clock) {
            member.follow_faults(&self.driver);
        }
    }

    /// Somebody waits: on a virtual clock, time jumps to the next event; false if there is none
    pub(crate) fn jump(&self) -> bool {
        match (&self.clock, self.driver.next()) {
            (Clock::Virtual, Some(next)) => {
                self.driver.advance_to(next);
                true
            }
            _ => false,
        }
    }

    /// The program has looked, and found something or nothing
    ///
    /// Who looks in vain for long lets others run: where there are more hosts than cores, it may wait for one of them.
    pub(crate) fn looked(&self, found: bool) {
        if found {
            self.idle.store(0, Ordering::Relaxed);
        } else if self.idle.fetch_add(1, Ordering::Relaxed) >= PATIENCE
            && !matches!(self.clock, Clock::Virtual)
        {
            std::thread::yield_now();
        }
    }

    /// Lets so much time pass on a virtual clock
    pub(crate) fn rest(&self, ns: u64) {
        if let Clock::Virtual = self.clock {
            self.driver.advance_to(self.driver.now() + Duration::from_nanos(ns));
        }
    }

    /// The program asks for an event, and may block until it comes
    pub(crate) fn work_beside(&'static self) {
        if !matches!(self.clock, Clock::Virtual) {
            self.progress.begin(self);
            self.progress.take_over();
        }
    }

    // ─── The thread beside the program ───

    /// How often the program has called
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits until something is due, or told, or for `most`
    pub(crate) fn wait(&self, most: Duration) {
        let now = self.now();
        let until_event = self.driver.next().map_or(most, |next| next.since(now)).min(most);
        match &self.clock {
            Clock::Shared(member) if member.is_waiting() => {
                member.rest(until_event.min(Duration::from_millis(1)))
            }
            Clock::Shared(member) => member.rest(until_event),
            _ => self.progress.rest(until_event),
        }
    }

    /// What has to be done now and then
    pub(crate) fn keep_house(&self) {
        if let Clock::Shared(member) = &self.clock {
            member.bury(&self.driver);
            member.publish(&self.driver);
        }
    }
}

/// The program ends
extern "C" fn leave() {
    if let Some(Some(Engine { clock: Clock::Shared(member), driver, .. })) = ENGINE.get() {
        // Nobody takes what unwinds here.
        let _ = catch_unwind(AssertUnwindSafe(|| member.leave(driver)));
    }
}

/// The devices of all hosts, or of one, as programs find them
fn listed(topology: &Topology, host: Option<&str>) -> Vec<Listed> {
    let hosts = topology.hosts().iter().enumerate();
    let hosts = hosts.filter(|(number, found)| {
        host.is_none_or(|host| found.name() == host || host.parse() == Ok(*number))
    });
    let of_host = |found: &rdma_sim::topology::Host| {
        let name = found.name().to_owned();
        let ports = found.ports().iter().map(|port| Listed {
            host: name.clone(),
            device: port.device().to_owned(),
            // Where all hosts are in one process, names have to tell them apart.
            name: if host.is_some() { port.device().to_owned() } else { format!("{}@{name}", port.device()) },
            guid: u64::from_be_bytes(port.guid().0),
        });
        ports.collect::<Vec<_>>()
    };
    hosts.flat_map(|(_, host)| of_host(host)).collect()
}
