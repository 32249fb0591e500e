use std::net::IpAddr;

use rdma_core::MatrixError;

use super::mac::MacModel;
use super::port::MAX_HOSTS;
use super::shape::Shape;
use crate::near::suggestion;

/// Why a topology is impossible
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// An interface has an address twice
    #[error("{device} of {host} has the address {address} twice: leave one of them out")]
    AddressTwice {
        /// The Mac
        host: String,
        /// Its device
        device: String,
        /// The address
        address: IpAddr,
    },

    /// An error in a text, at this line
    #[error("line {line}: {error}")]
    At {
        /// The line, counted from one
        line: usize,
        /// The error
        error: Box<Self>,
    },

    /// A text has a cable that does not have two ends
    #[error("a cable has 2 ends, not {ends}: write two, such as [\"a:rdma_en2\", \"b:rdma_en2\"]")]
    CableEnds {
        /// How many there were
        ends: usize,
    },

    /// Both ends of a cable are in one port
    #[error("both ends of a cable are in {device} of {host}: a cable joins two ports")]
    CableToItself {
        /// The Mac
        host: String,
        /// Its device
        device: String,
    },

    /// Two hosts have the same name
    #[error("two hosts are called {host}: give one of them another name")]
    DuplicateHost {
        /// The name
        host: String,
    },

    /// A text describes a port twice
    #[error("{device} of {host} is there twice: leave one of them out")]
    DuplicatePort {
        /// The Mac
        host: String,
        /// Its device
        device: String,
    },

    /// A text has a shape without a number of Macs
    #[error("the {shape} has no number of Macs: add one, such as hosts = 4")]
    HostCountMissing {
        /// The shape
        shape: Shape,
    },

    /// A text has a key of a shape without a shape
    #[error("{key} belongs to a shape: add one, such as shape = \"ring\", or write a [[host]] for each Mac")]
    KeyWithoutShape {
        /// The key
        key: &'static str,
    },

    /// A device matrix that describes no cables
    #[error(transparent)]
    Matrix(#[from] MatrixError),

    /// A device matrix has a name that is not `rdma_enN`, or that no simulated Mac has beside the others of its row
    #[error("m[{row}][{column}] has {device:?}: devices of rank {row} are {} to {}", possible[0], possible[1])]
    MatrixDevice {
        /// The rank
        row: usize,
        /// Its peer
        column: usize,
        /// The name
        device: String,
        /// The first and the last possible name
        possible: [String; 2],
    },

    /// A text has a host or a shape without a Mac model
    #[error("{subject} has no Mac: add mac = \"mac-mini-m4-pro\", or ports = 3 for any Mac")]
    ModelMissing {
        /// The host or the shape
        subject: String,
    },

    /// A text has a host or a shape with both a Mac model and a number of ports
    #[error("{subject} has both mac and ports: leave one of them out")]
    ModelTwice {
        /// The host or the shape
        subject: String,
    },

    /// A port that the Mac does not have
    #[error("{host} has no port {port}: it has {}; free of them: {}", list(ports), list(free))]
    NoSuchPort {
        /// The Mac
        host: String,
        /// The port that was given: a device, or a position from zero
        port: String,
        /// The devices that it has
        ports: Vec<String>,
        /// Those of them without a cable
        free: Vec<String>,
    },

    /// The port has a cable already
    #[error("{device} of {host} has a cable to {} of {} already; free ports of {host}: {}", peer[1], peer[0], list(free))]
    PortInUse {
        /// The Mac
        host: String,
        /// Its device
        device: String,
        /// Host and device at the other end of that cable
        peer: [String; 2],
        /// The devices of the Mac that have no cable
        free: Vec<String>,
    },

    /// A number of ports that no simulated Mac has
    #[error("{host} cannot have {ports} ports: a simulated Mac has 1 to {}", MacModel::MAX_PORTS)]
    PortCount {
        /// The Mac
        host: String,
        /// How many it should have had
        ports: usize,
    },

    /// A cable between two ports of one Mac
    #[error("a cable from {} to {} of {host} would join the Mac to itself: choose a port of another one", devices[0], devices[1])]
    SameHost {
        /// The Mac
        host: String,
        /// Its devices
        devices: [String; 2],
    },

    /// A number of Macs that the shape does not have
    #[error("a {shape} has {} Macs, not {hosts}", shape.needed_hosts())]
    ShapeHosts {
        /// The shape
        shape: Shape,
        /// How many Macs there were
        hosts: usize,
    },

    /// The text is not in the format; the message is that of the parser
    #[error("line {line}: {message}")]
    Text {
        /// The line, counted from one
        line: usize,
        /// The message of the parser
        message: String,
    },

    /// A shape or graph that needs more ports than the model has
    #[error("a {graph} of {hosts} Macs needs {needed} ports on {host}, and a {mac} has {}", mac.ports())]
    TooFewPorts {
        /// What was to be made: the name of a shape, or "graph"
        graph: String,
        /// Of how many Macs
        hosts: usize,
        /// The first Mac with too few ports
        host: String,
        /// Its model
        mac: MacModel,
        /// How many ports it needs
        needed: usize,
    },

    /// More Macs than have addresses of their own
    #[error("{host} is one host too many: the simulator has room for {}", MAX_HOSTS)]
    TooManyHosts {
        /// The Mac that was too many
        host: String,
    },

    /// A cable or an address for a Mac that does not exist
    #[error("no host is called {host:?}; there are: {}", list(hosts))]
    UnknownHost {
        /// The name that was given
        host: String,
        /// The names that exist
        hosts: Vec<String>,
    },

    /// A Mac that is not in the table of [`MacModel`]
    #[error("no Mac model is called {model:?}; there are: {}, and generic-N with N ports", list(&MacModel::ALL))]
    UnknownModel {
        /// The name that was given
        model: String,
    },

    /// A shape that does not exist
    #[error("no shape is called {shape:?}; there are: {}{}", list(&Shape::ALL), suggestion(shape, Shape::ALL.into_iter().map(Shape::name)))]
    UnknownShape {
        /// The name that was given
        shape: String,
    },

    /// A text has an address that is not one
    #[error("{address:?} is no address: write one, or \"link-local\", or \"ipv4\"")]
    UnusableAddress {
        /// The text that was given
        address: String,
    },

    /// A text has a cap that lets nothing pass, or more than any
    #[error("cap_gbps = {gbps} is no cap of a host: give up to 1000, such as 120")]
    UnusableCap {
        /// The number that was given
        gbps: String,
    },

    /// A text has an end of a cable that is not one
    #[error("{end:?} is no end of a cable: write host:device, such as \"a:rdma_en2\"")]
    UnusableEnd {
        /// The text that was given
        end: String,
    },

    /// A text has a rate that no cable has
    #[error("gbps = {gbps} is no rate of a cable: give up to 1000, such as 80 or 40")]
    UnusableGbps {
        /// The number that was given
        gbps: String,
    },

    /// A host name that cannot be written as the end of a cable, or as the target of a fault
    #[error(
        "{host:?} names no host: a name has at least one character, and neither spaces, quotes, ':' nor ';'"
    )]
    UnusableName {
        /// The name that was given
        host: String,
    },

    /// A cable that carries nothing, or more than any
    #[error("the cable from {} of {} cannot run at {bits_per_second} bit/s: give 1 bit/s to 1000 Gb/s", end[1], end[0])]
    UnusableRate {
        /// Host and device of its first end
        end: [String; 2],
        /// The rate that was given
        bits_per_second: u64,
    },
}

impl TopologyError {
    /// The line of the text that is wrong, counted from one, if it came from a text
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::At { line, .. } | Self::Text { line, .. } => Some(*line),
            Self::Matrix(MatrixError::Json { line, .. }) => Some(*line),
            _ => None,
        }
    }
}

/// Items of an error message
fn list<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
