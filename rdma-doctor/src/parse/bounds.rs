//! Bounds on what is read and kept, and the smallest readers

/// Bytes of an output that are read
pub const MAX_INPUT: usize = 4 << 20;

/// Entries of a list that are kept
pub const MAX_ITEMS: usize = 1024;

/// Bytes of a name or a value that are kept
const MAX_TEXT: usize = 256;

/// An output that cannot be read as a whole
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The output does not contain this list
    #[error("the output has no list {0:?}")]
    Missing(&'static str),
    /// The output is not JSON; the text says where
    #[error("not JSON: {0}")]
    NotJson(String),
    /// The output is too long: a part of a JSON text cannot be read
    #[error("the output is longer than {MAX_INPUT} bytes")]
    TooLong,
}

/// The lines of the first [`MAX_INPUT`] bytes
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text[..text.floor_char_boundary(MAX_INPUT)].lines()
}

/// A text of bounded length
pub(crate) fn short(text: &str) -> String {
    let text = text.trim();
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}

/// Adds to a list unless it has [`MAX_ITEMS`] entries; whether it did
pub(super) fn keep<T>(list: &mut Vec<T>, item: T) -> bool {
    let has_space = list.len() < MAX_ITEMS;
    if has_space {
        list.push(item);
    }
    has_space
}

/// A number as the tools print it: `11`, `0x1000000`, perhaps with words after it
pub(super) fn number(text: &str) -> Option<u64> {
    let word = text.split_whitespace().next()?;
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// A hardware address with two digits in each part; macOS prints `2:0:0:0:2:83`
pub(super) fn ether(text: &str) -> Option<String> {
    let parts: Option<Vec<_>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let [a, b, c, d, e, f] = parts?[..] else { return None };
    Some(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_both_bases() {
        let cases = [
            ("11", Some(11)),
            ("0x1000000", Some(1 << 24)),
            ("4096 (5)", Some(4096)),
            ("0x", None),
            ("", None),
            ("-1", None),
            ("99999999999999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn hardware_addresses_have_six_parts() {
        assert_eq!(ether("2:0:0:0:a:83").as_deref(), Some("02:00:00:00:0a:83"));
        for text in ["", "(incomplete)", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:100"] {
            assert_eq!(ether(text), None, "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "é".repeat(MAX_TEXT);
        assert_eq!(short(&text), "é".repeat(MAX_TEXT / 2));
        assert!(lines(&"x".repeat(MAX_INPUT + 5)).map(str::len).sum::<usize>() == MAX_INPUT);
    }
}
