#![doc = include_str!("../README.md")]
//!
//! # The crates
//!
//! ```text
//! programs   your program       tb5 (rdma-cli) ─────┐         a program in C
//!                 │                  │              │            │
//!                 ▼                  ▼              ▼            ▼
//! on top     rdma-collectives   rdma-calibrate  rdma-doctor   librdma
//!                 │                  │              │            │
//!                 ▼                  │              │            ▼
//! sessions   rdma-async ◀────────────┘              │     rdma-sim-verbs
//!                 │                                 │            │
//!                 ▼ over any of                     ▼            ▼
//! devices    rdma-tcp (TCP)                 rdma-tb5 (real)   rdma-sim (simulated)
//!                 │                                 │            │
//!                 ▼                                 ▼            ▼
//! base       rdma-core (verbs as traits, the protocol), rdma-arena, rdma-verbs-abi, rdma-bare
//! ```
#![forbid(unsafe_code)]

mod advice;
mod all_reduce;
mod all_to_all;
mod arborescence;
mod arborescences;
#[cfg(feature = "groups")]
pub mod blocking;
mod cabling;
mod capped;
mod congestion;
mod cut;
mod flow;
mod forest;
mod forests;
#[cfg(feature = "groups")]
mod group;
mod host_cap;
mod large;
#[cfg(feature = "launch")]
pub mod launch;
mod low;
mod network;
mod packing;
mod parse;
mod paths;
mod plan;
mod planner;
mod predict;
mod program;
mod ratio;
mod recommend;
mod rounding;
mod shapes;
mod shortest;
mod simplex;
mod spread;
mod strength;
mod subgroup;
mod text;
mod tree;
mod verify;

pub use advice::{Addition, AdviceError, MAX_PORTS, Unplug, additions, unplugs};
pub use all_reduce::all_reduce;
pub use all_to_all::{MAX_ALL_TO_ALL_HOSTS, MAX_EXACT_ALL_TO_ALL_HOSTS, all_to_all};
pub use cabling::{Cable, Cabling, CablingError, Fingerprint, MAX_CABLES, MAX_HOSTS, MAX_RATE};
pub use capped::MAX_EXACT_CAPPED_HOSTS;
pub use forest::{all_gather, broadcast, reduce, reduce_scatter};
#[cfg(feature = "groups")]
pub use group::{
    Call, Complex64, Element, ElementType, Group, GroupError, GroupOptions, JoinError, Monitor,
    OperationKind, Reduction, ShrinkError, Wait, WaitReason, Waits,
};
pub use host_cap::HostCap;
pub use large::MAX_EXACT_HOSTS;
pub use parse::ParsePlanError;
pub use paths::{gather, scatter};
pub use plan::{Certificate, Operation, Plan, PlanError, PlanFile, Price, Resource};
pub use planner::{bound, plan};
pub use predict::{Algorithm, AllReducePlans, Costs, Prediction, flood};
pub use ratio::{Ratio, RatioError};
pub use recommend::{Limit, Recommendation, recommend, recommend_for};
pub use subgroup::all_reduce_among;
pub use tree::Tree;
pub use verify::{VerifyError, verify};
