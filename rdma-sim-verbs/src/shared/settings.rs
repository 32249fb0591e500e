//! What is decided when a fabric is made, as a text

use std::fmt::Write as _;
use std::path::Path;

use rdma_sim::topology::Shape;
use rdma_sim::{FaultPlan, LineRate, Model, Timing, Topology, TopologyError};

/// What is decided when a fabric is made
#[derive(Clone, Debug)]
pub struct Settings {
    profile: String,
    is_paced: bool,
    seed: u64,
    topology: Topology,
}

/// The Macs and cables that a text means: `mesh`, `ring`, `line`, `star`, `pair` of so many Macs, or of `mesh:3`; or a file
///
/// A file is a topology in TOML, or a device matrix of MLX in JSON.
///
/// # Errors
///
/// It is neither a shape nor a file; the topology makes no sense; there are other hosts than `hosts`, if that is given.
pub fn topology(text: &str, hosts: Option<usize>) -> Result<Topology, SettingsError> {
    let (name, count) = match text.split_once(':').map(|(name, count)| (name, count.parse::<usize>())) {
        Some((name, Ok(count))) => (name, Some(count)),
        _ => (text, None),
    };
    let topology = match name.parse::<Shape>() {
        Ok(shape) => {
            let count = count.or(hosts).unwrap_or(2);
            // As many ports as the shape needs, and no fewer than Macs have.
            let ports = if matches!(shape, Shape::Mesh | Shape::Star) { count.saturating_sub(1) } else { 2 };
            Topology::shaped(shape, count, ports.max(3), 1, LineRate::TB5)?
        }
        Err(unknown) => {
            let path = Path::new(text);
            let content = std::fs::read_to_string(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => SettingsError::NoTopology(text.to_owned(), Box::new(unknown)),
                _ => SettingsError::Text(format!("{text}: {error}")),
            })?;
            if path.extension().is_some_and(|extension| extension == "json") {
                Topology::from_matrix(&content)?
            } else {
                Topology::from_toml(&content)?
            }
        }
    };
    match hosts {
        Some(hosts) if topology.hosts().len() != hosts => Err(SettingsError::Text(format!(
            "{hosts} hosts, but the topology has {}",
            topology.hosts().len()
        ))),
        _ => Ok(topology),
    }
}

/// Why settings make no sense
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no such profile
    #[error("{0:?} is not tb5, tb5-macos-26.2, tb5-lenient or roce")]
    Profile(String),
    /// Neither a shape nor a file
    #[error("{0:?} is no file, and {1}")]
    NoTopology(String, #[source] Box<TopologyError>),
    /// The topology makes no sense
    #[error(transparent)]
    Topology(Box<TopologyError>),
    /// A fault makes no sense, or has no place
    #[error("{0}")]
    Fault(String),
    /// The text is not one of settings
    #[error("these are no settings of a fabric: {0}")]
    Text(String),
}

impl From<TopologyError> for SettingsError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(Box::new(error))
    }
}

impl Settings {
    /// These Macs and cables, of profile `tb5`, as fast as the machine allows
    pub fn new(topology: Topology) -> Self {
        Self { profile: "tb5".to_owned(), is_paced: false, seed: 0, topology }
    }

    /// Devices of a profile: `tb5`, `tb5-macos-26.2`, `tb5-lenient` or `roce`
    ///
    /// # Errors
    ///
    /// There is no such profile.
    pub fn profile(mut self, name: &str) -> Result<Self, SettingsError> {
        Model::profile(name).ok_or_else(|| SettingsError::Profile(name.to_owned()))?;
        name.clone_into(&mut self.profile);
        Ok(self)
    }

    /// Cables as fast as modelled, rather than as fast as the machine allows
    pub fn paced(self, is_paced: bool) -> Self {
        Self { is_paced, ..self }
    }

    /// What varies varies by this
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The Macs and cables
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The devices, whose cables are as fast as modelled
    pub(crate) fn model_at_line_rate(&self) -> Model {
        // The profile was looked up when it was set.
        let mut model = Model::profile(&self.profile).unwrap_or_default();
        // Pages are those of this system: programs align to them.
        model.rules.alignment = model.rules.alignment.min(4096);
        model
    }

    pub(crate) fn model(&self) -> Model {
        let mut model = self.model_at_line_rate();
        if !self.is_paced {
            model.timing = Timing::INSTANT;
        }
        model
    }

    pub(crate) fn is_roce(&self) -> bool {
        self.profile == "roce"
    }

    pub(crate) fn seed_of(&self, host: usize) -> u64 {
        self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(host as u64)
    }

    /// Whether a line of a fault plan is one, and has its place here
    pub(crate) fn check_faults(&self, text: &str) -> Result<FaultPlan, SettingsError> {
        let plan: FaultPlan = text.parse().map_err(|error| SettingsError::Fault(format!("{error}")))?;
        plan.check(&self.topology).map_err(|error| SettingsError::Fault(error.to_string()))?;
        Ok(plan)
    }

    /// How other settings differ from these
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let (mine, its) = (self.to_text(), other.to_text());
        let mut lines = mine.lines().zip(its.lines()).filter(|(mine, its)| mine != its);
        match lines.next() {
            Some((mine, its)) => Some(format!("it has {its:?}, not {mine:?}")),
            None if mine.len() == its.len() => None,
            None => Some("its topology is larger or smaller".to_owned()),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let pace = if self.is_paced { "tb5" } else { "none" };
        // Writing to a string does not fail.
        let _ = write!(text, "profile={}\npace={pace}\nseed={}\n\n", self.profile, self.seed);
        text + &self.topology.to_toml()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let wrong = |what: &str| SettingsError::Text(what.to_owned());
        let (head, topology) = text.split_once("\n\n").ok_or_else(|| wrong("no topology"))?;
        let mut settings = Self::new(Topology::from_toml(topology)?);
        for line in head.lines() {
            settings = match line.split_once('=') {
                Some(("profile", name)) => settings.profile(name)?,
                Some(("pace", pace)) => settings.paced(pace == "tb5"),
                Some(("seed", seed)) => settings.seed(seed.parse().map_err(|_| wrong(line))?),
                _ => return Err(wrong(line)),
            };
        }
        Ok(settings)
    }
}
