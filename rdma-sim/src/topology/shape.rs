use std::fmt;

/// How equal Macs are cabled
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Shape {
    /// Each Mac to the next
    Line,
    /// Each Mac to each other one
    Mesh,
    /// Two Macs
    Pair,
    /// Each Mac to the next, and the last to the first
    Ring,
    /// The first Mac to each other one
    Star,
}

impl Shape {
    /// Every shape
    pub const ALL: [Self; 5] = [Self::Line, Self::Mesh, Self::Pair, Self::Ring, Self::Star];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Mesh => "mesh",
            Self::Pair => "pair",
            Self::Ring => "ring",
            Self::Star => "star",
        }
    }

    /// How many Macs it has, in words
    pub(super) const fn needed_hosts(self) -> &'static str {
        match self {
            Self::Line | Self::Mesh | Self::Star => "at least 2",
            Self::Pair => "2",
            Self::Ring => "at least 3",
        }
    }

    /// The smallest number of Macs of the shape
    pub fn min_hosts(self) -> usize {
        match self {
            Self::Line | Self::Mesh | Self::Pair | Self::Star => 2,
            Self::Ring => 3,
        }
    }

    /// How many ports each Mac has if nothing else is said: as many as the shape needs, with so many cables between those that it joins,
    /// and no fewer than Macs have
    pub fn default_ports(self, hosts: usize, cables: usize) -> usize {
        let neighbours = match self {
            Self::Mesh | Self::Star => hosts.saturating_sub(1),
            Self::Pair => 1,
            Self::Line | Self::Ring => 2,
        };
        neighbours.saturating_mul(cables).max(3)
    }

    pub(super) fn edges(self, hosts: usize) -> Vec<(usize, usize)> {
        match self {
            Self::Line | Self::Pair => (1..hosts).map(|b| (b - 1, b)).collect(),
            Self::Mesh => (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| (a, b))).collect(),
            Self::Ring => (0..hosts).map(|a| (a, (a + 1) % hosts)).collect(),
            Self::Star => (1..hosts).map(|b| (0, b)).collect(),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
