//! Why a run ends

/// Why the run has ended
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    /// All programs succeeded
    Done,
    /// The program of this host was the first to fail
    Failed(usize),
    /// The tool received this signal
    Interrupted(i32),
    /// The timeout of the run passed
    TimedOut,
    /// The output of the tool is not read any more
    Unread,
    /// The output of the tool cannot be written
    Unwritten,
}
