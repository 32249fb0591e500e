//! How the script of a page reads columns

use std::fmt::Write as _;

/// A position plus one; zero for none
pub(super) fn plus_one(position: Option<usize>) -> usize {
    position.map_or(0, |position| position + 1)
}

/// Times, each after the one before it
pub(super) fn differences(times: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut last = 0;
    times.into_iter().map(|time| time.saturating_sub(std::mem::replace(&mut last, time))).collect()
}

/// Bytes as hexadecimal digits
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
