//! What this process has with another one: the protocol, its paths, its sessions, and their memory

mod abandoned;
pub(crate) mod application;
pub(crate) mod body;
pub(crate) mod copies;
mod drive;
pub(crate) mod dropped_puts;
mod end_report;
mod events;
mod frames;
mod incoming;
pub(crate) mod lanes;
mod memory_line;
mod outgoing;
pub(crate) mod paths;
mod post;
mod post_queue;
mod posted;
pub(crate) mod request;
pub(crate) mod session_state;
pub(crate) mod shared;
pub(crate) mod staging;
pub(crate) mod state;
pub(crate) mod stream_state;
