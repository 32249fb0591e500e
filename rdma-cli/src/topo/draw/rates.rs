//! The labels of cables in a drawing

use rdma_sim::LineRate;
use rdma_sim::topology::Link;

use super::layout::Point;
use crate::report::line_rate;

/// A label beside its cable
pub(super) struct Label {
    pub(super) text: String,
    pub(super) middle: Point,
}

/// Half the width of a letter, and half the height of a line.
const LETTER: [f64; 2] = [3.2, 7.0];
/// Between two places on a cable that are tried, as a part of its length, and how many there are on each side of its middle.
const STEP: f64 = 0.025;
const STEPS: i32 = 14;

/// The rates of the cables that have another one than Thunderbolt 5; `ends` are the ports of each cable
///
/// A label is in the middle of its cable, or as near to it as other labels allow.
pub(super) fn rates(links: &[Link<'_>], ends: &[[Point; 2]]) -> Vec<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for (link, ends) in links.iter().zip(ends).filter(|(link, _)| link.rate != LineRate::TB5) {
        let text = line_rate(link.rate.bits_per_second);
        let steps = (0..=STEPS).flat_map(|step| [step, -step]);
        let places = steps.map(|step| along(ends, 0.5 + STEP * f64::from(step)));
        let is_free = |place: &Point| labels.iter().all(|other| is_apart(&text, *place, other));
        let middle = places.clone().find(is_free).unwrap_or_else(|| along(ends, 0.5));
        labels.push(Label { text, middle });
    }
    labels
}

/// The place on a cable at a part of its length
fn along([from, to]: &[Point; 2], part: f64) -> Point {
    [0, 1].map(|axis| from[axis] + part * (to[axis] - from[axis]))
}

/// Whether a label at `place` does not touch another one
fn is_apart(text: &str, place: Point, other: &Label) -> bool {
    let width = |text: &str| LETTER[0] * text.chars().count() as f64;
    let room = [width(text) + width(&other.text), 2.0 * LETTER[1]];
    (0..2).any(|axis| (place[axis] - other.middle[axis]).abs() >= room[axis])
}
