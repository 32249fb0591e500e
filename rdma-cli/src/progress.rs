//! Progress on a terminal: how far, how fast, and how long it still takes

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::{Output, is_quiet};

/// Bytes that are copied
pub(crate) fn bytes(len: u64, output: Output) -> ProgressBar {
    bar(len, "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}", output)
}

/// Steps of work, with the name of the present one
pub(crate) fn steps(count: u64, output: Output) -> ProgressBar {
    bar(count, "{wide_bar} {pos}/{len} {msg} {eta}", output)
}

/// Round trips, seeds or other things of which there are many
pub(crate) fn items(count: u64, output: Output) -> ProgressBar {
    bar(count, "{wide_bar} {pos}/{len} {per_sec} {eta}", output)
}

/// A bar on a terminal; hidden elsewhere, beside JSON, and with `--quiet`
fn bar(len: u64, template: &str, output: Output) -> ProgressBar {
    if output == Output::Json || is_quiet() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
