//! Carriers of bytes between two machines: RDMA where both have it, TCP elsewhere

use std::net::SocketAddr;
use std::num::NonZeroU128;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdma_async::{AnyDevice, LinkId, Node, NodeBuilder, NodeOptions, Session};
use rdma_doctor::HostReport;
use rdma_doctor::report::DeviceSummary;
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use rdma_tcp::{TcpDevice, TcpOptions};
use serde::Serialize;
use tokio::time::sleep;

use crate::args::Carrier;
use crate::report::{repairs, with_sources};
use crate::signals::Interrupted;
use crate::{path_counts, recorded};

/// Number of checks whether a session has all kinds of paths, before it is used with those that it has.
const LOOKS: u32 = 30;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The rate that is stated for TCP beside RDMA, in bits per second: so low that TCP is used only while no cable works.
const RESERVE: u64 = 1_000_000;

/// A device with RDMA, and the cable in its port
struct RdmaDevice {
    provider: Arc<Provider>,
    name: String,
    link: Option<LinkId>,
}

/// The devices of this machine that may be used
pub(crate) struct Carriers {
    rdma: Vec<RdmaDevice>,
    uses_tcp: bool,
    /// Why there is no RDMA, if there is none
    absent: String,
}

/// Devices that carried a session, and repairs of its paths
#[derive(Debug, Serialize)]
pub(crate) struct Carried {
    /// The devices of this side with a path to the peer at the end, or at the beginning if the peer has ended the session first; `tcp` is not RDMA
    pub(crate) devices: Vec<String>,
    /// Number of times that the path of a cable was made again
    pub(crate) reconnects: u32,
    pub(crate) retransmitted_bytes: u64,
}

impl Carried {
    /// The name of the device over TCP, and the backend of a session without a path over a cable
    pub(crate) const TCP: &str = "tcp";
    /// The backend of a session with a path over a cable
    pub(crate) const RDMA: &str = "rdma";

    pub(crate) fn over(session: &Session<AnyDevice>) -> Self {
        let paths = session.snapshot().paths;
        Self {
            reconnects: path_counts::reconnects(&paths),
            retransmitted_bytes: path_counts::retransmitted_bytes(&paths),
            devices: paths.into_iter().filter_map(|path| path.device).collect(),
        }
    }

    /// The backend in JSON output
    pub(crate) fn backend(&self) -> &'static str {
        if self.devices.iter().any(|name| name != Self::TCP) { Self::RDMA } else { Self::TCP }
    }

    pub(crate) fn describe(&self) -> String {
        format!("paths {}", repairs(self.reconnects, self.retransmitted_bytes))
    }
}

impl Carriers {
    /// Looks for what `carrier` allows
    pub(crate) fn find(carrier: Carrier) -> Result<Self> {
        let uses_tcp = carrier != Carrier::Rdma;
        let (rdma, absent) = match carrier {
            Carrier::Tcp => (Vec::new(), "as --carrier says".to_owned()),
            Carrier::Auto | Carrier::Rdma => match active_devices() {
                Ok(devices) => (devices, String::new()),
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => (Vec::new(), with_sources(&error)),
            },
        };
        if rdma.is_empty() && !uses_tcp {
            bail!("no RDMA device can be used: {absent}");
        }
        Ok(Self { rdma, uses_tcp, absent })
    }

    /// A node on all of them; `local` is the address that the peer knows this machine by
    pub(crate) fn node(&self, local: SocketAddr, options: NodeOptions) -> Result<Node<AnyDevice>> {
        let mut builder: Option<NodeBuilder<AnyDevice>> = None;
        for RdmaDevice { provider, name, link } in &self.rdma {
            let (provider, name, link) = (Arc::clone(provider), name.clone(), *link);
            let open = move || VerbsDevice::open(&provider, &name, OpenOptions::new()).map(AnyDevice::new);
            let with_device = match builder {
                None => Node::builder(open),
                Some(builder) => builder.device(open),
            };
            builder = Some(with_device.link(move || link));
        }
        if self.uses_tcp {
            let mut address = local;
            address.set_port(0);
            let tcp = TcpOptions::new().name(Carried::TCP);
            let tcp = if self.rdma.is_empty() { tcp } else { tcp.bits_per_second(RESERVE) };
            let open = move || TcpDevice::bind(address, tcp.clone()).map(AnyDevice::new);
            builder = Some(match builder {
                None => Node::builder(open),
                Some(builder) => builder.device(open),
            });
        }
        builder.context("there is no device")?.options(options).build().context("the devices cannot be used")
    }

    /// Text that names the carrier of `session`, and the reason
    ///
    /// A session begins with its first path: waits for a moment for those over a cable and over TCP.
    pub(crate) async fn describe(&self, session: &Session<AnyDevice>) -> String {
        let has_both = || {
            let carried = Carried::over(session);
            let has_tcp = carried.devices.iter().any(|name| name == Carried::TCP);
            carried.backend() == Carried::RDMA && (has_tcp || !self.uses_tcp)
        };
        for _ in 0..LOOKS {
            if self.rdma.is_empty() || has_both() {
                break;
            }
            sleep(LOOK_INTERVAL).await;
        }
        let devices = Carried::over(session).devices;
        let (tcp, rdma): (Vec<_>, Vec<_>) =
            devices.iter().map(String::as_str).partition(|name| *name == Carried::TCP);
        match (&*rdma, &*tcp) {
            ([], _) if self.rdma.is_empty() => format!("TCP ({})", self.absent),
            ([], _) => "TCP (no cable to the other machine was found yet, or it uses TCP alone)".to_owned(),
            (rdma, []) => format!("RDMA over {}", rdma.join(", ")),
            (rdma, _) => format!("RDMA over {}; TCP while no cable works", rdma.join(", ")),
        }
    }
}

/// The active devices of this machine, with the names of their cables
///
/// They are listed by another process, because a wedged driver hangs or crashes the one that asks.
fn active_devices() -> Result<Vec<RdmaDevice>> {
    let host = recorded::this_machine()?;
    let devices =
        host.report.devices.as_deref().context("the RDMA devices could not be listed: try `tb5 doctor`")?;
    if devices.is_empty() {
        bail!("this machine has no RDMA device");
    }
    let active = devices.iter().filter(|device| device.active_ports().next().is_some());
    let active: Vec<_> = active.map(|device| (device.name.clone(), link(&host.report, device))).collect();
    if active.is_empty() {
        bail!("no port of an RDMA device of this machine is active");
    }
    let provider = Provider::load()?;
    let device = |(name, link)| RdmaDevice { provider: Arc::clone(&provider), name, link };
    Ok(active.into_iter().map(device).collect())
}

/// The name of the cable in the port of `device`: of the Thunderbolt domains at both ends
fn link(host: &HostReport, device: &DeviceSummary) -> Option<LinkId> {
    let bus = host.bus_of(device)?;
    let mut peers = bus.hosts();
    let (peer, None) = (peers.next()?, peers.next()) else { return None };
    let mut ends = [bus.domain_uuid.as_deref()?, peer.domain_uuid.as_deref()?].map(str::to_ascii_lowercase);
    ends.sort();
    let hash = blake3::hash(ends.concat().as_bytes());
    let name = hash.as_bytes().first_chunk().map(|name| u128::from_le_bytes(*name));
    name.and_then(NonZeroU128::new).map(LinkId)
}
