//! Sizes in bytes with their units: `4MiB`, and `4..256MiB` for those of a measurement

/// The longest message of `tb5 ping`, in bytes
pub(crate) const MAX_PING: u64 = 4 << 20;
/// The longest message of `tb5 bw` in a simulation, in bytes
pub(crate) const MAX_BW: u64 = 16 << 20;

/// Sizes in bytes, each twice the one before
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sizes {
    first: u64,
    /// The largest size is at most this.
    last: u64,
}

const UNITS: [(&str, u64); 5] = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Sizes {
    /// Reads sizes of at most `most` bytes
    pub(crate) fn up_to(most: u64) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync + 'static {
        move |text| Self::parse(text, most)
    }

    pub(crate) fn parse(text: &str, most: u64) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let (Some(low), Some(high)) = (bytes(first), bytes(last)) else {
            return Err("write A..B, whole numbers of B, KiB, MiB or GiB, such as 4..4MiB".to_owned());
        };
        if low > high {
            return Err(format!(
                "there are no sizes in {text}: write the smaller size first: {last}..{first}"
            ));
        }
        if low == 0 || high > most {
            return Err(format!("sizes are 1B to {}", self::text(most)));
        }
        Ok(Self { first: low, last: high })
    }

    /// The sizes, smallest first
    pub(crate) fn each(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(self.first), |size| Some(size * 2))
            .take_while(move |size| *size <= self.last)
    }
}

/// A size with its unit, as options take it: `4MiB`
pub(crate) fn text(size: u64) -> String {
    let (number, unit) = in_largest_unit(size);
    format!("{number}{unit}")
}

/// A size with its unit, as sentences and drawings have it: `4 MiB`
pub(crate) fn spaced(size: u64) -> String {
    let (number, unit) = in_largest_unit(size);
    format!("{number} {unit}")
}

/// A size in the largest unit of which it is a whole number
fn in_largest_unit(size: u64) -> (u64, &'static str) {
    let is_whole = |unit: &&(&str, u64)| size >= unit.1 && size.is_multiple_of(unit.1);
    let (unit, one) = UNITS.iter().rfind(is_whole).unwrap_or(&UNITS[1]);
    (size / one, unit)
}

/// Reads one size of at most `most` bytes, such as `64` or `4MiB`
pub(crate) fn up_to(most: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let size = bytes(text).filter(|size| *size <= most);
        size.ok_or_else(|| {
            format!("write a whole number of B, KiB or MiB up to {}, such as 64 or 4KiB", self::text(most))
        })
    }
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
        let of = |text| Sizes::parse(text, 1 << 30).unwrap().each().collect::<Vec<_>>();
        assert_eq!(of("4..64"), [4, 8, 16, 32, 64]);
        assert_eq!(of("3KiB..9KiB"), [3 << 10, 6 << 10]);
        assert_eq!(of("1MiB"), [1 << 20]);
        assert_eq!(of("512MiB..1GiB"), [1 << 29, 1 << 30]);
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for text in ["0B", "1B", "1000B", "1KiB", "1025B", "16MiB", "3GiB"] {
            assert_eq!(super::text(bytes(text).unwrap()), text);
            assert_eq!(spaced(bytes(text).unwrap()).replace(' ', ""), text);
        }
    }

    #[test]
    fn sizes_that_cannot_be_measured_are_refused() {
        for text in ["", "..", "4..", "x..8", "4..8X", "4 ..8", "+4..8", "1.5KiB", "99999999999GiB", "４..8"]
        {
            assert!(Sizes::parse(text, 1 << 30).unwrap_err().starts_with("write A..B"), "{text}");
        }
        assert!(Sizes::parse("8..4B", 8).unwrap_err().ends_with("smaller size first: 4B..8"));
        for text in ["0..4", "1..2GiB"] {
            assert_eq!(Sizes::parse(text, 1 << 30).unwrap_err(), "sizes are 1B to 1GiB");
        }
    }
}
