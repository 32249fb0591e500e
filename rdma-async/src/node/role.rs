/// Which side opened the stream
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Makes the offers
    Connecting,
    /// Answers them
    Accepting,
}
