//! The settings of a fabric, and their form as a text

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rdma_sim::profile::{Decided, Profile, ProfileError};
use rdma_sim::topology::{MacModel, Shape};
use rdma_sim::{FaultPlan, LineRate, Model, Timing, Topology, TopologyError};

/// The length of the longest topology that is read, in bytes: a longer file, such as /dev/zero, would take all memory
pub const MAX_TOPOLOGY: u64 = 16 << 20;

/// The settings of a fabric, decided by the process that makes it
#[derive(Clone, Debug)]
pub struct Settings {
    profile: Profile,
    is_paced: bool,
    seed: u64,
    topology: Topology,
}

fn tb5() -> Profile {
    Profile::named("tb5").expect("the default profile exists")
}

/// The Macs and cables of a text: `mesh`, `ring`, `line`, `star` or `pair`, with a number of Macs as in `mesh:3`; or a file
///
/// A file is a topology in TOML, or a device matrix or a hostfile of MLX in JSON, whatever its name. Without a number, a shape has `hosts` Macs, or as few as it can.
///
/// # Errors
///
/// [`SettingsError::NoTopology`] if the text is neither a shape nor a file; [`SettingsError::NumberOfHosts`],
/// [`SettingsError::TooManyHosts`] or [`SettingsError::Topology`] if the shape is impossible; [`SettingsError::Read`] if the file cannot be read; [`SettingsError::File`] if its
/// topology is invalid; [`SettingsError::HostCount`] if it has another number of hosts than `hosts`.
pub fn topology(text: &str, hosts: Option<usize>) -> Result<Topology, SettingsError> {
    let (name, count) = match text.split_once(':').map(|(name, count)| (name, count.parse::<usize>())) {
        Some((name, Ok(count))) => (name, Some(count)),
        _ => (text, None),
    };
    let topology = match name.parse::<Shape>() {
        Ok(shape) => {
            let count = count.or(hosts).unwrap_or_else(|| shape.min_hosts());
            let ports = shape.default_ports(count, 1);
            if ports > MacModel::MAX_PORTS || count > Topology::MAX_HOSTS {
                return Err(SettingsError::TooManyHosts { shape, hosts: count });
            }
            Topology::shaped(shape, count, ports, 1, LineRate::TB5)?
        }
        Err(unknown) => {
            let path = Path::new(text);
            let mut content = Vec::new();
            let read =
                File::open(path).and_then(|file| file.take(MAX_TOPOLOGY + 1).read_to_end(&mut content));
            let len = read.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound if !is_path(text) => match shape_of(text) {
                    Some((shape, count)) => SettingsError::NumberOfHosts { shape, count: count.to_owned() },
                    None => SettingsError::NoTopology(text.to_owned(), Box::new(unknown)),
                },
                _ => SettingsError::Read(text.to_owned(), error),
            })?;
            if len as u64 > MAX_TOPOLOGY {
                let error = io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("it is longer than {MAX_TOPOLOGY} bytes"),
                );
                return Err(SettingsError::Read(text.to_owned(), error));
            }
            let content = String::from_utf8(content).map_err(|_| {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
                SettingsError::Read(text.to_owned(), error)
            })?;
            return topology_in(text, &content, hosts);
        }
    };
    with_hosts(text, topology, hosts)
}

/// The shape before a colon, and what follows
fn shape_of(text: &str) -> Option<(Shape, &str)> {
    let (name, count) = text.split_once(':')?;
    Some((name.parse().ok()?, count))
}

/// The most Macs of a shape: each has as many ports as the shape needs
fn most_hosts(shape: Shape) -> usize {
    match shape {
        Shape::Mesh | Shape::Star => MacModel::MAX_PORTS + 1,
        Shape::Pair => 2,
        _ => Topology::MAX_HOSTS,
    }
}

/// Whether a text names a file that may be missing, rather than a shape: it has a slash, or the extension of a file
fn is_path(text: &str) -> bool {
    text.contains('/') || text.ends_with(".toml") || text.ends_with(".json")
}

/// The Macs and cables of the content of a file, as [`topology`] reads it; `name` is for messages
///
/// # Errors
///
/// [`SettingsError::File`] if the topology is invalid; [`SettingsError::HostCount`] if it has another number of hosts than `hosts`.
pub fn topology_in(name: &str, content: &str, hosts: Option<usize>) -> Result<Topology, SettingsError> {
    // Some editors begin a file with a byte-order mark.
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    // Lists within a list are a matrix; anything else in JSON is a hostfile.
    let first = content.trim_start().strip_prefix('[').map(|rest| rest.trim_start().chars().next());
    let found = match first {
        _ if !name.ends_with(".json") && !is_json(content) => Topology::from_toml(content),
        Some(Some('{')) | None => Topology::from_hostfile(content),
        Some(_) => Topology::from_matrix(content),
    };
    with_hosts(name, found.map_err(|error| SettingsError::File(name.to_owned(), Box::new(error)))?, hosts)
}

