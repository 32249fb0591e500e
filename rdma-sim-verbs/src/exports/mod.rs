//! The functions of the ABI
//!
//! # Safety
//!
//! All of them: pointers are NULL, or came from this library and were not destroyed, or lead to the caller's structures, as the
//! manual pages of libibverbs say. For NULL and objects of another type, they return `EINVAL`.
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "one contract for all, above; the functions are those of libibverbs"
)]

mod blocking;
mod channel;
mod completion;
mod control;
mod devices;
mod memory;
mod names;
mod post;
mod queue_pair;
mod unsupported;

pub use self::channel::*;
pub use self::completion::*;
pub use self::control::*;
pub use self::devices::*;
pub use self::memory::*;
pub use self::names::*;
pub use self::queue_pair::*;
pub use self::unsupported::*;
