use super::bounds::{keep, lines, number, short};
use crate::report::{DeviceSummary, GidEntry, Port};

/// Reads `ibv_devinfo`, with or without `-v`
///
/// `hca_id:` begins a device, `port:` one of its ports; the indentation is ignored. Sources of the fields: Apple TN3205, and
/// rdma-core for those of `-v`. Only `-v` prints the GID table, so without an entry it is not known whether there is none.
pub fn ibv_devinfo(text: &str) -> Vec<DeviceSummary> {
    let mut devices: Vec<DeviceSummary> = Vec::new();
    let mut kept = false;
    let mut verbose = false;
    for line in lines(text) {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "hca_id" {
            kept = keep(&mut devices, DeviceSummary::named(short(value)));
        } else if let Some(device) = devices.last_mut()
            && kept
        {
            verbose |= key == "max_qp" || key.starts_with("GID[");
            field(device, key, value);
        }
    }
    if verbose {
        for port in devices.iter_mut().flat_map(|device| &mut device.ports) {
            port.gids.get_or_insert_default();
        }
    }
    devices
}

fn field(device: &mut DeviceSummary, key: &str, value: &str) {
    match key {
        "max_cq" => device.max_cq = number(value),
        "max_mr" => device.max_mr = number(value),
        "max_mr_size" => device.max_mr_size = number(value),
        "max_pd" => device.max_pd = number(value),
        "max_qp" => device.max_qp = number(value),
        "max_sge" => device.max_sge = number(value),
        "node_guid" => device.node_guid = text(value),
        "port" => {
            let number = number(value).and_then(|number| number.try_into().ok()).unwrap_or_default();
            keep(&mut device.ports, Port { number, ..Port::default() });
        }
        "transport" => device.transport = text(value),
        _ => {
            if let Some(port) = device.ports.last_mut() {
                port_field(port, key, value);
            }
        }
    }
}

fn port_field(port: &mut Port, key: &str, value: &str) {
    let narrow = |value| number(value).and_then(|number| number.try_into().ok());
    match key {
        "active_mtu" => port.active_mtu = narrow(value),
        "active_speed" => port.active_speed = text(value),
        "active_width" => port.active_width = text(value),
        "link_layer" => port.link_layer = text(value),
        "max_msg_sz" => port.max_msg_sz = number(value),
        "max_mtu" => port.max_mtu = narrow(value),
        "state" => port.state = value.split_whitespace().next().map(short),
        _ => {
            let index = key.strip_prefix("GID[").and_then(|rest| rest.strip_suffix(']'));
            if let Some(index) = index.and_then(|index| index.trim().parse().ok())
                && let Some(gid) = gid(value)
            {
                keep(port.gids.get_or_insert_default(), GidEntry { index, gid });
            }
        }
    }
}

/// An address, perhaps with a type after it; entries that are not set are all zero
fn gid(value: &str) -> Option<std::net::Ipv6Addr> {
    let address = value.split([',', ' ', '\t']).next()?;
    address.parse().ok().filter(|gid: &std::net::Ipv6Addr| !gid.is_unspecified())
}

fn text(value: &str) -> Option<String> {
    Some(short(value)).filter(|text| !text.is_empty())
}
