use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;

use super::build::MAX_RATE;
use super::{Host, LinkEnd, MacModel, Port, Shape, Topology, TopologyError};
use crate::LineRate;

/// A topology as it is written in a file: a table of its own, or the whole file
///
/// For formats that contain one; [`Topology::from_toml`] reads a file of its own.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyTable {
    shape: Option<Spanned<String>>,
    hosts: Option<Spanned<Count>>,
    mac: Option<Spanned<String>>,
    ports: Option<Spanned<usize>>,
    cables: Option<Spanned<Count>>,
    gbps: Option<Spanned<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host: Vec<Spanned<HostTable>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cable: Vec<Spanned<CableTable>>,
}

/// A number; whoever writes `[[hosts]]` is told what to write instead
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "a shape has a number of hosts and cables; single ones are [[host]] and [[cable]]"
)]
enum Count {
    Of(usize),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Spanned<String>,
    mac: Option<Spanned<String>>,
    ports: Option<Spanned<usize>>,
    first_interface: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    port: Vec<PortTable>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortTable {
    device: Spanned<String>,
    addresses: Vec<Spanned<String>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CableTable {
    ends: [Spanned<String>; 2],
    #[serde(serialize_with = "write_gbps")]
    gbps: Option<Spanned<f64>>,
}

impl Topology {
    /// Reads a topology
    ///
    /// Hosts and cables one by one:
    ///
    /// ```
    /// # use rdma_sim::{MacModel, Topology};
    /// let topology = Topology::from_toml(r#"
    ///     [[host]]
    ///     name = "left"
    ///     mac = "mac-mini-m4-pro"
    ///
    ///     [[host]]
    ///     name = "right"
    ///     ports = 4                        # instead of mac: any Mac with so many ports
    ///     first_interface = 3              # its devices are rdma_en3 and on; 2 if not given
    ///
    ///     [[host.port]]                    # only for ports with other addresses than usual
    ///     device = "rdma_en3"
    ///     addresses = ["link-local", "fe80::c0de", "ipv4"]
    ///
    ///     [[cable]]
    ///     ends = ["left:rdma_en2", "right:rdma_en3"]
    ///     gbps = 40                        # 80 if not given
    /// "#)?;
    /// assert_eq!(Topology::from_toml(&topology.to_toml())?, topology);
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// Among the addresses, `link-local` and `ipv4` are those that the port has by itself.
    ///
    /// Or a [`Shape`], whose hosts are called `a`, `b`, …; further hosts and cables may follow:
    ///
    /// ```
    /// # use rdma_sim::{MacModel, Topology};
    /// let ring = Topology::from_toml(r#"
    ///     shape = "ring"
    ///     hosts = 4
    ///     mac = "mac-studio-m3-ultra"      # or ports
    ///     cables = 2                       # between neighbours; 1 if not given
    ///     gbps = 40                        # 80 if not given
    /// "#)?;
    /// assert_eq!(ring.links().len(), 8);
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TopologyError::Text`] if the text is not in this format, [`TopologyError::At`] if it is and asks for something
    /// that cannot be. Both tell the line.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        let table: TopologyTable = toml::from_str(text).map_err(|error| TopologyError::Text {
            line: line(text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        table.build(text)
    }

    /// The hosts and cables as text that [`from_toml`](Self::from_toml) reads
    pub fn to_toml(&self) -> String {
        toml::to_string(&TopologyTable::from(self)).expect("names, numbers and lists of tables are TOML")
    }
}

/// The line of a byte of `text`, counted from one
pub(crate) fn line(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// Where something was read
struct Place<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Place<'a> {
    fn of<T>(text: &'a str, value: &Spanned<T>) -> Self {
        Self { text, offset: value.span().start }
    }

    fn is_wrong(&self, error: TopologyError) -> TopologyError {
        TopologyError::At { line: line(self.text, self.offset), error: Box::new(error) }
    }

    fn is_unreadable(&self, message: impl Into<String>) -> TopologyError {
        TopologyError::Text { line: line(self.text, self.offset), message: message.into() }
    }
}

impl fmt::Debug for TopologyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopologyTable").field("hosts", &self.host.len()).finish_non_exhaustive()
    }
}

impl TopologyTable {
    /// The topology that the table describes; `text` is the whole text that the table was read from
    ///
    /// # Errors
    ///
    /// The table contradicts itself, or describes what cannot be; the error tells the line of `text`.
    pub fn build(self, text: &str) -> Result<Topology, TopologyError> {
        let mut topology = self.shaped(text)?;
        for table in &self.host {
            table.get_ref().add_to(&mut topology, text, &Place::of(text, table))?;
        }
        for table in &self.cable {
            table.get_ref().add_to(&mut topology, text)?;
        }
        Ok(topology)
    }

    fn shaped(&self, text: &str) -> Result<Topology, TopologyError> {
        let Some(name) = &self.shape else {
            let present = [
                ("hosts", self.hosts.as_ref().map(|hosts| Place::of(text, hosts))),
                ("mac", self.mac.as_ref().map(|mac| Place::of(text, mac))),
                ("ports", self.ports.as_ref().map(|ports| Place::of(text, ports))),
                ("cables", self.cables.as_ref().map(|cables| Place::of(text, cables))),
                ("gbps", self.gbps.as_ref().map(|gbps| Place::of(text, gbps))),
            ];
            return match present.into_iter().find_map(|(key, place)| Some((key, place?))) {
                None => Ok(Topology::new()),
                Some((key, place)) => Err(place.is_unreadable(format!(
                    "{key} belongs to a shape: add one, such as shape = \"ring\", or write a [[host]] for each Mac"
                ))),
            };
        };
        let place = Place::of(text, name);
        let shape: Shape = name.get_ref().parse().map_err(|error| place.is_wrong(error))?;
        let mac = model(text, &place, &format!("the {shape} is of"), self.mac.as_ref(), self.ports.as_ref())?;
        let hosts = match self.hosts.as_ref().map(Spanned::get_ref) {
            Some(Count::Of(hosts)) => *hosts,
            None if shape == Shape::Pair => 2,
            None => {
                return Err(
                    place.is_unreadable(format!("say of how many Macs the {shape} is, such as hosts = 4"))
                );
            }
        };
        let Count::Of(cables) = self.cables.as_ref().map_or(Count::Of(1), |cables| *cables.get_ref());
        let rate = rate(text, self.gbps.as_ref())?;
        Topology::shaped(shape, hosts, mac, cables, rate).map_err(|error| place.is_wrong(error))
    }
}

impl HostTable {
    fn add_to(&self, topology: &mut Topology, text: &str, table: &Place<'_>) -> Result<(), TopologyError> {
        let name = self.name.get_ref();
        let mac = model(text, table, &format!("{name} is"), self.mac.as_ref(), self.ports.as_ref())?;
        let first_interface = self.first_interface.unwrap_or(Topology::FIRST_INTERFACE);
        let added = topology.add_host_from(name, mac, first_interface);
        added.map_err(|error| Place::of(text, &self.name).is_wrong(error))?;
        for (number, port) in self.port.iter().enumerate() {
            let place = Place::of(text, &port.device);
            let device = port.device.get_ref().as_str();
            if self.port[..number].iter().any(|earlier| earlier.device.get_ref() == device) {
                return Err(
                    place.is_unreadable(format!("{device} of {name} is there twice: leave one of them out"))
                );
            }
            let index =
                topology.find_port((name.as_str(), device).into()).map_err(|error| place.is_wrong(error))?;
            let own = &topology.hosts[index.host].ports[index.port].addresses;
            let addresses = port.addresses.iter().map(|address| read_address(text, address, own));
            let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
            let changed = topology.set_addresses((name.as_str(), device), addresses);
            changed.map_err(|error| place.is_wrong(error))?;
        }
        Ok(())
    }
}

impl CableTable {
    fn add_to(&self, topology: &mut Topology, text: &str) -> Result<(), TopologyError> {
        let [a, b] = &self.ends;
        let rate = rate(text, self.gbps.as_ref())?;
        let ends = [read_end(text, a)?, read_end(text, b)?];
        // The ends may be on different lines.
        for (end, place) in ends.into_iter().zip([a, b]) {
            topology.find_port(end.into()).map_err(|error| Place::of(text, place).is_wrong(error))?;
        }
        topology.add_cable(ends[0], ends[1], rate).map_err(|error| Place::of(text, a).is_wrong(error))?;
        Ok(())
    }
}

fn model(
    text: &str,
    table: &Place<'_>,
    what: &str,
    mac: Option<&Spanned<String>>,
    ports: Option<&Spanned<usize>>,
) -> Result<MacModel, TopologyError> {
    match (mac, ports) {
        (Some(mac), None) => mac.get_ref().parse().map_err(|error| Place::of(text, mac).is_wrong(error)),
        (None, Some(ports)) => Ok(MacModel::from(*ports.get_ref())),
        (None, None) => Err(table
            .is_unreadable(format!("say which Mac {what}: mac = \"mac-mini-m4-pro\", or ports = 3 for any"))),
        (Some(_), Some(ports)) => {
            Err(Place::of(text, ports).is_unreadable("the Mac has both mac and ports: leave one of them out"))
        }
    }
}

fn rate(text: &str, gbps: Option<&Spanned<f64>>) -> Result<LineRate, TopologyError> {
    let Some(gbps) = gbps else { return Ok(LineRate::TB5) };
    let bits = (gbps.get_ref() * 1e9).round();
    if !(1.0..=MAX_RATE as f64).contains(&bits) {
        let message =
            format!("gbps = {} is no rate of a cable: give up to 1000, such as 80 or 40", gbps.get_ref());
        return Err(Place::of(text, gbps).is_unreadable(message));
    }
    Ok(LineRate { bits_per_second: bits as u64 })
}

fn read_end<'a>(text: &str, end: &'a Spanned<String>) -> Result<(&'a str, &'a str), TopologyError> {
    end.get_ref().split_once(':').ok_or_else(|| {
        let message =
            format!("{:?} is no end of a cable: write host:device, such as \"a:rdma_en2\"", end.get_ref());
        Place::of(text, end).is_unreadable(message)
    })
}

const LINK_LOCAL: &str = "link-local";
const IPV4: &str = "ipv4";

/// `own` is what the port has by itself
fn read_address(text: &str, address: &Spanned<String>, own: &[IpAddr]) -> Result<IpAddr, TopologyError> {
    let written = address.get_ref().as_str();
    let found = match written {
        LINK_LOCAL => own.iter().find(|own| own.is_ipv6()).copied(),
        IPV4 => own.iter().find(|own| own.is_ipv4()).copied(),
        literal => literal.parse().ok(),
    };
    found.ok_or_else(|| {
        let message = format!("{written:?} is no address: write one, or \"{LINK_LOCAL}\", or \"{IPV4}\"");
        Place::of(text, address).is_unreadable(message)
    })
}

impl From<&Topology> for TopologyTable {
    fn from(topology: &Topology) -> Self {
        let host =
            topology.hosts.iter().enumerate().map(|(index, host)| spanless(HostTable::new(index, host)));
        let cable = topology.links().map(|link| {
            let ends = link.ends.map(|LinkEnd { host, device }| spanless(format!("{host}:{device}")));
            let gbps = link.cable_rate.bits_per_second as f64 / 1e9;
            spanless(CableTable { ends, gbps: Some(spanless(gbps)) })
        });
        Self { host: host.collect(), cable: cable.collect(), ..Self::default() }
    }
}

impl HostTable {
    fn new(index: usize, host: &Host) -> Self {
        let (mac, ports) = match host.mac {
            MacModel::Generic { ports } => (None, Some(spanless(ports))),
            mac => (Some(spanless(mac.to_string())), None),
        };
        let first = host.first_interface;
        let usual = |position| Port::new(index, position, first).addresses;
        let changed = host.ports.iter().enumerate().filter_map(|(position, port)| {
            let usual = usual(position);
            (port.addresses != usual).then(|| PortTable::new(port, &usual))
        });
        Self {
            name: spanless(host.name.clone()),
            mac,
            ports,
            first_interface: (first != Topology::FIRST_INTERFACE).then_some(first),
            port: changed.collect(),
        }
    }
}

impl PortTable {
    fn new(port: &Port, usual: &[IpAddr]) -> Self {
        let write = |address: &IpAddr| match usual.contains(address) {
            true if address.is_ipv4() => IPV4.to_owned(),
            true => LINK_LOCAL.to_owned(),
            false => address.to_string(),
        };
        Self {
            device: spanless(port.device.clone()),
            addresses: port.addresses.iter().map(|address| spanless(write(address))).collect(),
        }
    }
}

/// For writing, which looks at no span
fn spanless<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// Whole numbers are written without a point
fn write_gbps<S: Serializer>(gbps: &Option<Spanned<f64>>, serializer: S) -> Result<S::Ok, S::Error> {
    match gbps.as_ref().map(|gbps| *gbps.get_ref()) {
        None => serializer.serialize_none(),
        Some(gbps) if gbps.fract() == 0.0 => serializer.serialize_u64(gbps as u64),
        Some(gbps) => serializer.serialize_f64(gbps),
    }
}
