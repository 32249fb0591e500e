//! What this process has with another one: the protocol, its paths, its sessions, and their memory

mod frames;
mod incoming;
pub(crate) mod lanes;
mod outgoing;
mod session_state;
pub(crate) mod shared;
pub(crate) mod state;
