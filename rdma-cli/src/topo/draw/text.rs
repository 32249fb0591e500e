//! A cabling for the terminal

use rdma_sim::topology::Topology;

use crate::report::{line_rate, plain, table};

pub(in crate::topo) fn text(topology: &Topology) -> String {
    let links: Vec<_> = topology.links().collect();
    let rows = topology.hosts().iter().flat_map(|host| {
        let links = &links;
        host.ports().iter().map(move |port| {
            let end = links.iter().find_map(|link| {
                let is_here =
                    |end: usize| link.ends[end].host == host.name() && link.ends[end].device == port.device();
                (0..2).find(|end| is_here(*end)).map(|end| (link, &link.ends[1 - end]))
            });
            let (to, rate) = match end {
                Some((link, end)) => {
                    (format!("── {}:{}", end.host, end.device), line_rate(link.rate.bits_per_second))
                }
                None => ("free".to_owned(), String::new()),
            };
            [plain(&format!("{}:{}", host.name(), port.device())), plain(&to), rate]
        })
    });
    table(rows) + "\n"
}
