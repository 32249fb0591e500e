use std::net::IpAddr;

use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;

use super::build::MAX_RATE;
use super::{Host, LinkEnd, MacModel, Port, Shape, Topology, TopologyError};
use crate::LineRate;

/// A topology as it is written in a file: a table of its own, or the whole file
///
/// For formats that contain one; [`Topology::from_toml`] reads a file of its own.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table: its own with a shape, or lists of hosts and cables")]
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

/// A number; for a table such as `[[hosts]]` the error says which table to write instead
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "a shape has a number of hosts and cables; single ones are [[host]] and [[cable]]"
)]
enum Count {
    Of(usize),
}

impl Count {
    fn get(self) -> usize {
        let Self::Of(count) = self;
        count
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Spanned<String>,
    mac: Option<Spanned<String>>,
    ports: Option<Spanned<usize>>,
    first_interface: Option<u16>,
    #[serde(serialize_with = "write_gbps")]
    cap_gbps: Option<Spanned<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    port: Vec<PortTable>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortTable {
    device: Spanned<String>,
    addresses: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CableTable {
    /// Two ends; their number is checked, because a fixed array would let further ones pass.
    ends: Spanned<Vec<Spanned<String>>>,
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
    ///     cap_gbps = 200                   # what all of its cables carry together, for plans; no cap if not given
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
    /// Among the addresses, `link-local`, `ipv4` and `secured` are those that the port has by itself.
    ///
    /// Or a [`Shape`], whose hosts are called `a`, `b`, …; further hosts and cables may follow:
    ///
    /// ```
    /// # use rdma_sim::{MacModel, Topology};
    /// let ring = Topology::from_toml(r#"
    ///     shape = "ring"
    ///     hosts = 4
    ///     mac = "mac-studio-m3-ultra"      # or ports; by default as many ports as the shape needs, and at least 3
    ///     cables = 2                       # between neighbours; 1 if not given
    ///     gbps = 40                        # 80 if not given
    /// "#)?;
    /// assert_eq!(ring.links().len(), 8);
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TopologyError::Text`] if the text is not in this format, [`TopologyError::At`] if it is and describes an
    /// impossible topology. Both have the line.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        let table: TopologyTable = toml::from_str(text).map_err(|error| TopologyError::Text {
            line: line(text, error.span().map_or(0, |span| span.start)),
            message: toml_message(text, error.span().map_or(0, |span| span.start), error.message()),
        })?;
        table.build(text)
    }

    /// The hosts and cables as text that [`from_toml`](Self::from_toml) reads
    pub fn to_toml(&self) -> String {
        toml::to_string(&TopologyTable::from(self)).expect("names, numbers and lists of tables are TOML")
    }
}

/// The line of a byte of `text`, counted from one
fn line(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// The message of a TOML parser for people, for formats that contain a [`TopologyTable`]
///
/// `offset` is where the parser found the mistake in `text`. Of a word without quotes, parsers say which word they expected
/// instead; of a repeated key, they do not say which one it is.
pub fn toml_message(text: &str, offset: usize, message: &str) -> String {
    const OF_WORDS: [&str; 3] = ["invalid boolean", "invalid float", "string values must be quoted"];
    let is_in_word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let word = text.split_at_checked(offset).map(|(before, after)| {
        let start = before.trim_end_matches(is_in_word).len();
        let end = offset + after.len() - after.trim_start_matches(is_in_word).len();
        &text[start..end]
    });
    match word.filter(|word| !word.is_empty()) {
        Some(word) if OF_WORDS.iter().any(|known| message.starts_with(known)) => {
            format!("{word} is neither a number nor a text: write a number, or a text in quotes")
        }
        Some(key) if message == "duplicate key" => format!("{key} is there more than once: keep one"),
        _ => message.replace('\n', ", "),
    }
}

/// Adds the line of a value to an error
fn at<T>(text: &str, value: &Spanned<T>) -> impl Fn(TopologyError) -> TopologyError + use<T> {
    let line = line(text, value.span().start);
    move |error| TopologyError::At { line, error: Box::new(error) }
}

impl TopologyTable {
    /// The topology that the table describes; `text` is the whole text that the table was read from
    ///
    /// # Errors
    ///
    /// [`TopologyError::At`] with the line of `text` if the table contradicts itself, lacks something, or describes an
    /// impossible topology.
    pub fn build(self, text: &str) -> Result<Topology, TopologyError> {
        let mut topology = self.shaped(text)?;
        for table in &self.host {
            table.get_ref().add_to(&mut topology, text, at(text, table))?;
        }
        for table in &self.cable {
            table.get_ref().add_to(&mut topology, text)?;
        }
        Ok(topology)
    }

    fn shaped(&self, text: &str) -> Result<Topology, TopologyError> {
        let Some(name) = &self.shape else {
            fn start<T>(value: &Option<Spanned<T>>) -> Option<usize> {
                value.as_ref().map(|value| value.span().start)
            }
            let keys = [
                ("hosts", start(&self.hosts)),
                ("mac", start(&self.mac)),
                ("ports", start(&self.ports)),
                ("cables", start(&self.cables)),
                ("gbps", start(&self.gbps)),
            ];
            let Some((key, start)) = keys.into_iter().find_map(|(key, start)| Some((key, start?))) else {
                return Ok(Topology::new());
            };
            let error = Box::new(TopologyError::KeyWithoutShape { key });
            return Err(TopologyError::At { line: line(text, start), error });
        };
        let wrong = at(text, name);
        let shape: Shape = name.get_ref().parse().map_err(&wrong)?;
        let hosts = match &self.hosts {
            Some(hosts) => hosts.get_ref().get(),
            None if shape == Shape::Pair => 2,
            None => return Err(wrong(TopologyError::HostCountMissing { shape })),
        };
        let cables = self.cables.as_ref().map_or(1, |cables| cables.get_ref().get());
        let mac = match (&self.mac, &self.ports) {
            (None, None) => MacModel::from(shape.default_ports(hosts, cables)),
            (mac, ports) => model(text, &wrong, format!("the {shape}"), mac.as_ref(), ports.as_ref())?,
        };
        let rate = rate(text, self.gbps.as_ref())?;
        Topology::shaped(shape, hosts, mac, cables, rate).map_err(|error| {
            match (&error, &self.hosts, &self.ports) {
                (TopologyError::ShapeHosts { .. } | TopologyError::TooManyHosts { .. }, Some(hosts), _) => {
                    at(text, hosts)(error)
                }
                (TopologyError::PortCount { .. }, _, Some(ports)) => at(text, ports)(error),
                _ => wrong(error),
            }
        })
    }
}

impl HostTable {
    fn add_to(
        &self,
        topology: &mut Topology,
        text: &str,
        wrong: impl Fn(TopologyError) -> TopologyError,
    ) -> Result<(), TopologyError> {
        let name = self.name.get_ref();
        let mac = model(text, &wrong, name.clone(), self.mac.as_ref(), self.ports.as_ref())?;
        let first_interface = self.first_interface.unwrap_or_else(|| mac.first_interface());
        topology.add_host_from(name, mac, first_interface).map_err(|error| match (&error, &self.ports) {
            (TopologyError::PortCount { .. }, Some(ports)) => at(text, ports)(error),
            _ => at(text, &self.name)(error),
        })?;
        if let (Some(gbps), Some(host)) = (&self.cap_gbps, topology.hosts.last_mut()) {
            let unusable = || TopologyError::UnusableCap { gbps: gbps.get_ref().to_string() };
            host.cap = Some(line_rate(gbps).ok_or_else(|| at(text, gbps)(unusable()))?);
        }
        for (number, port) in self.port.iter().enumerate() {
            let wrong = at(text, &port.device);
            let device = port.device.get_ref();
            if self.port[..number].iter().any(|earlier| earlier.device.get_ref() == device) {
                return Err(wrong(TopologyError::DuplicatePort {
                    host: name.clone(),
                    device: device.clone(),
                }));
            }
            let index = topology.find_port((name.as_str(), device.as_str()).into()).map_err(&wrong)?;
            let own = &topology.hosts[index.host].ports[index.port].addresses;
            let addresses = port.addresses.iter().map(|address| read_address(text, address, own));
            let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
            let set = topology.set_addresses((name.as_str(), device.as_str()), addresses.iter().copied());
            set.map_err(|error| match error {
                TopologyError::AddressTwice { address: twice, .. } => {
                    let is_twice = |address: &IpAddr| address.to_canonical() == twice;
                    let second = addresses.iter().rposition(is_twice).expect("the address is one of them");
                    at(text, &port.addresses[second])(error)
                }
                _ => wrong(error),
            })?;
        }
        Ok(())
    }
}

impl CableTable {
    fn add_to(&self, topology: &mut Topology, text: &str) -> Result<(), TopologyError> {
        let [a, b] = &self.ends.get_ref()[..] else {
            let ends = self.ends.get_ref().len();
            return Err(at(text, &self.ends)(TopologyError::CableEnds { ends }));
        };
        let rate = rate(text, self.gbps.as_ref())?;
        let ends = [read_end(text, a)?, read_end(text, b)?];
        // The ends may be on different lines.
        for (end, value) in ends.into_iter().zip([a, b]) {
            topology.find_port(end.into()).map_err(at(text, value))?;
        }
        topology.add_cable(ends[0], ends[1], rate).map(drop).map_err(|error| match &error {
            TopologyError::PortInUse { host, device, .. } if (&**host, &**device) == ends[1] => {
                at(text, b)(error)
            }
            _ => at(text, a)(error),
        })
    }
}

fn model(
    text: &str,
    wrong: impl Fn(TopologyError) -> TopologyError,
    subject: String,
    mac: Option<&Spanned<String>>,
    ports: Option<&Spanned<usize>>,
) -> Result<MacModel, TopologyError> {
    match (mac, ports) {
        (Some(mac), None) => mac.get_ref().parse().map_err(at(text, mac)),
        (None, Some(ports)) => Ok(MacModel::from(*ports.get_ref())),
        (None, None) => Err(wrong(TopologyError::ModelMissing { subject })),
        (Some(_), Some(ports)) => Err(at(text, ports)(TopologyError::ModelTwice { subject })),
    }
}

fn rate(text: &str, gbps: Option<&Spanned<f64>>) -> Result<LineRate, TopologyError> {
    let Some(gbps) = gbps else { return Ok(LineRate::TB5) };
    let unusable = || TopologyError::UnusableGbps { gbps: gbps.get_ref().to_string() };
    line_rate(gbps).ok_or_else(|| at(text, gbps)(unusable()))
}

/// The rate, unless it is none that a cable can have
fn line_rate(gbps: &Spanned<f64>) -> Option<LineRate> {
    let bits = (gbps.get_ref() * 1e9).round();
    (1.0..=MAX_RATE as f64).contains(&bits).then_some(LineRate { bits_per_second: bits as u64 })
}

fn gbps(rate: LineRate) -> Spanned<f64> {
    spanless(rate.bits_per_second as f64 / 1e9)
}

fn read_end<'a>(text: &str, end: &'a Spanned<String>) -> Result<(&'a str, &'a str), TopologyError> {
    let pair = end.get_ref().split_once(':');
    pair.ok_or_else(|| at(text, end)(TopologyError::UnusableEnd { end: end.get_ref().clone() }))
}

const LINK_LOCAL: &str = "link-local";
const SECURED: &str = "secured";
const IPV4: &str = "ipv4";

/// Reads an address; `own` are those that the port has by itself
fn read_address(text: &str, address: &Spanned<String>, own: &[IpAddr]) -> Result<IpAddr, TopologyError> {
    let found = match address.get_ref().as_str() {
        LINK_LOCAL => own.iter().find(|own| own.is_ipv6()).copied(),
        SECURED => own.iter().rfind(|own| own.is_ipv6()).copied(),
        IPV4 => own.iter().find(|own| own.is_ipv4()).copied(),
        literal => literal.parse().ok(),
    };
    found.ok_or_else(|| {
        at(text, address)(TopologyError::UnusableAddress { address: address.get_ref().clone() })
    })
}

impl From<&Topology> for TopologyTable {
    fn from(topology: &Topology) -> Self {
        let host =
            topology.hosts.iter().enumerate().map(|(index, host)| spanless(HostTable::new(index, host)));
        let cable = topology.links().map(|link| {
            let ends = link.ends.map(|LinkEnd { host, device }| spanless(format!("{host}:{device}")));
            let ends = spanless(ends.into());
            spanless(CableTable { ends, gbps: Some(gbps(link.cable_rate)) })
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
        let usual = |position| Port::new(index, position, first, host.mac).addresses;
        let changed = host.ports.iter().enumerate().filter_map(|(position, port)| {
            let usual = usual(position);
            (port.addresses != usual).then(|| PortTable::new(port, &usual))
        });
        Self {
            name: spanless(host.name.clone()),
            mac,
            ports,
            first_interface: (first != host.mac.first_interface()).then_some(first),
            cap_gbps: host.cap.map(gbps),
            port: changed.collect(),
        }
    }
}

impl PortTable {
    fn new(port: &Port, usual: &[IpAddr]) -> Self {
        let write = |address: &IpAddr| match usual.contains(address) {
            true if address.is_ipv4() => IPV4.to_owned(),
            true if usual.first() == Some(address) => LINK_LOCAL.to_owned(),
            true => SECURED.to_owned(),
            false => address.to_string(),
        };
        Self {
            device: spanless(port.device.clone()),
            addresses: port.addresses.iter().map(|address| spanless(write(address))).collect(),
        }
    }
}

/// A value to write: the serializer ignores the span
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
