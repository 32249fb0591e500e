//! The one simulation of this process, and its clock

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rdma_core::Time;
use rdma_sim::{Driver, FaultPlan, Model, Sim, Topology};

/// The simulation, and how its time passes
pub(crate) struct Engine {
    pub(crate) driver: Driver,
    clock: Clock,
    /// Hosts and devices, in the order in which the provider lists them.
    pub(crate) devices: Vec<(String, String)>,
    pub(crate) is_roce: bool,
}

enum Clock {
    Virtual,
    Wall(Instant),
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

static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();

impl Engine {
    /// The simulation that the environment describes; `None` if it describes none, which was said on standard error
    pub(crate) fn get() -> Option<&'static Self> {
        ENGINE
            .get_or_init(|| match Self::from_environment() {
                Ok(engine) => Some(engine),
                Err(why) => {
                    complain(&why);
                    None
                }
            })
            .as_ref()
    }

    #[expect(clippy::disallowed_methods, reason = "programs in C live on the clock on the wall")]
    fn from_environment() -> Result<Self, String> {
        let configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = |name: &str| {
            let said = configured.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            said.or_else(|| std::env::var(name).ok())
        };
        let profile = text("RDMA_SIM_PROFILE").unwrap_or_else(|| "tb5".to_owned());
        let mut model = Model::profile(&profile)
            .ok_or_else(|| format!("RDMA_SIM_PROFILE={profile:?} is not tb5, tb5-macos-26.2 or roce"))?;
        // Pages are those of this system: programs align to them.
        model.rules.alignment = model.rules.alignment.min(4096);
        let faults = text("RDMA_SIM_FAULTS").unwrap_or_default();
        let faults: FaultPlan = faults.parse().map_err(|error| format!("RDMA_SIM_FAULTS: {error}"))?;
        let seed = text("RDMA_SIM_SEED").unwrap_or_else(|| "0".to_owned());
        let seed = seed.parse().map_err(|_| format!("RDMA_SIM_SEED={seed:?} is not a number"))?;
        let topology = Topology::pair();
        let devices_of = |host: &rdma_sim::topology::Host| {
            let name = host.name().to_owned();
            host.ports().iter().map(|port| (name.clone(), port.device().to_owned())).collect::<Vec<_>>()
        };
        let devices = topology.hosts().iter().flat_map(devices_of).collect();
        let sim = Sim::new()
            .model(model)
            .topology(topology)
            .faults(faults)
            .seed(seed)
            .real_addresses()
            .sanitize(false);
        // Nothing is spawned: programs in C have no tasks.
        let driver = Driver::new(sim, drop).map_err(|error| error.to_string())?;
        let clock = match text("RDMA_SIM_CLOCK").as_deref() {
            Some("virtual") => Clock::Virtual,
            _ => Clock::Wall(Instant::now()),
        };
        Ok(Self { driver, clock, devices, is_roce: profile == "roce" })
    }

    /// Lets happen what is due
    pub(crate) fn catch_up(&self) {
        if let Clock::Wall(start) = &self.clock {
            self.driver.advance_to(Time::ZERO + start.elapsed());
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

    /// Lets so much time pass on a virtual clock
    pub(crate) fn rest(&self, ns: u64) {
        if let Clock::Virtual = self.clock {
            self.driver.advance_to(self.driver.now() + std::time::Duration::from_nanos(ns));
        }
    }
}

#[expect(clippy::print_stderr, reason = "programs in C are told in no other way")]
fn complain(why: &str) {
    eprintln!("librdma: {why}");
}
