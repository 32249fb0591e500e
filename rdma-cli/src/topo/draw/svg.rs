//! A cabling as a picture: Macs on a circle, their ports at the sides where cables leave

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::Write as _;

use rdma_sim::topology::{Link, Topology};

use crate::html::escaped;

/// Half the width of a Mac with a short name, and half the height of every Mac.
const MAC: [f64; 2] = [58.0, 34.0];
/// Half the width of a letter: of the name of a Mac, and of a port.
const LETTER: [f64; 2] = [3.8, 3.2];
/// From the middle of a Mac to its ports, beyond its sides.
const PORT: f64 = 9.0;
/// Between the cables that join the same two Macs.
const SPREAD: f64 = 26.0;
/// Between two labels, and between a label and the side of its Mac.
const GAP: f64 = 7.0;
/// Room for labels outside of the Macs.
const MARGIN: f64 = 26.0;

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
    let sizes = Sizes::of(topology);
    let middles = middles(hosts.len(), sizes.mac[0]);
    let index = |name: &str| hosts.iter().position(|host| host.name() == name).unwrap_or_default();
    let [x, y] = [0, 1].map(|axis| {
        let extent = middles.iter().map(|middle| middle[axis].abs()).fold(0.0, f64::max);
        extent + sizes.mac[axis] + MARGIN
    });
    let [width, height] = [2.0 * x, 2.0 * y];
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cabling\" role=\"img\" aria-label=\"{} Macs and {} cables\" viewBox=\"{:.0} {:.0} {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\"><style>{STYLE}</style>\n",
        hosts.len(),
        topology.links().len(),
        -x,
        -y
    );
    let links: Vec<_> = topology.links().collect();
    let mut used: BTreeMap<[&str; 2], ()> = BTreeMap::new();
    let mut ports = String::new();
    // Writing to a string does not fail.
    for (number, link) in links.iter().enumerate() {
        let ends = link.ends.each_ref().map(|end| middles[index(end.host)]);
        let offset = offset(&links, number);
        let at = [port(ends[0], ends[1], offset, sizes.mac), port(ends[1], ends[0], -offset, sizes.mac)];
        let cut = if unplugged == Some(number) { " cut" } else { "" };
        let [[x1, y1], [x2, y2]] = at;
        let title = link.ends.each_ref().map(|end| escaped(&format!("{}:{}", end.host, end.device)));
        let gigabits = link.rate.bits_per_second / 1_000_000_000;
        let _ = writeln!(
            out,
            "<path class=\"cable{cut}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"><title>{} – {}, {gigabits} Gb/s</title></path>",
            title[0], title[1]
        );
        for (end, [x, y]) in link.ends.iter().zip(at) {
            used.insert([end.host, end.device], ());
            let middle = middles[index(end.host)];
            let name = escaped(label(end.device));
            let _ = write!(ports, "<circle class=\"port{cut}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>");
            let inside_x = inner(x, middle[0], sizes.mac[0], GAP + sizes.port);
            let inside_y = inner(y, middle[1], sizes.mac[1], 11.0);
            let _ = writeln!(
                ports,
                "<text class=\"small\" x=\"{inside_x:.1}\" y=\"{inside_y:.1}\">{name}</text>"
            );
        }
    }
    for (host, [x, y]) in hosts.iter().zip(&middles) {
        let [width, height] = sizes.mac;
        let (left, top) = (x - width, y - height);
        let free =
            host.ports().iter().filter(|port| !used.contains_key(&[host.name(), port.device()])).count();
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
    out + &ports + "</svg>\n"
}

/// Halves of widths and heights
struct Sizes {
    mac: [f64; 2],
    /// The width of the longest label of a port
    port: f64,
}

impl Sizes {
    /// A Mac has room for its name with the label of a port on each side
    fn of(topology: &Topology) -> Self {
        let hosts = topology.hosts();
        let name = LETTER[0] * longest(hosts.iter().map(|host| host.name()));
        let ports = hosts.iter().flat_map(|host| host.ports());
        let port = LETTER[1] * longest(ports.map(|port| label(port.device())));
        Self { mac: [MAC[0].max(name + 2.0 * (port + GAP)), MAC[1]], port }
    }
}

/// The letters of the longest text
fn longest<'a>(texts: impl Iterator<Item = &'a str>) -> f64 {
    texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
}

/// What is written beside a port
fn label(device: &str) -> &str {
    device.strip_prefix("rdma_").unwrap_or(device)
}

/// Where the Macs are: two beside each other, more on a circle
fn middles(count: usize, half_width: f64) -> Vec<[f64; 2]> {
    let radius = if count < 2 { 0.0 } else { (75.0 / (TAU / 2.0 / count as f64).sin()).max(125.0) };
    // The first of four is at the upper left, so that most cables are level or upright.
    let first = match count {
        2 => TAU / 2.0,
        4 => TAU * 0.625,
        _ => TAU * 0.75,
    };
    let at = |number| first + TAU * number as f64 / count.max(1) as f64;
    let across = match count {
        2 => 1.25 * radius + half_width - MAC[0],
        _ => 1.25 * radius * half_width / MAC[0],
    };
    (0..count).map(|number| [across * f64::cos(at(number)), radius * f64::sin(at(number))]).collect()
}

/// How far a cable is from the line between its Macs, seen from its first one
fn offset(links: &[Link<'_>], number: usize) -> f64 {
    let names = |link: &Link<'_>| {
        let mut names = link.ends.each_ref().map(|end| end.host.to_owned());
        names.sort();
        names
    };
    let own = names(&links[number]);
    let same: Vec<_> = (0..links.len()).filter(|other| names(&links[*other]) == own).collect();
    let place = same.iter().position(|other| *other == number).unwrap_or_default() as f64;
    let offset = (place - (same.len() - 1) as f64 / 2.0) * SPREAD;
    if links[number].ends[0].host == own[0] { offset } else { -offset }
}

/// Where a cable from the Mac at `from` to the one at `to` leaves
fn port(from: [f64; 2], to: [f64; 2], offset: f64, mac: [f64; 2]) -> [f64; 2] {
    let direction = [to[0] - from[0], to[1] - from[1]];
    let length = f64::hypot(direction[0], direction[1]).max(1.0);
    let [along_x, along_y] = direction.map(|part| part / length);
    let [start_x, start_y] = [from[0] - along_y * offset, from[1] + along_x * offset];
    // The side that is reached first, with a little distance.
    let reach = |along: f64, half: f64| if along.abs() < 1e-9 { f64::INFINITY } else { half / along.abs() };
    let reach = reach(along_x, mac[0]).min(reach(along_y, mac[1]));
    let reach = reach.min(length / 2.0) + PORT - 4.0;
    [start_x + along_x * reach, start_y + along_y * reach]
}

/// A place inside of a Mac, beside the port
fn inner(port: f64, middle: f64, half: f64, inset: f64) -> f64 {
    let from_middle = port - middle;
    middle + from_middle.clamp(inset - half, half - inset)
}
