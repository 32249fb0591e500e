//! Ranks that a launcher has started, each on its host: `mlx.launch` with hostfiles of JACCL, or `tb5 run`
//!
//! A launcher gives each process its rank, which device leads to which rank, and the address of rank 0. The ranks register at rank 0,
//! connect to their neighbours, and join a [`Group`](crate::Group).
//!
//! ```no_run
//! # async fn run(open: impl Fn(&str) -> Result<rdma_async::AnyDevice, std::io::Error> + Clone + Send + Sync + 'static)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use rdma_collectives::{Group, Reduction, launch::Launch};
//!
//! let launch = Launch::from_env()?;
//! // On the devices of this machine, `open` is `move |device: &str| VerbsDevice::open(&provider, device, OpenOptions::new())`.
//! let node = launch.node(open)?.build()?;
//! let sessions = launch.connect(&node).await?;
//! let mut group = Group::join(launch.rank(), launch.cabling(), sessions).await?;
//!
//! let mut gradient = vec![1.0_f32; 1000];
//! group.all_reduce(&mut gradient, Reduction::Average).await?;
//! # Ok(())
//! # }
//! ```

mod clock;
mod connect;
mod error;
mod first_lines;
mod rendezvous;
mod wire;

use std::env;
use std::error::Error;
use std::net::IpAddr;
use std::num::NonZeroU128;
use std::path::PathBuf;
use std::time::Duration;

use rdma_async::{Device, LinkId, Node, NodeBuilder, NodeOptions};

pub use self::error::LaunchError;
pub use rdma_core::{DeviceMatrix, Hostfile, HostfileError, MatrixError};

use crate::cabling::hash;
use crate::{Cable, Cabling};

/// What a launcher has given this process: its rank, the device matrix, and the address of rank 0
///
/// ```
/// use rdma_collectives::launch::Launch;
///
/// let matrix = r#"[[null, "rdma_en2"], ["rdma_en3", null]]"#.parse()?;
/// let launch = Launch::new(1, matrix, "192.168.1.10:32323")?;
/// assert_eq!((launch.rank(), launch.cabling().cables()[0].ends), (1, [0, 1]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    rank: usize,
    matrix: DeviceMatrix,
    cabling: Cabling,
    coordinator: String,
    start_timeout: Duration,
}

/// What each variable is called: by JACCL, and by MLX, which passes the first one on
const RANK: [&str; 2] = ["JACCL_RANK", "MLX_RANK"];
const DEVICES: [&str; 2] = ["JACCL_IBV_DEVICES", "MLX_IBV_DEVICES"];
const COORDINATOR: [&str; 2] = ["JACCL_COORDINATOR", "MLX_JACCL_COORDINATOR"];

/// Where `mlx.launch` lets rank 0 listen, unless it is told another port
const PORT: u16 = 32323;
/// Payload of a Thunderbolt 5 cable in one direction, in bytes per second; a matrix has no rates
const RATE: u64 = 9_200_000_000;
/// Launchers start ranks over ssh, one after the other
const START_TIMEOUT: Duration = Duration::from_secs(60);

impl Launch {
    /// Reads the environment of MLX and JACCL
    ///
    /// `MLX_RANK` is the rank, `MLX_IBV_DEVICES` the path of a file with the [`DeviceMatrix`], and `MLX_JACCL_COORDINATOR` the address of
    /// rank 0, `HOST:PORT`. `JACCL_RANK`, `JACCL_IBV_DEVICES` and `JACCL_COORDINATOR` go before them.
    ///
    /// # Errors
    ///
    /// [`LaunchError::Variable`] if one of them is not set, [`LaunchError::Number`] if the rank is none, [`LaunchError::File`] or
    /// [`LaunchError::Matrix`] if there is no matrix in the file, and those of [`new`](Self::new).
    pub fn from_env() -> Result<Self, LaunchError> {
        Self::from_variables(|name| env::var_os(name).map(PathBuf::from))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, LaunchError> {
        let first = |names: [&'static str; 2]| {
            let mut found = names.into_iter().filter_map(&variable);
            found.find(|value| !value.as_os_str().is_empty()).ok_or(LaunchError::Variable { names })
        };
        let text = |names| first(names).map(|value| value.to_string_lossy().into_owned());
        let rank = text(RANK)?;
        let rank = rank.trim().parse().map_err(|_| LaunchError::Number { names: RANK, value: rank })?;
        let path = first(DEVICES)?;
        let matrix = match std::fs::read_to_string(&path) {
            Ok(json) => json.parse().map_err(|reason| LaunchError::Matrix { path, reason })?,
            Err(reason) => return Err(LaunchError::File { path, reason }),
        };
        Self::new(rank, matrix, text(COORDINATOR)?)
    }

    /// A rank of the hosts of a hostfile, for programs that were started by other means than a launcher
    ///
    /// The ranks register where those of `mlx.launch` do: at the first address of the first host, port 32323. For another address give
    /// [`new`](Self::new) the [matrix](Hostfile::matrix) of the file. All ranks have to read the same file.
    ///
    /// ```
    /// use rdma_collectives::launch::Launch;
    ///
    /// let hostfile = r#"[
    ///     {"ssh": "studio", "ips": ["192.168.1.10"], "rdma": [null, "rdma_en2"]},
    ///     {"ssh": "mini", "ips": ["192.168.1.11"], "rdma": ["rdma_en3", null]}
    /// ]"#;
    /// let launch = Launch::from_hostfile(1, &hostfile.parse()?)?;
    /// assert_eq!((launch.rank(), launch.size()), (1, 2));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LaunchError::Hostfile`] with the line and the cell if the rows of the hosts are no matrix, [`LaunchError::Address`] if the first host has no
    /// address, and those of [`new`](Self::new).
    pub fn from_hostfile(rank: usize, hostfile: &Hostfile) -> Result<Self, LaunchError> {
        let matrix = hostfile.matrix()?;
        let Some(first) = hostfile.hosts().first() else {
            return Err(LaunchError::Rank { rank, hosts: 0 });
        };
        let Some(address) = first.addresses.first() else {
            return Err(LaunchError::Address { line: first.line, host: first.name.clone() });
        };
        let coordinator = match address.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{PORT}"),
            _ => format!("{address}:{PORT}"),
        };
        Self::new(rank, matrix, coordinator)
    }

