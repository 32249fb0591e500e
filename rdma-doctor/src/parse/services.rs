use super::bounds::{keep, lines, short};

/// The services that a peer advertises over Thunderbolt
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PeerServices {
    /// Domain of the peer
    pub domain_uuid: String,
    /// Whether the service `rdma` is one of them
    pub rdma: bool,
}

/// Reads the services of peers from `system_profiler SPThunderboltDataType`, the text form
///
/// Only the text form is known to list them: below the domain of a peer, `Services:` with a block for each, of which one has
/// `Protocol ID: 64087` and `Service Key: rdma`. A domain without `Services:` is left out: its services are unknown.
/// Source: exo-explore/exo#1390.
pub fn services(text: &str) -> Vec<PeerServices> {
    let mut found: Vec<PeerServices> = Vec::new();
    let mut domain: Option<String> = None;
    let mut listed = false;
    for line in lines(text) {
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "Domain UUID" => {
                domain = Some(short(value));
                listed = false;
            }
            // A new device begins with its maker.
            "Vendor Name" => {
                domain = None;
                listed = false;
            }
            "Services" => {
                if let Some(domain_uuid) = domain.take() {
                    keep(&mut found, PeerServices { domain_uuid, rdma: false });
                    listed = true;
                }
            }
            "Protocol ID" | "Service Key" if listed => {
                if (value == "64087" || value.eq_ignore_ascii_case("rdma"))
                    && let Some(peer) = found.last_mut()
                {
                    peer.rdma = true;
                }
            }
            _ => {}
        }
    }
    found
}
