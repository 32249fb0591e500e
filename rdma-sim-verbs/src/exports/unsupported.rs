//! Functions that common programs import and Thunderbolt devices do not support, beside a few that can be answered

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use rdma_verbs_abi::{Context, Cq, Device, Mr, Pd, Qp, RawGid, Wc};

use super::devices::ibv_query_gid;
use super::memory::ibv_reg_mr;
use crate::errno::{EINVAL, ENOTSUP, guarded, minus_one, null, same};
use crate::objects::ContextObject;
use crate::slots::object;

/// The default partition, which is the only one
const DEFAULT_PKEY: u16 = 0xffff;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`: programs print such entries in full
const ROCE_V2: u32 = 1;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut Context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: the contract of all functions.
    let is_open = unsafe { object::<ContextObject>(context) }.is_ok();
    if !is_open || port != 1 || index != 0 || pkey.is_null() {
        return minus_one(EINVAL);
    }
    // SAFETY: the caller's place for a number.
    unsafe { *pkey = DEFAULT_PKEY.to_be() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut Context,
    port: u8,
    index: c_uint,
    gid_type: *mut u32,
) -> c_int {
    let mut gid = RawGid::default();
    // SAFETY: the contract of all functions.
    let found = unsafe { ibv_query_gid(context, port, index as c_int, &raw mut gid) };
    if found != 0 || gid_type.is_null() {
        return -1;
    }
    // SAFETY: the caller's place for a number.
    unsafe { *gid_type = ROCE_V2 };
    0
}

/// `ibv_gid_entry`
#[repr(C)]
pub struct GidEntry {
    gid: RawGid,
    gid_index: u32,
    port_num: u32,
    gid_type: u32,
    ndev_ifindex: u32,
}

const _: () = assert!(size_of::<GidEntry>() == 32);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut Context,
    port: u32,
    index: u32,
    entry: *mut GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    guarded(same, || {
        if entry.is_null() || flags != 0 || size < size_of::<GidEntry>() {
            return Err(EINVAL);
        }
        let mut gid = RawGid::default();
        // SAFETY: the contract of all functions.
        let found = unsafe { ibv_query_gid(context, port as u8, index as c_int, &raw mut gid) };
        if found != 0 || port > u8::MAX.into() {
            return Err(EINVAL);
        }
        // `IBV_GID_TYPE_ROCE_V2`, counted otherwise than in sysfs.
        let answer = GidEntry { gid, gid_index: index, port_num: port, gid_type: 2, ndev_ifindex: 0 };
        // SAFETY: the caller's place for an entry.
        unsafe { entry.write(answer) };
        Ok(0)
    })
}

/// A function of Apple's library; in the header of rdma-core it is inline
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_ex(
    context: *mut Context,
    port: u32,
    index: u32,
    entry: *mut GidEntry,
    flags: u32,
) -> c_int {
    // SAFETY: the contract of all functions.
    unsafe { _ibv_query_gid_ex(context, port, index, entry, flags, size_of::<GidEntry>()) }
}

/// There is no such directory: devices are simulated
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    _directory: *const c_char,
    _file: *const c_char,
    _text: *mut c_char,
    _size: usize,
) -> c_int {
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut Mr {
    // SAFETY: the contract of all functions.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut Mr {
    if iova != addr.addr() as u64 {
        return null(ENOTSUP);
    }
    // SAFETY: the contract of all functions.
    unsafe { ibv_reg_mr(pd, addr, length, access as c_int) }
}

/// There are no extended queue pairs: programs fall back to `ibv_post_send`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(_qp: *mut Qp) -> *mut c_void {
    null_mut()
}

/// Functions that return a pointer and always fail
macro_rules! without_objects {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(_: $argument),*) -> *mut c_void {
            null(ENOTSUP)
        }
    )*};
}

/// Functions that return an error number and always fail
macro_rules! without_effect {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(_: $argument),*) -> c_int {
            same(ENOTSUP)
        }
    )*};
}

/// Functions that return nothing, and take objects that this library never makes
macro_rules! without_result {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(_: $argument),*) {}
    )*};
}

// A call of a function that this library lacks would reach a genuine libibverbs, with objects of this library.

without_objects! {
    ibv_create_ah(*mut Pd, *mut c_void);
    ibv_create_ah_from_wc(*mut Pd, *mut Wc, *mut c_void, u8);
    ibv_create_srq(*mut Pd, *mut c_void);
    ibv_import_device(c_int);
    ibv_import_dm(*mut Context, u32);
    ibv_import_mr(*mut Pd, u32);
    ibv_import_pd(*mut Context, u32);
    ibv_reg_dmabuf_mr(*mut Pd, u64, usize, u64, c_int, c_int);
}

without_effect! {
    ibv_attach_mcast(*mut Qp, *const RawGid, u16);
    ibv_destroy_ah(*mut c_void);
    ibv_destroy_srq(*mut c_void);
    ibv_detach_mcast(*mut Qp, *const RawGid, u16);
    ibv_init_ah_from_wc(*mut Context, u8, *mut Wc, *mut c_void, *mut c_void);
    ibv_modify_srq(*mut c_void, *mut c_void, c_int);
    ibv_query_ece(*mut Qp, *mut c_void);
    ibv_query_srq(*mut c_void, *mut c_void);
    ibv_rereg_mr(*mut Mr, c_int, *mut Pd, *mut c_void, usize, c_int);
    ibv_resize_cq(*mut Cq, c_int);
    ibv_resolve_eth_l2_from_gid(*mut Context, *mut c_void, *mut u8, *mut u16);
    ibv_set_ece(*mut Qp, *mut c_void);
}

without_result! {
    ibv_ack_async_event(*mut c_void);
    ibv_unimport_dm(*mut c_void);
    ibv_unimport_mr(*mut Mr);
    ibv_unimport_pd(*mut Pd);
}

/// No device reports asynchronous events
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(_context: *mut Context, _event: *mut c_void) -> c_int {
    minus_one(ENOTSUP)
}

/// Devices have no number in the kernel
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(_device: *mut Device) -> c_int {
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(context: *mut Context, port: u8, pkey: u16) -> c_int {
    let mut found = 0;
    // SAFETY: the contract of all functions.
    let is_found = unsafe { ibv_query_pkey(context, port, 0, &raw mut found) } == 0;
    if is_found && found == pkey { 0 } else { -1 }
}

/// No queue pair promises that bytes are written in order
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(_qp: *mut Qp, _op: c_uint, _flags: u32) -> c_int {
    0
}

/// A negative error number: programs ask for each entry instead
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut Context,
    _entries: *mut GidEntry,
    _most: usize,
    _flags: u32,
    _size: usize,
) -> isize {
    -(ENOTSUP.0 as isize)
}
