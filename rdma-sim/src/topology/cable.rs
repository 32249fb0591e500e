use crate::LineRate;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cable {
    pub(crate) ends: [PortIndex; 2],
    /// What the cable itself can carry; [`Topology::link_rate`](super::Topology::link_rate) is what it does.
    pub(crate) rate: LineRate,
}

/// A port by the position of its host and its own
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PortIndex {
    pub(crate) host: usize,
    pub(crate) port: usize,
}

/// A port as it is given to [`Topology::cable`](super::Topology::cable)
///
/// A host, with the position of the port from zero or the name of its device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortRef<'a> {
    pub(super) host: &'a str,
    pub(super) port: PortName<'a>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PortName<'a> {
    Device(&'a str),
    Position(usize),
}

impl<'a> From<(&'a str, usize)> for PortRef<'a> {
    fn from((host, position): (&'a str, usize)) -> Self {
        Self { host, port: PortName::Position(position) }
    }
}

impl<'a> From<(&'a str, &'a str)> for PortRef<'a> {
    fn from((host, device): (&'a str, &'a str)) -> Self {
        Self { host, port: PortName::Device(device) }
    }
}

/// A cable with what is at its ends
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Link<'a> {
    /// Where it is plugged in
    pub ends: [LinkEnd<'a>; 2],
    /// What the cable itself can carry
    pub cable_rate: LineRate,
    /// What the link carries: the slowest of the cable and of both ports
    pub rate: LineRate,
}

/// A port that a cable is plugged into
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LinkEnd<'a> {
    /// The name of the Mac
    pub host: &'a str,
    /// The name of the device
    pub device: &'a str,
}