/// Whether a text begins as a list or an object of JSON, and not as TOML, which may begin with `[` or `[[` and a bare key
fn is_json(content: &str) -> bool {
    let content = content.trim_start();
    let Some(list) = content.strip_prefix('[').map(str::trim_start) else { return content.starts_with('{') };
    match list.strip_prefix('[').map(str::trim_start) {
        Some(row) => row.starts_with(['"', '[', ']']) || row.starts_with("null"),
        None => list.starts_with(['{', ']']),
    }
}

/// The topology called `name`, if it has so many hosts
fn with_hosts(name: &str, topology: Topology, expected: Option<usize>) -> Result<Topology, SettingsError> {
    let found = topology.hosts().len();
    match expected {
        Some(expected) if expected != found => {
            Err(SettingsError::HostCount { topology: name.to_owned(), found, expected })
        }
        _ => Ok(topology),
    }
}

/// Why settings are invalid
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no such profile, or its file describes none
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The text is neither a shape nor a file
    #[error("{0:?} is no file, and {1}")]
    NoTopology(String, #[source] Box<TopologyError>),
    /// The file cannot be read
    #[error("{0}: cannot be read: {1}")]
    Read(String, #[source] std::io::Error),
    /// The topology of the file is invalid
    #[error("{}", in_file(.0, .1))]
    File(String, #[source] Box<TopologyError>),
    /// The topology has another number of hosts than was asked for
    #[error("{topology} has {found} hosts, not {expected}: leave one of the numbers out, or make them equal")]
    HostCount {
        /// The shape or the file
        topology: String,
        /// How many hosts it has
        found: usize,
        /// How many it should have
        expected: usize,
    },
    /// A shape with a number of hosts that is none
    #[error(
        "{shape}:{count}: {count:?} is not a number of hosts: write {} to {}, as in {shape}:{}",
        shape.min_hosts(), most_hosts(*shape), shape.min_hosts()
    )]
    NumberOfHosts {
        /// The shape
        shape: Shape,
        /// What follows its colon
        count: String,
    },
    /// A shape of more hosts than there can be, or in which one would need more ports than a simulated Mac has
    #[error(
        "{hosts} hosts are too many for a {shape}: write {} to {}{}",
        shape.min_hosts(), most_hosts(*shape), why_most(*shape)
    )]
    TooManyHosts {
        /// The shape
        shape: Shape,
        /// How many hosts there were
        hosts: usize,
    },
    /// There is no such pace
    #[error("{0:?} is neither tb5 nor none")]
    Pace(String),
    /// The seed is not a number
    #[error("{0:?} is not a number")]
    Seed(String),
    /// The topology is invalid
    #[error(transparent)]
    Topology(Box<TopologyError>),
    /// A fault is invalid, or its target is not in the topology
    #[error("{0}")]
    Fault(String),
    /// The text has no settings
    #[error("invalid settings of a fabric: {0}")]
    Text(String),
}

/// Why a shape has no more hosts
fn why_most(shape: Shape) -> String {
    match shape {
        Shape::Mesh | Shape::Star => format!("; a simulated Mac has at most {} ports", MacModel::MAX_PORTS),
        _ => String::new(),
    }
}

/// An error with the file, and with the line if it has one
fn in_file(file: &str, error: &TopologyError) -> String {
    let why = error.to_string();
    match error.line() {
        // The error may begin with its line.
        Some(line) => {
            format!("{file}:{line}: {}", why.strip_prefix(&format!("line {line}: ")).unwrap_or(&why))
        }
        None => format!("{file}: {why}"),
    }
}

impl From<TopologyError> for SettingsError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(Box::new(error))
    }
}

impl Settings {
    /// These Macs and cables, of profile `tb5`, as fast as the machine allows
    pub fn new(topology: Topology) -> Self {
        Self { profile: tb5(), is_paced: false, seed: 0, topology }
    }

    /// Devices of a profile: one of [`Model::PROFILES`], or that of a file
    ///
    /// # Errors
    ///
    /// [`SettingsError::Profile`] if there is no such profile.
    pub fn profile(self, name: &str) -> Result<Self, SettingsError> {
        Ok(Self { profile: Profile::find(name)?, ..self })
    }

    /// Devices of `profile`, which may be one that was read from elsewhere than a file
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Cables as fast as modelled, rather than as fast as the machine allows
    pub fn paced(self, is_paced: bool) -> Self {
        Self { is_paced, ..self }
    }

