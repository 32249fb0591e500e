//! Support for tests and benchmarks: pairs of simulated Macs, processes of a fabric, and fuzz bodies

#[cfg(unix)]
pub mod counted;
mod drop_after;
pub mod files;
pub mod fuzz;
#[cfg(unix)]
pub mod gated;
#[cfg(doctest)]
mod guide;
mod hooked;
pub mod hosts;
pub mod oracle;
mod pair;
mod panics;
mod raw;

#[cfg(unix)]
pub mod stub;

pub use drop_after::DropAfter;
pub use hooked::{Hooked, HookedCompletionQueue, HookedMemoryRegion, HookedQueuePair, Hooks};
pub use pair::{
    DEVICE, Pair, bare_pair, begun, connect, connected, connected_over, hooked_node, hooked_node_over,
    message, node, node_over, nodes, on_session, options, stream_of, try_connected, value_of, zeros,
};
pub use panics::Panics;
pub use raw::{Raw, hello};

/// The clock on the wall, for what measures it
#[expect(clippy::disallowed_methods, reason = "programs that measure ask the clock on the wall")]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The value in the middle
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
struct Readme;
