//! A cabling in the language of Graphviz

use std::fmt::Write as _;

use rdma_sim::topology::Topology;

pub(super) fn dot(topology: &Topology) -> String {
    let mut text = String::from("graph cabling {\n  node [shape=record];\n");
    // Writing to a string does not fail.
    for host in topology.hosts() {
        let ports: Vec<_> = host.ports().iter().map(|port| format!("<{0}> {0}", port.interface())).collect();
        let _ = writeln!(
            text,
            "  {} [label=\"{}|{{{}}}\"];",
            quoted(host.name()),
            escaped(host.name()),
            ports.join("|")
        );
    }
    for link in topology.links() {
        let [left, right] = link.ends.map(|end| {
            let interface = end.device.strip_prefix("rdma_").unwrap_or(end.device);
            format!("{}:{interface}", quoted(end.host))
        });
        let gigabits = link.rate.bits_per_second / 1_000_000_000;
        let _ = writeln!(text, "  {left} -- {right} [label=\"{gigabits} Gb/s\"];");
    }
    text + "}\n"
}

/// A name between quotation marks
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A name in the label of a record
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|letter| ["\\", ""][usize::from(!"{}|<>\"\\ ".contains(letter))].chars().chain([letter]))
        .collect()
}
