//! The real path: RDMA over Thunderbolt 5 through the system's verbs provider
//!
//! **Not there yet.** The crate will load `librdma.dylib` on macOS and `libibverbs.so.1` on Linux at run time and implement
//! the traits of `rdma_core` over it. Until then programs run on `rdma-sim`.
