//! Sizes in bytes with their units: `4MiB`, and `4..256MiB` for those of a measurement

use crate::failure::Failure;

/// Sizes in bytes, each twice the one before
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sizes {
    first: u64,
    /// The largest size is at most this.
    last: u64,
}

/// The longest vector.
const MAX: u64 = 1 << 30;
const UNITS: [(&str, u64); 5] = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Sizes {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let (Some(first), Some(last)) = (bytes(first), bytes(last)) else {
            return Err("write A..B, whole numbers of B, KiB, MiB or GiB, such as 4..256MiB".to_owned());
        };
        if first > last {
            return Err(format!(
                "there are no sizes in {text}: write the smaller size first, such as 4..256MiB"
            ));
        }
        if first == 0 || last > MAX {
            return Err("sizes are 1 B to 1 GiB".to_owned());
        }
        Ok(Self { first, last })
    }

    /// The sizes, smallest first
    pub(crate) fn each(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(self.first), |size| Some(size * 2))
            .take_while(move |size| *size <= self.last)
    }
}

/// A size with its unit, as options take it: `4MiB`
pub(crate) fn text(size: u64) -> String {
    let is_whole = |unit: &&(&str, u64)| size >= unit.1 && size.is_multiple_of(unit.1);
    let (unit, one) = UNITS.iter().rfind(is_whole).unwrap_or(&UNITS[1]);
    format!("{}{unit}", size / one)
}

/// The failure of an option whose messages of `size` bytes are longer than `longest`
pub(crate) fn too_long(option: &str, size: u64, longest: u64) -> Failure {
    Failure::Usage(format!(
        "{option}: messages of {}: at most {} are possible here",
        text(size),
        text(longest)
    ))
}

/// Reads one size, such as `64` or `4MiB`
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "write a whole number of B, KiB, MiB or GiB, such as 64 or 4MiB".to_owned())
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, size) = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u64>().ok()?.checked_mul(*size)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_last() {
        let of = |text| Sizes::parse(text).unwrap().each().collect::<Vec<_>>();
        assert_eq!(of("4..64"), [4, 8, 16, 32, 64]);
        assert_eq!(of("3KiB..9KiB"), [3 << 10, 6 << 10]);
        assert_eq!(of("1MiB"), [1 << 20]);
        assert_eq!(of("512MiB..1GiB"), [1 << 29, 1 << 30]);
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for text in ["0B", "1B", "1000B", "1KiB", "1025B", "16MiB", "3GiB"] {
            assert_eq!(super::text(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_that_cannot_be_measured_are_refused() {
        for text in ["", "..", "4..", "x..8", "4..8X", "4 ..8", "+4..8", "1.5KiB", "99999999999GiB", "４..8"]
        {
            assert!(Sizes::parse(text).unwrap_err().starts_with("write A..B"), "{text}");
        }
        assert!(Sizes::parse("8..4").unwrap_err().contains("smaller size first"));
        for text in ["0..4", "1..2GiB"] {
            assert_eq!(Sizes::parse(text).unwrap_err(), "sizes are 1 B to 1 GiB");
        }
    }
}
