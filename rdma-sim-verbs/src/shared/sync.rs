//! The primitives of what loom checks: `tests/loom.rs` compiles the same files against loom's

pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
