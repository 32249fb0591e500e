//! Which two ports could not be joined, and why

use std::fmt;

use rdma_core::Error;
use rdma_core::session::LostReason;

/// Two ports between which no path was made
///
/// ```
/// use rdma_async::{LostReason, PortRefusal};
///
/// let port = "rdma_en2".to_owned();
/// let (peer_port, reason) = ("rdma_en4".to_owned(), LostReason::Unreachable);
/// let refusal = PortRefusal { port, peer_port, reason, error: None };
/// assert_eq!(refusal.to_string(), "rdma_en2 to rdma_en4 of the peer: they do not reach each other");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PortRefusal {
    /// The name of the device of this side
    pub port: String,
    /// The name of the device of the peer, or its number if the peer does not say the name
    pub peer_port: String,
    /// Why no path was made
    pub reason: LostReason,
    /// The error of the device of this side, if that was why
    pub error: Option<Error>,
}

impl fmt::Display for PortRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} of the peer: ", self.port, self.peer_port)?;
        match &self.error {
            Some(error) => write!(f, "{error} (errno {})", error.errno()),
            None => self.reason.fmt(f),
        }
    }
}

/// How many refusals an error shows.
const SHOWN: usize = 8;

/// The refusals in parentheses, or nothing
pub(crate) fn in_words(refusals: &[PortRefusal]) -> String {
    if refusals.is_empty() {
        return String::new();
    }
    let shown = refusals.iter().take(SHOWN).map(PortRefusal::to_string).collect::<Vec<_>>().join("; ");
    match refusals.len().saturating_sub(SHOWN) {
        0 => format!(" ({shown})"),
        more => format!(" ({shown}; and {more} more)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches an error that fills the screen.
    #[test]
    fn many_refusals_are_not_all_shown() {
        let (port, peer_port, reason) = ("a".into(), "b".into(), LostReason::Busy);
        let refusal = PortRefusal { port, peer_port, reason, error: None };
        let text = in_words(&vec![refusal; SHOWN + 2]);
        assert_eq!(text.matches("a to b").count(), SHOWN);
        assert!(text.ends_with("; and 2 more)"), "{text}");
    }
}
