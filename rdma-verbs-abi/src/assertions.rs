//! Sizes and offsets, checked when the crate is compiled
//!
//! Sources: a layout oracle compiled against Apple's SDK (published by the tmc/apple project), and Debian's libibverbs 44.

use std::mem::{offset_of, size_of};

use crate::layout::{
    AhAttr, Context, ContextOps, Cq, Device, DeviceAttr, GlobalRoute, Mr, Pd, PortAttr, Qp, QpAttr, QpCap,
    QpInitAttr, RecvWr, SendWr, Sge, Wc,
};

const _: () = {
    assert!(size_of::<Device>() == 664 && offset_of!(Device, name) == 24);
    assert!(size_of::<ContextOps>() == 256);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, poll_cq) == 96);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, req_notify_cq) == 104);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, post_send) == 208);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, post_recv) == 216);
    assert!(offset_of!(Context, cmd_fd) == 264 && offset_of!(Context, num_comp_vectors) == 272);
    assert!(size_of::<Pd>() == 16 && size_of::<Mr>() == 48 && offset_of!(Mr, lkey) == 36);
    assert!(offset_of!(Cq, cqe) == 28 && offset_of!(Qp, qp_num) == 52 && offset_of!(Qp, qp_type) == 60);
    assert!(size_of::<Sge>() == 16 && size_of::<RecvWr>() == 32 && size_of::<SendWr>() == 128);
    assert!(offset_of!(SendWr, wr) == 40 && offset_of!(SendWr, qp_type) == 72);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, byte_len) == 20 && offset_of!(Wc, qp_num) == 28);
    assert!(size_of::<QpCap>() == 20 && size_of::<QpInitAttr>() == 64);
    assert!(offset_of!(QpInitAttr, qp_type) == 52);
    assert!(size_of::<GlobalRoute>() == 24 && size_of::<AhAttr>() == 32);
    assert!(offset_of!(AhAttr, is_global) == 29 && offset_of!(AhAttr, port_num) == 30);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, pkey_index) == 120 && offset_of!(QpAttr, port_num) == 129);
    assert!(size_of::<PortAttr>() == 52 && offset_of!(PortAttr, gid_tbl_len) == 12);
    assert!(offset_of!(PortAttr, lid) == 34 && offset_of!(PortAttr, flags) == 47);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, phys_port_cnt) == 227);
    assert!(offset_of!(DeviceAttr, max_mr_size) == 80 && offset_of!(DeviceAttr, atomic_cap) == 164);
};

#[cfg(target_os = "macos")]
const _: () = {
    assert!(size_of::<Context>() == 352 && offset_of!(Context, abi_compat) == 344);
    assert!(size_of::<Cq>() == 152 && size_of::<Qp>() == 184);
};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const _: () = {
    assert!(size_of::<Context>() == 328 && offset_of!(Context, abi_compat) == 320);
    assert!(size_of::<Cq>() == 128 && size_of::<Qp>() == 160);
};