    /// A rank of the hosts of `matrix`, which register at `coordinator`, the address of rank 0: `HOST:PORT`
    ///
    /// # Errors
    ///
    /// [`LaunchError::Rank`] if there is no such rank, [`LaunchError::Cabling`] if there are too many hosts or cables.
    pub fn new(
        rank: usize,
        matrix: DeviceMatrix,
        coordinator: impl Into<String>,
    ) -> Result<Self, LaunchError> {
        let hosts = matrix.hosts();
        if rank >= hosts {
            return Err(LaunchError::Rank { rank, hosts });
        }
        let names: Vec<_> = (0..hosts).map(|rank| format!("rank-{rank}")).collect();
        let cables: Vec<_> =
            cables(&matrix).map(|([left, right], _)| Cable::new(left, right, RATE)).collect();
        let cabling = Cabling::new(names, cables)?;
        Ok(Self { rank, matrix, cabling, coordinator: coordinator.into(), start_timeout: START_TIMEOUT })
    }

    /// How long this rank waits until the others have been started; one minute, at most a day
    #[must_use]
    pub fn start_timeout(self, start_timeout: Duration) -> Self {
        Self { start_timeout, ..self }
    }

    /// The number of this rank, from 0
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are
    pub fn size(&self) -> usize {
        self.matrix.hosts()
    }

    /// The cabling of the hosts, which are called `rank-0`, `rank-1`, …; each cable is one of Thunderbolt 5
    pub fn cabling(&self) -> &Cabling {
        &self.cabling
    }

    /// A builder of a node with the devices of this rank, each opened by `open` from its name, and default options
    ///
    /// As [`node_with`](Self::node_with).
    ///
    /// # Errors
    ///
    /// As [`node_with`](Self::node_with).
    pub fn node<D, E, F>(&self, open: F) -> Result<NodeBuilder<D>, LaunchError>
    where
        D: Device,
        E: Into<Box<dyn Error + Send + Sync>>,
        F: Fn(&str) -> Result<D, E> + Clone + Send + Sync + 'static,
    {
        self.node_with(NodeOptions::new(), open)
    }

    /// A builder of a node with the devices of this rank, each opened by `open` from its name, and these options
    ///
    /// The cables have names, so that nothing is found by trial, and the node takes as many peers as this rank has neighbours, whatever
    /// `options` says. Six neighbours are the most on Apple's device, for its completion queues; no Mac has more ports.
    ///
    /// # Errors
    ///
    /// [`LaunchError::NoCable`] if no device of this rank leads to another one, as that of a rank alone.
    pub fn node_with<D, E, F>(&self, options: NodeOptions, open: F) -> Result<NodeBuilder<D>, LaunchError>
    where
        D: Device,
        E: Into<Box<dyn Error + Send + Sync>>,
        F: Fn(&str) -> Result<D, E> + Clone + Send + Sync + 'static,
    {
        let mut builder: Option<NodeBuilder<D>> = None;
        for (ends, number) in cables(&self.matrix).filter(|(ends, _)| ends.contains(&self.rank)) {
            let peer = ends[usize::from(ends[0] == self.rank)];
            let device = self.matrix.devices(self.rank, peer)[number].clone();
            let open = open.clone();
            let open = move || open(&device);
            let with = match builder {
                None => Node::builder(open),
                Some(builder) => builder.device(open),
            };
            let name = link(ends, number);
            builder = Some(with.link(move || Some(name)));
        }
        let peers = self.neighbours().count().max(1);
        let options = options.max_peers(u32::try_from(peers).unwrap_or(u32::MAX));
        Ok(builder.ok_or(LaunchError::NoCable { rank: self.rank })?.options(options))
    }

    /// The ranks to which this one has cables
    fn neighbours(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size()).filter(|peer| !self.matrix.devices(self.rank, *peer).is_empty())
    }
}

/// The ends of each cable, the lower rank first, and its number among those between the same two ranks
fn cables(matrix: &DeviceMatrix) -> impl Iterator<Item = ([usize; 2], usize)> + '_ {
    let hosts = matrix.hosts();
    let pairs = (0..hosts).flat_map(move |left| (left + 1..hosts).map(move |right| [left, right]));
    pairs.flat_map(|ends| (0..matrix.devices(ends[0], ends[1]).len()).map(move |number| (ends, number)))
}

/// A number that ranks with different matrices do not share, the same in all versions
fn fingerprint(matrix: &DeviceMatrix) -> u64 {
    let mut text = format!("{} hosts\n", matrix.hosts());
    for (ends, number) in cables(matrix) {
        let [left, right] = ends;
        for (from, to) in [(left, right), (right, left)] {
            text += &format!("{from} {to} {:?}\n", matrix.devices(from, to)[number]);
        }
    }
    hash(text.as_bytes())
}

/// The name of a cable, the same at both ends
fn link([left, right]: [usize; 2], number: usize) -> LinkId {
    let name = (left as u128) << 80 | (right as u128) << 40 | number as u128;
    LinkId(NonZeroU128::MIN.saturating_add(name))
}

#[cfg(test)]
mod tests;
