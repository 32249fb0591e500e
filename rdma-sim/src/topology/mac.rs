use std::fmt;

use crate::LineRate;

/// A kind of Mac: how many Thunderbolt ports it has, and how fast they are
///
/// In text, models are called by the names in this table.
///
/// | name                  | ports | Gb/s | source of the number of ports                                              |
/// |-----------------------|-------|------|----------------------------------------------------------------------------|
/// | `mac-mini-m4`         | 3     | 40   | assumed; reported are only devices on links of 40 Gb/s (issue 4485 of MLX) |
/// | `mac-mini-m4-pro`     | 3     | 80   | documented: the listing in Apple TN3205 has `rdma_en2` to `rdma_en4`       |
/// | `macbook-pro-m4-pro`  | 3     | 80   | reported in field notes                                                    |
/// | `macbook-pro-m4-max`  | 3     | 80   | measured: devices of a MacBook Pro with 36 GB (issue 3162 of MLX)          |
/// | `macbook-pro-m5-pro`  | 3     | 80   | reported in field notes                                                    |
/// | `macbook-pro-m5-max`  | 3     | 80   | reported in field notes                                                    |
/// | `mac-studio-m4-max`   | 4     | 80   | measured: devices listed in issue 3162 of MLX                              |
/// | `mac-studio-m3-ultra` | 6     | 80   | documented: the MLX documentation lists `rdma_en2` to `rdma_en7`           |
/// | `generic-N`           | N     | 80   | none: as many as a test wants                                              |
///
/// Devices are numbered from `rdma_en2`; those of a MacBook Pro are `rdma_en1`, `rdma_en2` and `rdma_en6`. Reported are the first
/// and the last of these three, on some MacBook Pros (issue 3162 of MLX).
///
/// Reports differ on whether a Mac with Thunderbolt 4 has RDMA devices at all; here it has.
///
/// ```
/// use rdma_sim::{LineRate, MacModel};
///
/// let mac: MacModel = "mac-studio-m3-ultra".parse()?;
/// assert_eq!((mac.ports(), mac.line_rate()), (6, LineRate::TB5));
/// assert_eq!(MacModel::from(12).to_string(), "generic-12");
/// # Ok::<(), rdma_sim::TopologyError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MacModel {
    /// Any Mac with so many Thunderbolt 5 ports
    Generic {
        /// How many, from 1 to [`MAX_PORTS`](Self::MAX_PORTS)
        ports: usize,
    },
    /// Mac mini with M4: Thunderbolt 4
    MacMiniM4,
    /// Mac mini with M4 Pro
    MacMiniM4Pro,
    /// Mac Studio with M3 Ultra
    MacStudioM3Ultra,
    /// Mac Studio with M4 Max
    MacStudioM4Max,
    /// MacBook Pro with M4 Max
    MacBookProM4Max,
    /// MacBook Pro with M4 Pro
    MacBookProM4Pro,
    /// MacBook Pro with M5 Max
    MacBookProM5Max,
    /// MacBook Pro with M5 Pro
    MacBookProM5Pro,
}

impl MacModel {
    /// Every model that is sold
    pub const ALL: [Self; 8] = [
        Self::MacMiniM4,
        Self::MacMiniM4Pro,
        Self::MacBookProM4Pro,
        Self::MacBookProM4Max,
        Self::MacBookProM5Pro,
        Self::MacBookProM5Max,
        Self::MacStudioM4Max,
        Self::MacStudioM3Ultra,
    ];

    /// The most ports that a simulated Mac has
    pub const MAX_PORTS: usize = 32;

    /// How many Thunderbolt ports it has, and so how many RDMA devices
    pub const fn ports(self) -> usize {
        self.describe().1
    }

    /// The fastest link that its ports make
    pub const fn line_rate(self) -> LineRate {
        self.describe().2
    }

    /// The N of `enN`, the interface of its first port
    pub(super) const fn first_interface(self) -> u16 {
        if self.is_macbook() { 1 } else { 2 }
    }

    /// By how much the number of a port's interface exceeds that of the first port
    pub(super) const fn interface_offset(self, position: usize) -> usize {
        if self.is_macbook() && position > 1 { position + 3 } else { position }
    }

    const fn is_macbook(self) -> bool {
        matches!(
            self,
            Self::MacBookProM4Max | Self::MacBookProM4Pro | Self::MacBookProM5Max | Self::MacBookProM5Pro
        )
    }

    /// Its name in text; [`Display`](fmt::Display) adds the number of ports of a generic one
    pub(super) const fn name(self) -> &'static str {
        self.describe().0
    }

    /// Name, ports and rate: the table above
    const fn describe(self) -> (&'static str, usize, LineRate) {
        match self {
            Self::Generic { ports } => (GENERIC, ports, LineRate::TB5),
            Self::MacMiniM4 => ("mac-mini-m4", 3, LineRate::TB4),
            Self::MacMiniM4Pro => ("mac-mini-m4-pro", 3, LineRate::TB5),
            Self::MacStudioM3Ultra => ("mac-studio-m3-ultra", 6, LineRate::TB5),
            Self::MacStudioM4Max => ("mac-studio-m4-max", 4, LineRate::TB5),
            Self::MacBookProM4Max => ("macbook-pro-m4-max", 3, LineRate::TB5),
            Self::MacBookProM4Pro => ("macbook-pro-m4-pro", 3, LineRate::TB5),
            Self::MacBookProM5Max => ("macbook-pro-m5-max", 3, LineRate::TB5),
            Self::MacBookProM5Pro => ("macbook-pro-m5-pro", 3, LineRate::TB5),
        }
    }
}

pub(super) const GENERIC: &str = "generic-";

/// A generic Mac with so many ports
impl From<usize> for MacModel {
    fn from(ports: usize) -> Self {
        Self::Generic { ports }
    }
}

impl fmt::Display for MacModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generic { ports } => write!(f, "{GENERIC}{ports}"),
            model => f.pad(model.name()),
        }
    }
}
