//! What a side can do beyond the rules that every program of this version keeps

/// Features that a side says in its [`Hello`](super::Hello), one bit for each
///
/// Both sides use those that both know: a bit of a later program does nothing here.
///
/// ```
/// use rdma_core::session::Features;
///
/// let later = Features(1 << 63 | Features::PORT_NAMES.0);
/// assert_eq!(Features::SUPPORTED.common(later), Features::PORT_NAMES);
/// assert!(!Features(0).has(Features::PORT_NAMES));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Features(pub u64);

impl Features {
    /// The side wants the name of the peer's port in a [`Lost`](super::ControlMessage::Lost) that refuses a path
    pub const PORT_NAMES: Self = Self(1);
    /// All features of this program
    pub const SUPPORTED: Self = Self::PORT_NAMES;

    /// Those that both sides have
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `features` are among these
    pub fn has(self, features: Self) -> bool {
        self.common(features) == features
    }
}

/// The name of a port for people: up to 64 printable characters of ASCII
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortName([u8; Self::LEN]);

impl PortName {
    /// Length of the encoded form in bytes
    pub const LEN: usize = 64;

    /// The beginning of `name`, with question marks for what cannot be sent; `None` for an empty one
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        for (byte, char) in bytes.iter_mut().zip(name.chars()) {
            *byte = if is_printable(char) { char as u8 } else { b'?' };
        }
        (bytes[0] != 0).then_some(Self(bytes))
    }

    /// The name
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::LEN);
        str::from_utf8(&self.0[..len]).expect("the name is ASCII")
    }

    pub(super) fn to_bytes(this: Option<Self>) -> [u8; Self::LEN] {
        this.map_or([0; Self::LEN], |name| name.0)
    }

    /// As [`new`](Self::new), of the bytes before the first zero: the peer may be hostile, and a terminal may show them
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let name = bytes.iter().take_while(|byte| **byte != 0);
        Self::new(&name.map(|byte| char::from(*byte)).collect::<String>())
    }
}

fn is_printable(char: char) -> bool {
    char.is_ascii_graphic() || char == ' '
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_there_if_all_of_them_are() {
        let [one, both] = [Features::PORT_NAMES, Features(0b11)];
        assert!(both.has(one) && both.has(both) && one.has(Features(0)));
        assert!(!one.has(both) && !Features(0b10).has(one));
    }

    /// Catches a name that controls the terminal which shows it, and one that is longer than its field.
    #[test]
    fn names_of_ports_are_printable() {
        let long = "x".repeat(100);
        for (name, kept) in [
            ("rdma_en2", "rdma_en2"),
            ("device 1", "device 1"),
            ("a\u{1b}[2Jé\0b", "a?[2J??b"),
            (&long, &long[..64]),
        ] {
            let name = PortName::new(name).unwrap();
            assert_eq!(name.as_str(), kept);
            assert_eq!(PortName::from_bytes(PortName::to_bytes(Some(name))), Some(name));
        }
        assert_eq!(PortName::new(""), None);
        assert_eq!(PortName::from_bytes(PortName::to_bytes(None)), None);
        let mut hostile = [0x9b; PortName::LEN];
        hostile[2] = 0;
        assert_eq!(PortName::from_bytes(hostile).unwrap().as_str(), "??");
    }
}
