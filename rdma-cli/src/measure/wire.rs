//! Constants of both sides of a measurement

/// The longest message between machines, in bytes
pub(crate) const MAX_MESSAGE: usize = crate::sizes::MAX_PING as usize;
/// The first message of a session that asks for answers to its messages
pub(super) const PING: &[u8] = b"tb5ping1";
/// The first message of a session that asks to have its messages timed
pub(super) const BW: &[u8] = b"tb5band1";
/// The first message of a session that asks for a partner in a group
pub(super) const REDUCE: &[u8] = b"tb5summ1";
pub(crate) const FOREIGN: &str = "the peer does not speak the protocol of this version of `tb5`";
