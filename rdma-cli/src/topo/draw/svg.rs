//! A cabling as a picture: Macs on a circle, their ports at the sides where cables leave

use std::collections::BTreeSet;

use std::fmt::Write as _;

use rdma_sim::topology::Topology;

use super::layout::{Layout, label};
use super::rates::{Label, rates};
use crate::html::escaped;

/// Room for labels outside of the Macs.
const MARGIN: f64 = 26.0;

/// An edge around the letters of a label that lies on a cable.
const OUTLINE: &str = "paint-order: stroke; stroke: var(--box); stroke-width: 5px";

const STYLE: &str = "
svg.cabling { font: 500 13px system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif; --ink: #22262b; --soft: #5d6670; --box: #ffffff; --edge: #c8c4ba; --wire: #2f64a8; --cut: #b4481f; }
@media (prefers-color-scheme: dark) { svg.cabling { --ink: #e6e8ea; --soft: #9ea7b1; --box: #1d2126; --edge: #454c55; --wire: #7db0ee; --cut: #f08a5d; } }
svg.cabling .mac { fill: var(--box); stroke: var(--edge); }
svg.cabling .cable { stroke: var(--wire); stroke-width: 2.5; fill: none; }
svg.cabling .cable.cut { stroke: var(--cut); stroke-dasharray: 6 5; }
svg.cabling .port { fill: var(--wire); }
svg.cabling .port.cut { fill: var(--cut); }
svg.cabling .port.free { fill: var(--box); stroke: var(--edge); }
svg.cabling text { fill: var(--ink); text-anchor: middle; dominant-baseline: central; }
svg.cabling text.small { fill: var(--soft); font-weight: 400; font-size: 11px; }
";

/// The cabling; one cable, by its number, is drawn as pulled
pub(crate) fn svg(topology: &Topology, unplugged: Option<usize>) -> String {
    let hosts = topology.hosts();
    let links: Vec<_> = topology.links().collect();
    let Layout { middles, ends, mac, label_width } = Layout::of(topology, &links);
    let [x, y] = [0, 1].map(|axis| {
        let extent = middles.iter().map(|middle| middle[axis].abs()).fold(0.0, f64::max);
        extent + mac[axis] + MARGIN
    });
    let [width, height] = [2.0 * x, 2.0 * y];
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cabling\" role=\"img\" aria-label=\"{} Macs and {} cables\" viewBox=\"{:.0} {:.0} {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\"><style>{STYLE}</style>\n",
        hosts.len(),
        links.len(),
        -x,
        -y
    );
    let mut used: BTreeSet<[&str; 2]> = BTreeSet::new();
    let mut ports = String::new();
    let cables: Vec<_> = ends.iter().map(|ends| ends.map(|end| end.port(&middles, mac))).collect();
    // Writing to a string does not fail.
    for (number, link) in links.iter().enumerate() {
        let cut = if unplugged == Some(number) { " cut" } else { "" };
        let [[x1, y1], [x2, y2]] = cables[number];
        let title = link.ends.each_ref().map(|end| escaped(&format!("{}:{}", end.host, end.device)));
        let gigabits = link.rate.bits_per_second / 1_000_000_000;
        let _ = writeln!(
            out,
            "<path class=\"cable{cut}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"><title>{} – {}, {gigabits} Gb/s</title></path>",
            title[0], title[1]
        );
        for (end, place) in link.ends.iter().zip(ends[number]) {
            used.insert([end.host, end.device]);
            let ([x, y], [inside_x, inside_y]) =
                (place.port(&middles, mac), place.label(&middles, mac, label_width));
            let name = escaped(label(end.device));
            let _ = writeln!(
                ports,
                "<circle class=\"port{cut}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/><text class=\"small\" x=\"{inside_x:.1}\" y=\"{inside_y:.1}\">{name}</text>"
            );
        }
    }
    for (host, [x, y]) in hosts.iter().zip(&middles) {
        let [width, height] = mac;
        let (left, top) = (x - width, y - height);
        let free = host.ports().iter().filter(|port| !used.contains(&[host.name(), port.device()])).count();
        let _ = writeln!(
            out,
            "<rect class=\"mac\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.0}\" height=\"{:.0}\" rx=\"11\"/><text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            2.0 * width,
            2.0 * height,
            escaped(host.name())
        );
        if free > 0 {
            // On the outer side: cables leave on the inner one.
            let _ = writeln!(
                out,
                "<text class=\"small\" x=\"{x:.1}\" y=\"{:.1}\">{free} free</text>",
                y + if *y < -height { -height - 12.0 } else { height + 12.0 }
            );
        }
    }
    for Label { text, middle: [x, y] } in rates(&links, &cables) {
        let _ = writeln!(
            ports,
            "<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\" style=\"{OUTLINE}\">{text}</text>"
        );
    }
    out + &ports + "</svg>\n"
}