    /// The seed of all random choices
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// One setting by its name in the text of settings
    pub(crate) fn set(mut self, name: &str, value: &str) -> Result<Self, SettingsError> {
        match (name, value) {
            ("profile", _) => self.profile(value),
            ("pace", "tb5" | "none") => Ok(self.paced(value == "tb5")),
            ("pace", _) => Err(SettingsError::Pace(value.to_owned())),
            ("seed", _) => {
                let seed = value.parse().map_err(|_| SettingsError::Seed(value.to_owned()))?;
                Ok(self.seed(seed))
            }
            // What the file of a profile changes, by the process that has read the file.
            _ => {
                self.profile
                    .set(name, value, Decided::Given)
                    .map_err(|_| SettingsError::Text(format!("{name}={value}")))?;
                Ok(self)
            }
        }
    }

    /// The Macs and cables
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The model of the devices, with cables as fast as modelled
    pub(crate) fn model_at_line_rate(&self) -> Model {
        let mut model = self.profile.model.clone();
        // Programs align memory to the pages of this system.
        model.rules.alignment = model.rules.alignment.min(4096);
        // Programs in C wait for their verbs.
        model.timing.verbs_block_tasks = true;
        model
    }

    pub(crate) fn model(&self) -> Model {
        let mut model = self.model_at_line_rate();
        if !self.is_paced {
            model.timing = Timing::INSTANT;
        }
        model
    }

    /// Whether cables are as fast as modelled, rather than as fast as the machine allows
    pub fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// The name of the profile, or of the one that it changes
    pub(crate) fn profile_name(&self) -> String {
        let base = self.profile.base();
        if self.profile.differences().next().is_some() {
            format!("{base} with changes")
        } else {
            base.to_owned()
        }
    }

    pub(crate) fn is_roce(&self) -> bool {
        self.profile.base() == "roce"
    }

    pub(crate) fn seed_of(&self, host: usize) -> u64 {
        self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(host as u64)
    }

    /// The faults of a text, if all are valid and their targets are in the topology
    pub(crate) fn check_faults(&self, text: &str) -> Result<FaultPlan, SettingsError> {
        let plan: FaultPlan = text.parse().map_err(|error| SettingsError::Fault(format!("{error}")))?;
        plan.check(&self.topology).map_err(|error| SettingsError::Fault(error.to_string()))?;
        Ok(plan)
    }

    /// The first difference of `other` from these settings
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let (mine, its) = (self.to_text(), other.to_text());
        let mut lines = mine.lines().zip(its.lines()).filter(|(mine, its)| mine != its);
        match lines.next() {
            Some((mine, its)) => Some(format!("found {its:?}, expected {mine:?}")),
            None if mine.len() == its.len() => None,
            None => Some("the number of hosts or cables differs".to_owned()),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let pace = if self.is_paced { "tb5" } else { "none" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "profile={}\npace={pace}\nseed={}", self.profile.base(), self.seed);
        for (name, value) in self.profile.differences() {
            let _ = writeln!(text, "{name}={value}");
        }
        text + "\n" + &self.topology.to_toml()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let wrong = |what: &str| SettingsError::Text(what.to_owned());
        let (head, topology) = text.split_once("\n\n").ok_or_else(|| wrong("no topology"))?;
        let mut settings = Self::new(Topology::from_toml(topology)?);
        for line in head.lines() {
            let (name, value) = line.split_once('=').ok_or_else(|| wrong(line))?;
            settings = settings.set(name, value)?;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `ring` was a ring of two, which is none.
    #[test]
    fn a_shape_without_a_number_has_as_few_hosts_as_it_can() {
        for (text, hosts, count) in [
            ("ring", None, 3),
            ("mesh", None, 2),
            ("star", Some(5), 5),
            ("ring:4", None, 4),
            ("ring", Some(6), 6),
        ] {
            assert_eq!(topology(text, hosts).unwrap().hosts().len(), count, "{text} {hosts:?}");
        }
    }

    /// Catches settings that name the file: the other hosts may run elsewhere, and the file may change meanwhile.
    #[test]
    fn the_text_of_settings_holds_what_the_file_of_a_profile_says() {
        let path = std::env::temp_dir().join(format!("rdma-sim-verbs-profile-{}.toml", std::process::id()));
        let text = "format = 1\nbase = \"tb5-strict\"\n[rules]\nqueue_grant = \"fixed 63\"\n[timing]\njitter_ns = 9\n";
        std::fs::write(&path, text).unwrap();
        let settings = Settings::new(Topology::pair()).profile(path.to_str().unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let read = Settings::parse(&settings.to_text()).unwrap();
        assert_eq!(read.model_at_line_rate(), settings.model_at_line_rate());
        assert_eq!(read.model_at_line_rate().timing.jitter_ns, 9);
        assert_eq!(settings.difference(&read), None);
        let other = Settings::new(Topology::pair());
        assert!(other.difference(&read).is_some());
        assert!(Settings::parse("profile=tb5\nrules.speed=1\n\n").is_err());
    }
}
