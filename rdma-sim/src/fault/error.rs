use super::kind::FAULTS;
use super::verb::SlowableVerb;
use crate::near;

/// A text that is not a fault, or a fault whose target the topology lacks
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[error("fault {text:?}: {reason}")]
#[non_exhaustive]
pub struct FaultError {
    /// The fault as it was written
    pub text: String,
    /// What is wrong with it
    #[source]
    pub reason: FaultReason,
}

/// What is wrong with a fault, or with its text
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultReason {
    /// A cable is crossed with itself
    #[error("a cable is not crossed with itself: name the device of another cable")]
    CrossedWithItself,
    /// A count is not a whole number
    #[error("{0:?} is not a whole number up to 4294967295")]
    Count(String),
    /// A time is not a whole number with a unit
    #[error("{0:?} is not a time: write a whole number of s, ms, us or ns, such as 5ms, up to 584 years")]
    Duration(String),
    /// A number of frames after which the fault fires is not a whole number
    #[error("{0:?} is not a whole number of frames up to {max}", max = u64::MAX)]
    Frames(String),
    /// The text ends too early
    #[error("the text ends too early: {FORM}")]
    Incomplete,
    /// The index of a GID is not a whole number up to 255
    #[error("{0:?} is not an index of a GID table: write 0 to 255")]
    Index(String),
    /// The fault needs an argument, and the text ends after its name
    #[error("the text ends too early: write {kind} {argument}")]
    MissingArgument {
        /// The name of the fault
        kind: &'static str,
        /// What must follow: `N`, `TIME`, `PERCENT`, `DEVICE`, `VERB` or `VERB=TIME`
        argument: &'static str,
    },
    /// A fault of a port has a host as its target
    #[error("{kind} happens to a port: write {host}:DEVICE, such as {host}:rdma_en2")]
    NeedsPort {
        /// The name of the fault
        kind: &'static str,
        /// The host that is its target
        host: String,
    },
    /// A fault of a host has a port as its target
    #[error("{kind} happens to a host: write {host}")]
    NeedsHost {
        /// The name of the fault
        kind: &'static str,
        /// The host of the port that is its target
        host: String,
    },
    /// A share is not between 1% and 100%
    #[error("{0:?} is not a share of the cable: write 1% to 100%")]
    Percent(String),
    /// Text follows the fault
    #[error("{0:?} follows the fault: remove it, or separate faults with a semicolon")]
    Trailing(String),
    /// The fault begins with neither `at TIME` nor `after N frames`
    #[error("{0:?} does not say when: {FORM}")]
    Trigger(String),
    /// The host has no such device
    #[error("host {host:?} has no device {device:?}; its devices are {}", devices.join(", "))]
    UnknownDevice {
        /// The host
        host: String,
        /// The device that it lacks
        device: String,
        /// The devices that it has
        devices: Vec<String>,
    },
    /// The topology has no such host
    #[error("the topology has no host {host:?}; its hosts are {}", hosts.join(", "))]
    UnknownHost {
        /// The host that is missing
        host: String,
        /// The hosts that exist
        hosts: Vec<String>,
    },
    /// No kind of fault has this name
    #[error("no fault is called {name:?}; there are: {}{}", known.join(", "), suggestion(name))]
    UnknownKind {
        /// The name
        name: String,
        /// The names of all faults
        known: Vec<&'static str>,
    },
    /// No verb has this name
    #[error("no verb is called {0:?}; there are: {names}", names = SlowableVerb::names())]
    Verb(String),
    /// A verb without the time that it takes
    #[error("{0:?} is not a verb with a time: write VERB=TIME, such as create_qp=2s")]
    VerbTime(String),
}

const FORM: &str =
    "write `at TIME TARGET NAME` or `after N frames TARGET NAME`, such as `at 5ms a:rdma_en2 unplug`";

/// The fault that `name` probably is, as words that follow a list of faults; nothing if none is like it
///
/// ```
/// assert_eq!(rdma_sim::fault::suggestion("unplgu"), "; did you mean unplug?");
/// assert_eq!(rdma_sim::fault::suggestion("explode"), "");
/// ```
pub fn suggestion(name: &str) -> String {
    near::suggestion(name, FAULTS.iter().map(|fault| fault.name))
}
