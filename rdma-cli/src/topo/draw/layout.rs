//! Where the Macs, ports and labels of a drawing are

use std::f64::consts::TAU;

use rdma_sim::topology::{Link, Topology};

/// A place, right and down
pub(super) type Point = [f64; 2];

/// Half the width of a Mac with a short name and few ports, and half its height.
const MAC: [f64; 2] = [58.0, 34.0];
/// Half the width of a letter: of the name of a Mac, and of a port.
const LETTER: [f64; 2] = [3.8, 3.2];
/// From the side of a Mac to the middle of its ports.
const PORT: f64 = 5.0;
/// Between the cables that join the same two Macs.
const SPREAD: f64 = 26.0;
/// Between two labels, and between a label and the side of its Mac.
const GAP: f64 = 7.0;
/// The height of the label of a port, with the space to the next one.
const LINE: f64 = 13.0;
/// From the upper and the lower side of a Mac to the middle of the labels there.
const INSET: f64 = 11.0;

/// Where everything is; the middle of the drawing is at 0
pub(super) struct Layout {
    /// The middle of each Mac
    pub(super) middles: Vec<Point>,
    /// The ends of each cable
    pub(super) ends: Vec<[End; 2]>,
    /// Halves of the width and height of a Mac
    pub(super) mac: Point,
    /// Half the width of the longest label of a port
    pub(super) label_width: f64,
}

/// One end of a cable
#[derive(Clone, Copy)]
pub(super) struct End {
    host: usize,
    /// The axis along which the cable leaves: 0 to the left or right, 1 up or down
    axis: usize,
    /// 1 for the right or lower side, -1 for the others
    sign: f64,
    /// The place along the side, from its middle
    along: f64,
}

impl End {
    fn place(self, middles: &[Point], mac: Point, inset: f64) -> Point {
        let mut place = middles[self.host];
        place[self.axis] += self.sign * (mac[self.axis] - inset);
        place[1 - self.axis] += self.along;
        place
    }

    /// The middle of the port
    pub(super) fn port(self, middles: &[Point], mac: Point) -> Point {
        self.place(middles, mac, -PORT)
    }

    /// The middle of the label of the port, inside of the Mac
    pub(super) fn label(self, middles: &[Point], mac: Point, label_width: f64) -> Point {
        self.place(middles, mac, if self.axis == 0 { GAP + label_width } else { INSET })
    }
}

impl Layout {
    pub(super) fn of(topology: &Topology, links: &[Link<'_>]) -> Self {
        let hosts = topology.hosts();
        let index = |name: &str| hosts.iter().position(|host| host.name() == name).unwrap_or_default();
        let pairs = links.iter().map(|link| link.ends.each_ref().map(|end| index(end.host)));
        let pairs: Vec<[usize; 2]> = pairs.collect();
        let label_width =
            LETTER[1] * longest(hosts.iter().flat_map(|host| host.ports()).map(|port| label(port.device())));
        let name_width = LETTER[0] * longest(hosts.iter().map(|host| host.name()));

        // Macs and their distances grow alike: the sides at which cables leave stay the same.
        let small = middles(hosts.len(), MAC);
        let mut ends: Vec<_> = (0..pairs.len()).map(|number| ends(&small, &pairs, number)).collect();
        let mut mac = [MAC[0].max(name_width + 2.0 * (label_width + GAP)), MAC[1]];
        let sides: Vec<_> =
            (0..hosts.len()).flat_map(|host| SIDES.map(|side| Side::of(host, side, &ends))).collect();
        for side in &sides {
            let across = side.gap(label_width) * (side.ends.len().max(1) - 1) as f64 / 2.0;
            mac[1 - side.axis] = mac[1 - side.axis].max(across + side.inset(label_width));
        }
        let middles = middles(hosts.len(), mac);
        let scale = [mac[0] / MAC[0], mac[1] / MAC[1]];
        for side in sides {
            let room = mac[1 - side.axis] - side.inset(label_width);
            let ideal = side.ends.iter().map(|&(link, end)| ends[link][end].along * scale[1 - side.axis]);
            let ideal: Vec<_> = ideal.collect();
            let places = spread(&ideal, side.gap(label_width), room);
            for ((link, end), along) in side.ends.into_iter().zip(places) {
                ends[link][end].along = along;
            }
        }
        Self { middles, ends, mac, label_width }
    }
}

/// The sides of a Mac: axis and sign
const SIDES: [(usize, f64); 4] = [(0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0)];

/// The ends of cables at one side of a Mac
struct Side {
    axis: usize,
    /// Cables and which of their ends, along the side
    ends: Vec<(usize, usize)>,
    /// Whether cables leave the same Mac up or down
    has_upright: bool,
}

impl Side {
    fn of(host: usize, (axis, sign): (usize, f64), all: &[[End; 2]]) -> Self {
        let ends = all.iter().enumerate().flat_map(|(link, ends)| [(link, 0, ends[0]), (link, 1, ends[1])]);
        let of_host: Vec<_> = ends.filter(|(.., end)| end.host == host).collect();
        let has_upright = of_host.iter().any(|(.., end)| end.axis == 1);
        let mut here: Vec<_> =
            of_host.into_iter().filter(|(.., end)| end.axis == axis && end.sign == sign).collect();
        here.sort_by(|(.., a), (.., b)| a.along.total_cmp(&b.along));
        Self { axis, ends: here.into_iter().map(|(link, end, _)| (link, end)).collect(), has_upright }
    }

