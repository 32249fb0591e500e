use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rdma_core::Gid;

use super::MacModel;
use crate::Rules;

/// Macs whose ports have different addresses.
pub(super) const MAX_HOSTS: usize = 254 * 7;

/// A Thunderbolt port of a Mac: its device, its numbers, and the addresses of its interface
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Port {
    pub(crate) device: String,
    guid: Guid,
    mac_address: MacAddress,
    pub(super) addresses: Vec<IpAddr>,
}

impl Port {
    /// The port at `position` of the Mac at `host`, whose first interface is `en<first_interface>`
    pub(super) fn new(host: usize, position: usize, first_interface: u16, mac: MacModel) -> Self {
        Self {
            device: device_name(first_interface, mac.interface_offset(position)),
            guid: Guid::new(host, position),
            mac_address: MacAddress::new(host, position),
            addresses: own_addresses(host, position).into(),
        }
    }

    /// The name of its device, `rdma_enN`
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The name of the interface that the device belongs to, `enN`
    pub fn interface(&self) -> &str {
        self.device.strip_prefix(DEVICE_PREFIX).unwrap_or(&self.device)
    }

    /// The identifier of the device
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The hardware address of the interface
    pub fn mac_address(&self) -> MacAddress {
        self.mac_address
    }

    /// The addresses of the interface, in the order of the GID table
    ///
    /// As on a Mac without configuration: the address that derives from the hardware address, a self-assigned IPv4 address,
    /// and a secured link-local address. [`Topology::set_addresses`](super::Topology::set_addresses) changes them. Devices on which a
    /// self-assigned address is no source have another one in its place
    /// ([`Rules::link_local_source`](crate::Rules::link_local_source)).
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The GID table, which mirrors the addresses
    ///
    /// # Model
    ///
    /// Documented (TN3205, revision of 2026-04-13): three entries on a configured port. The first is the EUI-64 of the
    /// hardware address; the others are addresses of the interface, IPv4 mapped into IPv6. The unspecified address stands
    /// for an entry that is not set.
    pub fn gids(&self) -> Vec<Gid> {
        let gid = |address: &IpAddr| match address {
            IpAddr::V4(v4) => Gid::from_ipv4(*v4),
            IpAddr::V6(v6) => Gid(v6.octets()),
        };
        self.addresses.iter().map(gid).collect()
    }
}

/// The GID table of `port`, the one at `position` of the Mac at `host`, on devices that follow `rules`
///
/// Also the IPv4 address that the port has by itself, if it is one that was configured.
pub(crate) fn gids_under(
    rules: &Rules,
    port: &Port,
    [host, position]: [usize; 2],
) -> (Vec<Gid>, Option<Ipv4Addr>) {
    let (own, mut gids) = (self_assigned(host, position), port.gids());
    let configured = (!rules.link_local_source && port.addresses.contains(&own.into())).then(|| {
        let [_, _, c, d] = own.octets();
        Ipv4Addr::new(192, 168, c, d)
    });
    if let Some(configured) = configured {
        let replaced = gids.iter_mut().filter(|gid| gid.ipv4() == Some(own));
        replaced.for_each(|gid| *gid = Gid::from_ipv4(configured));
    }
    if port.addresses == own_addresses(host, position) {
        gids.swap(1, rules.ipv4_gid_index);
    }
    (gids, configured)
}

/// The difference between the name of an interface and that of its device
pub(super) const DEVICE_PREFIX: &str = "rdma_";
const INTERFACE_PREFIX: &str = "rdma_en";

pub(super) fn device_name(first_interface: u16, position: usize) -> String {
    format!("{INTERFACE_PREFIX}{}", usize::from(first_interface) + position)
}

/// The N of `rdma_enN`, written as macOS writes it
pub(super) fn interface_number(device: &str) -> Option<u16> {
    let number = device.strip_prefix(INTERFACE_PREFIX)?;
    let parsed: u16 = number.parse().ok()?;
    (parsed.to_string() == number).then_some(parsed)
}

/// The addresses that a port has by itself
fn own_addresses(host: usize, position: usize) -> [IpAddr; 3] {
    [
        MacAddress::new(host, position).link_local().into(),
        self_assigned(host, position).into(),
        secured(host, position).into(),
    ]
}

/// The address that a port without configuration gives itself; unlike on a Mac, not a random one
pub(super) fn self_assigned(host: usize, position: usize) -> Ipv4Addr {
    // The first and the last 256 addresses of the block are reserved (RFC 3927).
    let (block, row) = (host % 254, host / 254);
    Ipv4Addr::new(169, 254, block as u8 + 1, (32 * row + position) as u8 + 1)
}

/// The secured link-local address of a port (RFC 3972); unlike on a Mac, not a hash
fn secured(host: usize, position: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x1c5e, 0x5ec0, host as u16, position as u16 + 1)
}

/// The address that a port has instead of `address`, which it had by itself before
pub(crate) fn readdressed(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, d] = address.octets();
    // Each step moves all ports of a Mac alike, so that they keep different addresses; 97 has no divisor in common with 254.
    Ipv4Addr::new(a, b, c, ((u16::from(d) + 254 - 1 + 97) % 254 + 1) as u8)
}

/// The identifier of a device (`node_guid`)
///
/// # Model
///
/// Documented: the listings in Apple TN3205 and in the MLX documentation, where the first byte counts the ports and the
/// last two are `ac05`. Assumed: the bytes between, which count the hosts here.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Guid(pub [u8; 8]);

impl Guid {
    fn new(host: usize, position: usize) -> Self {
        let [.., h1, h0] = (host as u32).to_be_bytes();
        Self([0x80 + position as u8, 0x96, 0xa9, 0xd9, h1, h0, 0xac, 0x05])
    }
}

/// As `ibv_devices` prints it; the alternate form is that of `ibv_devinfo`, in groups of four digits
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            let colon = if f.alternate() && i > 0 { ":" } else { "" };
            write!(f, "{colon}{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// The hardware address of an interface
///
/// # Model
///
/// Assumed: locally administered, with the host in the middle and the port in the last byte.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    fn new(host: usize, position: usize) -> Self {
        let [.., h1, h0] = (host as u32).to_be_bytes();
        Self([0x36, 0x96, h1, h0, 0, (position as u8) << 2])
    }

    /// The link-local address that derives from it (modified EUI-64, RFC 4291)
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let interface = [a ^ 0x02, b, c, 0xff, 0xfe, d, e, f];
        Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(u64::from_be_bytes(interface)))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacAddress({self})")
    }
}
