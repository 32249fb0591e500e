//! Requests to the kernel about the interfaces of a network namespace (rtnetlink)

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The index of the loopback interface in every namespace
pub(super) const LOOPBACK: u32 = 1;

// Attributes, of linux/if_link.h, linux/if_addr.h and linux/veth.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;
const IFLA_NET_NS_FD: u16 = 28;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Used at once: no other host has the address.
const IFA_F_NODAD: u8 = 2;

/// An end of a virtual cable (veth)
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    pub(super) index: u32,
    pub(super) name: &'a str,
    pub(super) hardware_address: Option<[u8; 6]>,
}

/// An address of an interface
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Assigned {
    pub(super) local: IpAddr,
    /// The one address that is reached over the interface, instead of those with the same prefix.
    pub(super) peer: Option<IpAddr>,
    pub(super) prefix_length: u8,
}

/// A socket to the kernel, of the namespace in which it was opened
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// A socket of the namespace of the calling thread
    pub(super) fn open() -> io::Result<Self> {
        // No protocol means that of routes and links.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(super) fn add_bridge(&mut self, index: u32, name: &str) -> io::Result<()> {
        let mut request = Request::link(index, 0);
        request.text(IFLA_IFNAME, name);
        request.nested(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
        self.create(&request)
    }

    /// Adds a virtual cable from `local` to `remote`, which is in the namespace `remote_namespace`
    pub(super) fn add_cable(
        &mut self,
        local: End<'_>,
        remote: End<'_>,
        remote_namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut request = Request::end(local);
        request.nested(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    let mut end = Request::end(remote);
                    end.attribute(IFLA_NET_NS_FD, &remote_namespace.as_raw_fd().to_ne_bytes());
                    peer.0.extend_from_slice(&end.0);
                });
            });
        });
        self.create(&request)
    }

    /// Keeps the kernel from giving an interface addresses by itself
    pub(super) fn disable_own_addresses(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::link(index, 0);
        request.nested(IFLA_AF_SPEC, |families| {
            families.nested(libc::AF_INET6 as u16, |inet6| {
                inet6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE]);
            });
        });
        self.request(libc::RTM_NEWLINK, 0, &request)
    }

    /// Attaches an interface to a bridge instead of the one that it is attached to
    pub(super) fn attach(&mut self, index: u32, bridge: u32) -> io::Result<()> {
        let mut request = Request::link(index, 0);
        request.attribute(IFLA_MASTER, &bridge.to_ne_bytes());
        self.request(libc::RTM_NEWLINK, 0, &request)
    }

    pub(super) fn set_up(&mut self, index: u32, is_up: bool) -> io::Result<()> {
        let flags = if is_up { libc::IFF_UP as u32 } else { 0 };
        self.request(libc::RTM_NEWLINK, 0, &Request::link(index, flags))
    }

    pub(super) fn add_address(&mut self, index: u32, assigned: Assigned) -> io::Result<()> {
        self.request(libc::RTM_NEWADDR, CREATE, &Request::address(index, assigned))
    }

    pub(super) fn remove_address(&mut self, index: u32, assigned: Assigned) -> io::Result<()> {
        self.request(libc::RTM_DELADDR, 0, &Request::address(index, assigned))
    }

    fn create(&mut self, request: &Request) -> io::Result<()> {
        self.request(libc::RTM_NEWLINK, CREATE, request)
    }

    /// Sends a request and waits for the answer of the kernel
    fn request(&mut self, kind: u16, flags: u16, request: &Request) -> io::Result<()> {
        self.sequence += 1;
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = Vec::with_capacity(HEADER_BYTES + request.0.len());
        message.extend(((HEADER_BYTES + request.0.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend_from_slice(&request.0);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0; 8192];
        loop {
            let (_, length) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            if let Some(outcome) = outcome(&answer[..length.min(answer.len())], self.sequence) {
                return outcome;
            }
        }
    }
}

const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const HEADER_BYTES: usize = 16;

/// The outcome of the request of this number, if the answer has it
fn outcome(answer: &[u8], sequence: u32) -> Option<io::Result<()>> {
    let word = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let kind = answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    if i32::from(kind) != libc::NLMSG_ERROR || word(8)? != sequence {
        return None;
    }
    match word(HEADER_BYTES)?.cast_signed() {
        0 => Some(Ok(())),
        error => Some(Err(io::Error::from_raw_os_error(-error))),
    }
}

/// The body of a request: a structure, and attributes
struct Request(Vec<u8>);

impl Request {
    /// `struct ifinfomsg`
    fn link(index: u32, flags: u32) -> Self {
        let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend(flags.to_ne_bytes());
        // Of the flags, this one changes.
        body.extend((libc::IFF_UP as u32).to_ne_bytes());
        Self(body)
    }

    /// An end of a virtual cable that is down
    fn end(end: End<'_>) -> Self {
        let mut request = Self::link(end.index, 0);
        request.text(IFLA_IFNAME, end.name);
        if let Some(address) = end.hardware_address {
            request.attribute(IFLA_ADDRESS, &address);
        }
        request
    }

    /// `struct ifaddrmsg`, with the addresses
    fn address(index: u32, Assigned { local, peer, prefix_length }: Assigned) -> Self {
        let (family, flags) = match local {
            IpAddr::V4(_) => (libc::AF_INET, 0),
            IpAddr::V6(_) => (libc::AF_INET6, IFA_F_NODAD),
        };
        let is_link_local = match local {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let scope = if is_link_local { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
        let mut body = vec![family as u8, prefix_length, flags, scope];
        body.extend(index.to_ne_bytes());
        let mut request = Self(body);
        for (kind, address) in [(IFA_LOCAL, local), (IFA_ADDRESS, peer.unwrap_or(local))] {
            match address {
                IpAddr::V4(v4) => request.attribute(kind, &v4.octets()),
                IpAddr::V6(v6) => request.attribute(kind, &v6.octets()),
            }
        }
        request
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), b"\0"].concat());
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self(Vec::new());
        fill(&mut inner);
        self.attribute(kind, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_their_length_is_not() {
        let mut request = Request(Vec::new());
        request.nested(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "veth"));
        let words: Vec<_> = request.0.chunks(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
        assert_eq!((request.0.len(), &words[..4]), (16, &[16, IFLA_LINKINFO, 9, IFLA_INFO_KIND][..]));
        assert_eq!(&request.0[8..], b"veth\0\0\0\0");
    }

    #[test]
    fn an_answer_to_another_request_is_skipped() {
        let answer = |kind: i32, sequence: u32, error: i32| {
            let mut answer = vec![0; HEADER_BYTES];
            answer[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
            answer[8..12].copy_from_slice(&sequence.to_ne_bytes());
            answer.extend(error.to_ne_bytes());
            answer
        };
        assert!(outcome(&answer(libc::NLMSG_ERROR, 6, 0), 7).is_none());
        assert!(outcome(&answer(libc::NLMSG_DONE, 7, 0), 7).is_none());
        assert!(outcome(&answer(libc::NLMSG_ERROR, 7, 0), 7).is_some_and(|outcome| outcome.is_ok()));
        let refused = outcome(&answer(libc::NLMSG_ERROR, 7, -libc::EPERM), 7).unwrap().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert!(outcome(&answer(libc::NLMSG_ERROR, 7, 0)[..18], 7).is_none());
    }
}