    /// The least distance of two labels
    fn gap(&self, label_width: f64) -> f64 {
        if self.axis == 0 { LINE } else { 2.0 * label_width + GAP }
    }

    /// From the ends of the side to the first label: labels of the upper and lower side are there as well
    fn inset(&self, label_width: f64) -> f64 {
        match self.axis {
            0 => INSET + if self.has_upright { LINE } else { 0.0 },
            _ => GAP + label_width,
        }
    }
}

/// Where the Macs are: two beside each other, more on a circle
fn middles(count: usize, mac: Point) -> Vec<Point> {
    let radius = if count < 2 { 0.0 } else { (75.0 / (TAU / 2.0 / count as f64).sin()).max(125.0) };
    // The first of four is at the upper left, so that most cables are level or upright.
    let first = match count {
        2 => TAU / 2.0,
        4 => TAU * 0.625,
        _ => TAU * 0.75,
    };
    let at = |number| first + TAU * number as f64 / count.max(1) as f64;
    let across = match count {
        2 => 1.25 * radius + mac[0] - MAC[0],
        _ => 1.25 * radius * mac[0] / MAC[0],
    };
    let down = radius * mac[1] / MAC[1];
    (0..count).map(|number| [across * f64::cos(at(number)), down * f64::sin(at(number))]).collect()
}

/// Where a cable leaves its Macs if nothing else does, but for others between the same two
fn ends(middles: &[Point], pairs: &[[usize; 2]], number: usize) -> [End; 2] {
    let [first, second] = pairs[number];
    let offset = offset(pairs, number);
    [end(middles, first, second, offset), end(middles, second, first, -offset)]
}

fn end(middles: &[Point], host: usize, other: usize, offset: f64) -> End {
    let [from, to] = [host, other].map(|host| middles[host]);
    let direction = [to[0] - from[0], to[1] - from[1]];
    let length = f64::hypot(direction[0], direction[1]).max(1.0);
    let unit = direction.map(|part| part / length);
    // The side that is reached first.
    let axis = usize::from(unit[0].abs() * MAC[1] < unit[1].abs() * MAC[0]);
    let reach = MAC[axis] / unit[axis].abs().max(f64::MIN_POSITIVE);
    let across = if axis == 0 { offset * unit[0] } else { -offset * unit[1] };
    End { host, axis, sign: unit[axis].signum(), along: reach * unit[1 - axis] + across }
}

/// Distance of a cable from the line between its Macs, seen from its first one
fn offset(pairs: &[[usize; 2]], number: usize) -> f64 {
    let [first, second] = pairs[number];
    let same =
        pairs.iter().enumerate().filter(|(_, pair)| **pair == [first, second] || **pair == [second, first]);
    let same: Vec<_> = same.map(|(other, _)| other).collect();
    let place = same.iter().position(|other| *other == number).unwrap_or_default() as f64;
    let offset = (place - (same.len() - 1) as f64 / 2.0) * SPREAD;
    if first < second { offset } else { -offset }
}

/// The places nearest to the ideal ones, which ascend, that are `gap` apart and at most `room` from the middle
fn spread(ideal: &[f64], gap: f64, room: f64) -> Vec<f64> {
    // Without the gaps, places have to ascend: those that do not are replaced by their mean, again and again.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for (number, place) in ideal.iter().enumerate() {
        runs.push((place - number as f64 * gap, 1));
        while let [.., (mean, count), (last_mean, last_count)] = runs[..]
            && mean > last_mean
        {
            runs.truncate(runs.len() - 2);
            let (all, last) = (count as f64, last_count as f64);
            runs.push(((mean * all + last_mean * last) / (all + last), count + last_count));
        }
    }
    let most = (room - (ideal.len().max(1) - 1) as f64 * gap).max(-room);
    let places =
        runs.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean.clamp(-room, most), count));
    places.enumerate().map(|(number, place)| place + number as f64 * gap).collect()
}

/// The letters of the longest text
fn longest<'a>(texts: impl Iterator<Item = &'a str>) -> f64 {
    texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
}

/// The label of a port
pub(super) fn label(device: &str) -> &str {
    device.strip_prefix("rdma_").unwrap_or(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_apart_and_near_the_ideal_ones() {
        assert_eq!(spread(&[-20.0, 0.0, 20.0], 10.0, 30.0), [-20.0, 0.0, 20.0]);
        assert_eq!(spread(&[0.0, 0.0, 0.0], 10.0, 30.0), [-10.0, 0.0, 10.0]);
        assert_eq!(spread(&[-20.0, 4.0, 6.0], 10.0, 30.0), [-20.0, 0.0, 10.0]);
        assert_eq!(spread(&[28.0, 29.0, 30.0], 10.0, 30.0), [10.0, 20.0, 30.0]);
        assert_eq!(spread(&[-50.0, 50.0], 10.0, 30.0), [-30.0, 30.0]);
        assert_eq!(spread(&[], 10.0, 30.0), [0.0; 0]);
    }
}
