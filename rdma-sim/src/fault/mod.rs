//! Faults as data: when, where, what
//!
//! A [`FaultPlan`] is a list that a shrinker can shorten and that people can read and write:
//!
//! ```
//! use rdma_sim::FaultPlan;
//!
//! let plan: FaultPlan = "at 5ms a:rdma_en2 unplug; at 2s a:rdma_en2 replug; after 100 frames b:rdma_en2 corrupt 3".parse()?;
//! assert_eq!(plan.to_string(), "at 5ms a:rdma_en2 unplug; at 2s a:rdma_en2 replug; after 100 frames b:rdma_en2 corrupt 3");
//! # Ok::<(), rdma_sim::FaultError>(())
//! ```
//!
//! Faults are named after what happens, and [`catalogue`] tells which field failures each of them stands for.

pub mod catalogue;
#[cfg(any(feature = "proptest", feature = "arbitrary"))]
mod generate;
mod random;
mod text;

use std::fmt;
use std::time::Duration;

use rdma_core::Time;

#[cfg(feature = "proptest")]
pub use self::generate::strategies;
pub use self::text::FaultError;
use crate::Topology;

/// Something that goes wrong, or is put right again
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// The moment
    pub trigger: Trigger,
    /// The place
    pub target: Target,
    /// What happens
    pub kind: FaultKind,
}

/// The moment of a fault
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Trigger {
    /// When the port has sent so many frames
    AfterFrames(u64),
    /// At this virtual time
    At(Time),
}

/// The place of a fault
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Target {
    /// A host
    Host(String),
    /// A port, and with it the cable in it
    Port {
        /// The host
        host: String,
        /// The device of the port
        device: String,
    },
}

impl Target {
    /// The host
    pub fn host(&self) -> &str {
        match self {
            Self::Host(host) | Self::Port { host, .. } => host,
        }
    }
}

/// What happens
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The next memory to be registered at the port lies across a 4 GiB boundary
    Boundary,
    /// The receive queue of the port is taken: no queue pair becomes ready to receive
    Busy,
    /// The next frames that the port sends arrive damaged
    Corrupt {
        /// How many
        frames: u32,
    },
    /// The far end of the cable trades places with that of another cable of the same host
    Cross {
        /// The device at the other cable
        with: String,
    },
    /// Completions at the port come later from now on
    Delay {
        /// By how much
        by: Duration,
    },
    /// The cable is pulled and plugged in again
    Flap {
        /// After how long
        down: Duration,
    },
    /// The port's IPv4 entry moves to another index of the GID table
    GidAt {
        /// The index
        index: u8,
    },
    /// Every queue pair of the port dies as if it had rested for too long
    IdleDeath,
    /// The interface of the port is set down: addresses cannot be resolved, and what is connected goes on
    InterfaceDown,
    /// The processes of the host die; what the kernel can reclaim is reclaimed
    Kill,
    /// A dead process keeps completion queues of the port
    LeakCqs {
        /// How many
        count: u32,
    },
    /// A dead process keeps memory regions of the port
    LeakMrs {
        /// How many
        count: u32,
    },
    /// A dead process keeps protection domains of the port
    LeakPds {
        /// How many
        count: u32,
    },
    /// A dead process keeps queue pairs of the port
    LeakQps {
        /// How many
        count: u32,
    },
    /// Only link-local entries are left in the GID table: the port has no IPv4 address
    LinkLocalGids,
    /// The next messages that the port sends vanish, up to so many frames
    Lose {
        /// How many
        frames: u32,
    },
    /// The GID table becomes empty: the port is captured by a bridge
    NoGids,
    /// No protection domain can be allocated until the cable was replugged
    NoPds,
    /// The receive ring takes more than it holds from now on, and what exceeds it is damaged
    Overflow,
    /// The processes of the host stop; the hardware goes on
    Pause,
    /// The host restarts: what its kernel kept is free, and its processes start anew
    Reboot {
        /// After how long
        down: Duration,
    },
    /// RDMA is disabled on the host: the ports at the other ends of its cables go down, too
    RdmaOff,
    /// RDMA is enabled on the host
    RdmaOn,
    /// The devices of the host trade names, as after a restart
    Renumber,
    /// The cable is plugged in again
    Replug,
    /// The neighbour of the port can be resolved again
    Resolvable,
    /// The processes of the host start anew
    Restart,
    /// The processes of the host go on
    Resume,
    /// The host falls asleep: its ports go down
    Sleep,
    /// The cable carries less from now on
    Slow {
        /// So many percent of its rate
        percent: u32,
    },
    /// The port looks at what it received once a second
    SlowReceive,
    /// Frames circle through a bridge and leave only a part of the cable
    Storm {
        /// So many percent are left
        percent: u32,
    },
    /// The cable is pulled
    Unplug,
    /// The address of the neighbour of the port cannot be resolved
    Unresolvable,
    /// The host wakes up
    Wake,
    /// The driver of the port is stuck: nothing can be created until the host [reboots](Self::Reboot)
    Wedge,
}

/// Faults in the order in which they were written
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FaultPlan(pub Vec<Fault>);

impl FaultPlan {
    /// Nothing goes wrong
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether nothing goes wrong
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a fault
    #[must_use]
    pub fn and(mut self, fault: Fault) -> Self {
        self.0.push(fault);
        self
    }

    /// Checks that every place exists
    ///
    /// # Errors
    ///
    /// A host, a port or the cable that a fault needs is not in the topology.
    pub fn check(&self, topology: &Topology) -> Result<(), FaultError> {
        self.0.iter().try_for_each(|fault| fault.check(topology))
    }
}

impl FromIterator<Fault> for FaultPlan {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        Self(faults.into_iter().collect())
    }
}

impl Fault {
    /// `what` happens at the port `device` of `host` at `time`
    pub fn at_port(time: Time, host: &str, device: &str, kind: FaultKind) -> Self {
        let target = Target::Port { host: host.to_owned(), device: device.to_owned() };
        Self { trigger: Trigger::At(time), target, kind }
    }

    /// `what` happens on `host` at `time`
    pub fn at_host(time: Time, host: &str, kind: FaultKind) -> Self {
        Self { trigger: Trigger::At(time), target: Target::Host(host.to_owned()), kind }
    }

    fn check(&self, topology: &Topology) -> Result<(), FaultError> {
        let missing = |why: String| Err(FaultError::new(&self.to_string(), why));
        let Some(found) = topology.find_host(self.target.host()) else {
            return missing(format!("there is no host {:?}", self.target.host()));
        };
        let has_device = |device: &str| found.port(device).is_some();
        if let Target::Port { host, device } = &self.target
            && !has_device(device)
        {
            return missing(format!("host {host:?} has no device {device:?}"));
        }
        if let FaultKind::Cross { with } = &self.kind
            && !has_device(with)
        {
            return missing(format!("host {:?} has no device {with:?}", self.target.host()));
        }
        Ok(())
    }
}

impl FaultKind {
    /// Whether it happens to a host rather than to a port
    pub fn is_of_host(&self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::Pause
                | Self::RdmaOff
                | Self::RdmaOn
                | Self::Reboot { .. }
                | Self::Renumber
                | Self::Restart
                | Self::Resume
                | Self::Sleep
                | Self::Wake
        )
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Port { host, device } => write!(f, "{host}:{device}"),
        }
    }
}
