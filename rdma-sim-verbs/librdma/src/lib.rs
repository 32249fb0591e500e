//! The shared library `librdma.so` (`librdma.dylib`) of the simulated verbs provider
//!
//! It exports the C functions of [`rdma_sim_verbs`] and adds nothing.

pub use rdma_sim_verbs::*;
