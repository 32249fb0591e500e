//! Thunderbolt: buses, peers, links

use std::fmt;

use serde::{Deserialize, Serialize};

/// A Thunderbolt bus: one receptacle, one cable
///
/// Source: `system_profiler SPThunderboltDataType -json`, as MLX and exo read it. UUIDs of domains stay the same across boots.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Bus {
    /// Name, such as `thunderboltusb4_bus_2`
    pub name: String,
    /// The host's product name, such as `Mac mini`
    pub device_name: Option<String>,
    /// Domain of this side
    pub domain_uuid: Option<String>,
    /// Number of the receptacle: N of the hardware port `Thunderbolt N`
    pub receptacle: Option<u32>,
    /// `receptacle_connected` or `receptacle_no_devices_connected`
    pub receptacle_status: Option<String>,
    /// `80 Gb/s` of a link, `Up to 120 Gb/s` of an idle receptacle
    pub speed: Option<String>,
    /// Connected devices: Macs, and docks and displays too
    pub peers: Vec<Peer>,
}

impl Bus {
    /// Raw line rate; `None` if [`speed`](Self::speed) is not understood
    pub fn link_speed(&self) -> Option<LinkSpeed> {
        LinkSpeed::from_text(self.speed.as_deref()?)
    }

    /// The peers that speak Thunderbolt networking: other computers
    pub fn hosts(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.domain_uuid.is_some())
    }

    /// Its name in findings: the number of its receptacle, which no Mac shows on its case but all tools print
    pub fn label(&self) -> String {
        match self.receptacle {
            Some(number) => format!("receptacle {number}"),
            None => self.name.clone(),
        }
    }
}

/// The device at the other end of a cable
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Peer {
    /// Name, such as `Mac Studio`
    pub name: String,
    /// Model, such as `Mac16,9`
    pub model: Option<String>,
    /// Its domain, if it is a computer
    pub domain_uuid: Option<String>,
    /// Whether it advertises the service `rdma` (protocol 64087); `None` if its services are not known
    pub rdma_service: Option<bool>,
}

/// Raw line rate of a link, or the limit of an idle receptacle
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkSpeed {
    /// Gigabits per second
    pub gigabits: u32,
    /// Whether this is the limit of an idle receptacle
    pub is_limit: bool,
}

impl LinkSpeed {
    /// Reads `80 Gb/s` and `Up to 120 Gb/s`
    ///
    /// ```
    /// use rdma_doctor::report::LinkSpeed;
    ///
    /// let idle = LinkSpeed::from_text("Up to 120 Gb/s").unwrap();
    /// assert_eq!((idle.gigabits, idle.is_limit), (120, true));
    /// assert_eq!(LinkSpeed::from_text("fast"), None);
    /// ```
    pub fn from_text(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let (is_limit, rest) = match lower.strip_prefix("up to") {
            Some(rest) => (true, rest),
            None => (false, lower.as_str()),
        };
        let gigabits = rest.trim().strip_suffix("gb/s")?.trim().parse().ok()?;
        Some(Self { gigabits, is_limit })
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} Gb/s", if self.is_limit { "up to " } else { "" }, self.gigabits)
    }
}

/// A row of `networksetup -listallhardwareports` that is a Thunderbolt port
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct HardwarePort {
    /// Number of the receptacle
    pub receptacle: u32,
    /// Interface, such as `en3`
    pub interface: String,
}

/// Links by the I/O Registry
///
/// Classes and properties are those that field notes name; nothing of it was observed by this project.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct LiveLinks {
    /// One entry per `AppleThunderboltIPPort`
    pub ip_links: Vec<IpLink>,
    /// The number of peers that advertise `rdma`: `IOThunderboltXDomainService` with protocol 64087
    pub rdma_services: Option<u32>,
}

/// State of Thunderbolt IP on a port
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct IpLink {
    /// Interface, such as `en3`
    pub interface: Option<String>,
    /// `IOLinkStatus`: bit 0 says that it is valid, bit 1 that the link is active
    pub link_status: Option<u64>,
    /// `IOLinkSpeed`
    pub link_bits_per_second: Option<u64>,
}

impl IpLink {
    /// Whether the link is active; `None` if the status is not valid
    pub fn is_active(&self) -> Option<bool> {
        self.link_status.filter(|status| status & 1 != 0).map(|status| status & 2 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_they_are_printed() {
        let speed = |gigabits, is_limit| Some(LinkSpeed { gigabits, is_limit });
        let cases = [
            ("80 Gb/s", speed(80, false)),
            ("Up to 120 Gb/s", speed(120, true)),
            ("up to 40 gb/s ", speed(40, true)),
            ("80Gb/s", speed(80, false)),
            ("80 Gbit", None),
            ("fast", None),
            ("", None),
            ("99999999999 Gb/s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(LinkSpeed::from_text(text), expected, "{text:?}");
        }
    }
}
