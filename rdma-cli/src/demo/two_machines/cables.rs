//! This machine and the other one, with what joins them

use std::fmt::Write as _;

use crate::html::escaped;
use crate::machines::Carried;

/// Half the width of a machine.
const HALF: f64 = 78.0;
/// From the middle of the picture to the middle of a machine.
const APART: f64 = 140.0;
/// Letters of a name that have room in a machine on a phone.
const LETTERS: usize = 16;
/// Between two cables.
const SPREAD: f64 = 30.0;

/// A drawing with a cable for each device of this machine, as what TCP goes over is not known
pub(super) fn svg(peer: &str, devices: &[String]) -> String {
    let half_height = devices.len().max(2) as f64 * SPREAD / 2.0 + 8.0;
    let (width, height) = (2.0 * (APART + HALF + 12.0), 2.0 * (half_height + 12.0));
    let mut out = format!(
        "<svg class=\"machines\" role=\"img\" aria-label=\"Two machines, joined by {}\" viewBox=\"{:.0} {:.0} {width:.0} {height:.0}\">",
        escaped(&devices.join(", ")),
        -width / 2.0,
        -height / 2.0,
    );
    // Writing to a string does not fail.
    for (number, device) in devices.iter().enumerate() {
        let y = (number as f64 - (devices.len() - 1) as f64 / 2.0) * SPREAD;
        let class = if device == Carried::TCP { "cable tcp" } else { "cable" };
        let (from, to) = (HALF - APART, APART - HALF);
        let _ = write!(
            out,
            "<line class=\"{class}\" x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\"/><text class=\"small\" x=\"0\" y=\"{}\">{}</text>",
            y - 9.0,
            escaped(device)
        );
    }
    for (x, name) in [(-APART, "this machine"), (APART, peer)] {
        let _ = write!(
            out,
            "<rect class=\"mac\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"11\"/><text x=\"{x}\" y=\"0\">{}<title>{}</title></text>",
            x - HALF,
            -half_height,
            2.0 * HALF,
            2.0 * half_height,
            escaped(&shortened(name)),
            escaped(name)
        );
    }
    out + "</svg>"
}

/// The beginning of a name that is too long
fn shortened(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 1).chain(['…']).collect()
}
