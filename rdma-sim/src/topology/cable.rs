use crate::LineRate;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cable {
    pub(crate) ends: [PortIndex; 2],
    /// The rate of the cable alone; [`Topology::link_rate`](super::Topology::link_rate) is that of the link
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

/// A cable with the ports at its ends
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Link<'a> {
    /// The ports at its ends
    pub ends: [LinkEnd<'a>; 2],
    /// The rate of the cable alone
    pub cable_rate: LineRate,
    /// The rate of the link: the lowest of the cable and both ports
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
