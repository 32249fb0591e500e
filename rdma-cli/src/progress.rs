//! Progress on a terminal: how far, how fast, and how long it still takes

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::is_quiet;
use crate::screen::BARS;

/// Bytes that are copied
pub(crate) fn bytes(len: u64) -> ProgressBar {
    bar(len, "{wide_bar} {msg}{bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

/// Steps of work, with the name of the present one
pub(crate) fn steps(count: u64) -> ProgressBar {
    bar(count, "{wide_bar} {pos}/{len} {msg} {eta}")
}

/// Says which of `count` steps is under way
pub(crate) fn step(bar: &ProgressBar, name: &'static str, number: usize, count: usize) {
    bar.set_length(count as u64);
    bar.set_message(name);
    bar.set_position(number as u64);
}

const ITEMS: &str = "{wide_bar} {msg}{pos}/{len} {per_sec} {eta}";

/// Round trips, seeds or other things of which there are many
pub(crate) fn items(count: u64) -> ProgressBar {
    bar(count, ITEMS)
}

/// As [`items`], of a part of the work
pub(crate) fn part(count: u64, name: &str) -> ProgressBar {
    let bar = ProgressBar::new(count).with_message(format!("{name}: "));
    show(bar, ITEMS)
}

/// Counts the next part of the work, from the start
pub(crate) fn next_part(bar: &ProgressBar, name: &str) {
    bar.reset();
    bar.set_message(format!("{name}: "));
}

/// Shorter files are compared at once.
const LONG_FILE: u64 = 1 << 20;

/// Says why no byte is counted while both sides of a copy read what the receiver has of a file of `len` bytes
pub(crate) fn begin_check(bar: &ProgressBar, len: u64) {
    if len >= LONG_FILE {
        bar.set_message("checking what is there: ");
    }
}

/// Counts the `found` bytes that the receiver has of a file of `len` bytes; the rate and the time left are those of the other bytes
pub(crate) fn end_check(bar: &ProgressBar, len: u64, found: u64) {
    bar.inc(found);
    if len >= LONG_FILE {
        // `set_message` records the new position, from which `reset_eta` begins; without `found`, the rate so far stays.
        bar.set_message("");
        if found > 0 {
            bar.reset_eta();
        }
    }
}

/// Work of which the end is not known: what it is, and the time so far
///
/// A run of a scenario ends when its programs do, at no virtual time that is known before, and the planner does not report its steps: both
/// show no rate and no time left.
pub(crate) fn spinner(name: &'static str) -> ProgressBar {
    show(ProgressBar::new_spinner().with_message(name), "{spinner} {msg} {elapsed}")
}

/// Bytes that are read to an end which is not known
pub(crate) fn reading() -> ProgressBar {
    show(ProgressBar::new_spinner(), "{spinner} {bytes} {bytes_per_sec} {elapsed}")
}

/// A bar on a terminal; hidden elsewhere, and with `--quiet`
fn bar(len: u64, template: &str) -> ProgressBar {
    show(ProgressBar::new(len), template)
}

fn show(bar: ProgressBar, template: &str) -> ProgressBar {
    // Standard error may be the terminal on which JSON is printed, too: it is cleared before.
    if is_quiet() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    let bar = BARS.add(bar).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if !bar.is_hidden() {
        // Work that ends before a first steady tick is named, too.
        bar.tick();
        // A step may take long: the time that is left goes on meanwhile.
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}
