use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A queue pair number, unique on its device
///
/// 24 bits in the verbs; a number may return once its queue pair is destroyed.
///
/// ```
/// assert!(rdma_core::Qpn(0x900) < rdma_core::Qpn(0x901));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qpn(pub u32);

/// A packet sequence number, 24 bits
///
/// Both ends exchange it because the verbs ask for it; Apple's device does not put it on the wire.
///
/// ```
/// let address = rdma_core::QpAddress { psn: rdma_core::Psn(7), ..Default::default() };
/// assert_eq!(address.to_bytes()[18..22], [0, 0, 0, 7]);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Psn(pub u32);

/// A local identifier of a port, which RoCE leaves 0
///
/// ```
/// assert_eq!(rdma_core::QpAddress::default().lid, rdma_core::Lid(0));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lid(pub u16);

/// A global identifier: an IPv6 address, often one that maps an IPv4 address
///
/// ```
/// use std::net::Ipv4Addr;
/// use rdma_core::Gid;
///
/// let gid = Gid::from_ipv4(Ipv4Addr::new(169, 254, 12, 7));
/// assert_eq!(gid.to_string(), "::ffff:169.254.12.7");
/// assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(169, 254, 12, 7)));
/// assert!(Gid::default().is_zero());
/// ```
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID that stands for `addr` (`::ffff:a.b.c.d`)
    pub const fn from_ipv4(addr: Ipv4Addr) -> Self {
        Self(addr.to_ipv6_mapped().octets())
    }

    /// The IPv4 address that this GID maps, if it maps one
    pub const fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_octets(self.0).to_ipv4_mapped()
    }

    /// Whether all bytes are zero, as in an unset entry of a GID table
    pub const fn is_zero(&self) -> bool {
        Ipv6Addr::from_octets(self.0).is_unspecified()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// Address of a queue pair: everything that a peer needs to connect to it
///
/// Each side sends it to the other over the bootstrap stream, encoded in [`QpAddress::WIRE_LEN`] bytes.
///
/// ```
/// use rdma_core::{QpAddress, Qpn};
///
/// let address = QpAddress { qpn: Qpn(0x900), ..QpAddress::default() };
/// assert_eq!(QpAddress::from_bytes(&address.to_bytes()), address);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QpAddress {
    /// Entry of the port's GID table that the queue pair uses as its source
    pub gid: Gid,
    /// Local identifier of the port
    pub lid: Lid,
    /// First packet sequence number that the queue pair sends
    pub psn: Psn,
    /// Number of the queue pair
    pub qpn: Qpn,
}

impl QpAddress {
    /// Length of the encoded form in bytes
    pub const WIRE_LEN: usize = 26;

    /// The encoded form: GID, LID, PSN, QPN, big-endian
    pub fn to_bytes(self) -> [u8; Self::WIRE_LEN] {
        let mut out = [0; Self::WIRE_LEN];
        out[..16].copy_from_slice(&self.gid.0);
        out[16..18].copy_from_slice(&self.lid.0.to_be_bytes());
        out[18..22].copy_from_slice(&self.psn.0.to_be_bytes());
        out[22..].copy_from_slice(&self.qpn.0.to_be_bytes());
        out
    }

    /// Decodes the encoded form; every input is an address
    pub fn from_bytes(bytes: &[u8; Self::WIRE_LEN]) -> Self {
        let [gid @ .., l0, l1, p0, p1, p2, p3, q0, q1, q2, q3] = *bytes;
        Self {
            gid: Gid(gid),
            lid: Lid(u16::from_be_bytes([l0, l1])),
            psn: Psn(u32::from_be_bytes([p0, p1, p2, p3])),
            qpn: Qpn(u32::from_be_bytes([q0, q1, q2, q3])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_encoding() {
        let address = QpAddress {
            gid: Gid::from_ipv4(Ipv4Addr::new(169, 254, 12, 7)),
            lid: Lid(0x1234),
            psn: Psn(7),
            qpn: Qpn(0x900),
        };
        assert_eq!(QpAddress::from_bytes(&address.to_bytes()), address);
        assert_eq!(address.gid.to_string(), "::ffff:169.254.12.7");
        assert_eq!(address.gid.ipv4(), Some(Ipv4Addr::new(169, 254, 12, 7)));
    }
}
