//! The Macs and cables of a scenario

use rdma_sim::{LineRate, Topology};
use serde::Deserialize;
use toml::Spanned;

use super::scenario::Wrong;

/// `[topology]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyTable {
    host: Vec<HostTable>,
    #[serde(default)]
    cable: Vec<CableTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Spanned<String>,
    ports: Spanned<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CableTable {
    ends: [Spanned<String>; 2],
    gbps: Option<Spanned<u64>>,
}

const MAX_HOSTS: usize = 250;
const MAX_PORTS: usize = 8;

/// The topology that a table describes
pub(super) fn topology(table: &TopologyTable) -> Result<Topology, Wrong> {
    if table.host.len() > MAX_HOSTS {
        let last = &table.host[MAX_HOSTS].name;
        return Err(Wrong::at(last, format!("there are more than {MAX_HOSTS} hosts")));
    }
    let mut topology = Topology::new();
    for (number, HostTable { name, ports }) in table.host.iter().enumerate() {
        let host = name.get_ref().as_str();
        if host.is_empty() || host.contains(|c: char| c == ':' || c == ';' || c.is_whitespace()) {
            return Err(Wrong::at(
                name,
                format!("{host:?} names no host: leave out spaces, colons and semicolons"),
            ));
        }
        if table.host[..number].iter().any(|other| other.name.get_ref() == host) {
            return Err(Wrong::at(
                name,
                format!("there is a host {host:?} already: give this one another name"),
            ));
        }
        if !(1..=MAX_PORTS).contains(ports.get_ref()) {
            return Err(Wrong::at(ports, format!("a Mac has 1 to {MAX_PORTS} ports")));
        }
        topology = topology.host(host, *ports.get_ref());
    }
    let mut used = Vec::new();
    for CableTable { ends, gbps } in &table.cable {
        let [a, b] = [end(table, &ends[0])?, end(table, &ends[1])?];
        if a.0 == b.0 {
            return Err(Wrong::at(&ends[1], "both ends are at one host: a cable joins two"));
        }
        for (found, written) in [(a, &ends[0]), (b, &ends[1])] {
            if used.contains(&found) {
                return Err(Wrong::at(
                    written,
                    format!("port {:?} has a cable already: use another one", written.get_ref()),
                ));
            }
            used.push(found);
        }
        let rate = match gbps {
            None => LineRate::TB5,
            Some(gbps) => match gbps.get_ref() {
                80 => LineRate::TB5,
                40 => LineRate::TB4,
                other => {
                    return Err(Wrong::at(gbps, format!("no cable carries {other} Gb/s: write 80 or 40")));
                }
            },
        };
        topology = topology.cable(a, b, rate);
    }
    Ok(topology)
}

/// Host and position of the port that the end of a cable names
fn end<'a>(table: &'a TopologyTable, end: &Spanned<String>) -> Result<(&'a str, usize), Wrong> {
    let text = end.get_ref().as_str();
    let missing = |why: String| Wrong::at(end, why);
    let Some((host, device)) = text.split_once(':') else {
        return Err(missing(format!("{text:?} is no port: write HOST:DEVICE, such as a:rdma_en2")));
    };
    let Some(found) = table.host.iter().find(|found| found.name.get_ref() == host) else {
        return Err(missing(format!("{text:?}: there is no host {host:?}")));
    };
    let ports = *found.ports.get_ref();
    let position = (0..ports).find(|port| device == format!("rdma_en{}", port + 2));
    let Some(position) = position else {
        return Err(missing(format!("{text:?}: host {host:?} has rdma_en2 to rdma_en{}", ports + 1)));
    };
    Ok((found.name.get_ref(), position))
}
