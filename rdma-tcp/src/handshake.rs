//! The messages by which two queue pairs recognise each other on a TCP connection
//!
//! The queue pair with the smaller address dials and sends a hello, the other one answers with a welcome, and the first confirms.
//! Each message names both queue pairs by their whole addresses. 48 bits of each address are random, so that a process
//! to which no address was sent cannot name a queue pair. With the confirmation, the side that listens knows that the
//! connection was not given up meanwhile: until then it accepts another hello.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rdma_core::{Gid, QpAddress};

/// Bytes of a handshake message.
pub(crate) const LEN: usize = MAGIC.len() + 1 + 2 * QpAddress::WIRE_LEN;
/// The first bytes; the last of them is the version of the protocol.
const MAGIC: &[u8; 7] = b"rdmatc\x01";

/// Which step of the handshake a message is
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Step {
    /// The side that dials names both queue pairs
    Hello = 1,
    /// The side that listens agrees
    Welcome = 2,
    /// The side that dials has not given up meanwhile
    Confirm = 3,
}

/// A handshake message
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Handshake {
    pub(crate) step: Step,
    /// The queue pair of the sender
    pub(crate) from: QpAddress,
    /// The queue pair of the receiver
    pub(crate) to: QpAddress,
}

impl Handshake {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..7].copy_from_slice(MAGIC);
        out[7] = self.step as u8;
        out[8..34].copy_from_slice(&self.from.to_bytes());
        out[34..].copy_from_slice(&self.to.to_bytes());
        out
    }

    /// Decodes a message; `None` for bytes that are none
    pub(crate) fn decode(bytes: &[u8; LEN]) -> Option<Self> {
        let ([m0, m1, m2, m3, m4, m5, m6, step], addresses) = bytes.split_first_chunk()?;
        if [m0, m1, m2, m3, m4, m5, m6].map(|byte| *byte) != *MAGIC {
            return None;
        }
        let step =
            [Step::Hello, Step::Welcome, Step::Confirm].into_iter().find(|known| *known as u8 == *step)?;
        let (from, to) = addresses.split_first_chunk()?;
        Some(Self { step, from: QpAddress::from_bytes(from), to: QpAddress::from_bytes(to.try_into().ok()?) })
    }
}

/// Whether `bytes` may be the beginning of a message
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    MAGIC.iter().zip(bytes).all(|(one, other)| one == other)
}

/// Whether the queue pair at `own` dials the one at `peer`, or waits for its call
pub(crate) fn dials(own: &QpAddress, peer: &QpAddress) -> bool {
    own.to_bytes() < peer.to_bytes()
}

/// The GID of a host
pub(crate) fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => Gid::from_ipv4(address),
        IpAddr::V6(address) => Gid(address.octets()),
    }
}

/// Where the listener of `peer` is; `None` if the address cannot be one of this kind of device
///
/// `scope` is the interface of link-local addresses.
pub(crate) fn listener(peer: &QpAddress, scope: u32) -> Option<SocketAddr> {
    // The upper bits of the PSN are random.
    let port = peer.psn.0 as u16;
    if port == 0 || peer.gid.is_zero() {
        return None;
    }
    Some(match peer.gid.ipv4() {
        Some(address) => (address, port).into(),
        None => {
            let address = Ipv6Addr::from(peer.gid.0);
            let scope = if address.is_unicast_link_local() { scope } else { 0 };
            SocketAddrV6::new(address, port, 0, scope).into()
        }
    })
}

#[cfg(test)]
mod tests {
    use rdma_core::{Lid, Psn, Qpn};

    use super::*;

    fn address(last: u8) -> QpAddress {
        QpAddress {
            gid: Gid::from_ipv4([192, 0, 2, last].into()),
            lid: Lid(0x1234),
            psn: Psn(0xab_1f90),
            qpn: Qpn(0x77_0001),
        }
    }

    #[test]
    fn a_message_survives_its_encoding() {
        for step in [Step::Hello, Step::Welcome, Step::Confirm] {
            let message = Handshake { step, from: address(1), to: address(2) };
            assert_eq!(Handshake::decode(&message.encode()), Some(message));
            assert!((0..=LEN).all(|len| may_begin(&message.encode()[..len])));
        }
    }

    /// Catches a decoder that ignores the magic bytes or the step.
    #[test]
    fn other_bytes_are_no_message() {
        let message = Handshake { step: Step::Hello, from: address(1), to: address(2) }.encode();
        for at in 0..8 {
            let mut damaged = message;
            damaged[at] ^= 0x40;
            assert_eq!(Handshake::decode(&damaged), None, "byte {at}");
        }
        assert!(!may_begin(b"GET / HTTP/1.1"));
    }

    #[test]
    fn one_side_dials() {
        assert!(dials(&address(1), &address(2)) && !dials(&address(2), &address(1)));
        assert!(!dials(&address(1), &address(1)));
    }

    #[test]
    fn the_listener_is_found_by_the_address() {
        assert_eq!(listener(&address(7), 0), Some("192.0.2.7:8080".parse().unwrap()));
        let v6 = |ip: &str| QpAddress { gid: gid(ip.parse().unwrap()), ..address(1) };
        assert_eq!(listener(&v6("2001:db8::1"), 3), Some("[2001:db8::1]:8080".parse().unwrap()));
        assert_eq!(listener(&v6("fe80::1"), 3), Some("[fe80::1%3]:8080".parse().unwrap()));
        assert_eq!(listener(&QpAddress { psn: Psn(0xab_0000), ..address(1) }, 0), None);
        assert_eq!(listener(&QpAddress { gid: Gid::default(), ..address(1) }, 0), None);
    }
}
