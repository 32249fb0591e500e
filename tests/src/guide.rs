//! The Rust code of the guide, as doctests
//!
//! `rdma-cli/tests/guide` checks that no page with code is missing here.

#[doc = include_str!("../../docs/guide/src/start.md")]
struct Start;

#[doc = include_str!("../../docs/guide/src/macs.md")]
struct Macs;

#[doc = include_str!("../../docs/guide/src/faults.md")]
struct Faults;

#[doc = include_str!("../../docs/guide/src/cables.md")]
struct Cables;

#[doc = include_str!("../../docs/guide/src/groups.md")]
struct Groups;

#[doc = include_str!("../../docs/guide/src/tuning.md")]
struct Tuning;

#[doc = include_str!("../../docs/guide/src/troubleshooting.md")]
struct Troubleshooting;

#[doc = include_str!("../../docs/guide/src/safety.md")]
struct Safety;

#[doc = include_str!("../../docs/guide/src/porting.md")]
struct Porting;

#[doc = include_str!("../../docs/guide/src/api.md")]
struct Tour;

#[doc = include_str!("../../docs/guide/src/linux.md")]
struct Linux;
