//! Devices, their ports and GID tables

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::OnceLock;

use rdma_core::{Device as _, PortState};
use rdma_verbs_abi::{
    Context, ContextOps, Device, DeviceAttr, PORT_ATTR_COMPAT, PortAttr, PostRecv, PostSend, RawGid,
    constants,
};

use super::blocking::blocking;
use super::channel::req_notify_cq;
use super::completion::poll_cq;
use super::post::{post_recv, post_send};
use crate::devices::Listed;
use crate::engine::Engine;
use crate::errno::{EINVAL, guarded, minus_one, null, same};
use crate::objects::{ContextObject, ListedDevice};
use crate::slots::{hand_out, object, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device {
    guarded(null, || {
        let devices = Engine::get().map_or(&[][..], listed_devices);
        let entries = devices.iter().map(|place| std::ptr::with_exposed_provenance_mut(*place));
        let list: Box<[*mut Device]> = entries.chain([null_mut()]).collect();
        if !count.is_null() {
            // SAFETY: the caller's place for a number.
            unsafe { *count = (list.len() - 1) as c_int };
        }
        Ok(Box::into_raw(list).cast())
    })
}

/// The addresses of the devices, each of which is made once
fn listed_devices(engine: &Engine) -> &'static [usize] {
    static DEVICES: OnceLock<Vec<usize>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let entries = engine.devices.iter().map(|listed| {
            let mut name = [0; 64];
            let len = listed.name.len().min(name.len() - 1);
            name[..len].copy_from_slice(&listed.name.as_bytes()[..len]);
            let abi = Device {
                ops: [null_mut(); 2],
                node_type: constants::THUNDERBOLT,
                transport_type: constants::THUNDERBOLT,
                name,
                dev_name: name,
                dev_path: [0; 256],
                ibdev_path: [0; 256],
            };
            hand_out(ListedDevice { abi, listed: listed.clone() }).expose_provenance()
        });
        entries.collect()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut Device) {
    if list.is_null() {
        return;
    }
    let mut len = 0;
    loop {
        // SAFETY: the list ends with NULL.
        let place = unsafe { list.add(len) };
        // SAFETY: as above.
        let entry = unsafe { *place };
        len += 1;
        if entry.is_null() {
            break;
        }
    }
    // SAFETY: the list is a box of so many entries, and freed once.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut Device) -> *const c_char {
    // SAFETY: the contract of all functions.
    unsafe { object::<ListedDevice>(device) }.map_or(null_mut(), |entry| entry.abi.name.as_ptr().cast())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut Device) -> u64 {
    // SAFETY: the contract of all functions.
    unsafe { object::<ListedDevice>(device) }.map_or(0, |entry| entry.listed.guid.to_be())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut Device) -> *mut Context {
    blocking(null, || {
        // SAFETY: the contract of all functions.
        let listed = unsafe { object::<ListedDevice>(device) }?.listed.clone();
        let engine = Engine::get()?;
        // The device is opened as it is now.
        engine.catch_up();
        let opened = engine.driver.net().open_context(&listed.host, &listed.device);
        let opened = opened.map_err(rdma_core::Error::from)?;
        engine.note_opened();
        let ops = ContextOps {
            before: [null_mut(); 11],
            poll_cq: Some(poll_cq),
            req_notify_cq: Some(req_notify_cq),
            between: [null_mut(); 12],
            post_send: Some(post_send as PostSend),
            post_recv: Some(post_recv as PostRecv),
            after: [null_mut(); 5],
        };
        let abi =
            Context { device, ops, cmd_fd: -1, async_fd: -1, num_comp_vectors: 1, ..Context::default() };
        Ok(hand_out(ContextObject { abi, device: opened, listed }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut Context) -> c_int {
    blocking(same, || {
        // Objects that a program forgets are no reason to refuse: perftest leaves a completion queue behind.
        // SAFETY: the contract of all functions.
        drop(unsafe { take_back::<ContextObject>(context) }?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ContextObject>(context) }?;
        // SAFETY: as above.
        let attr = unsafe { attr.as_mut() }.ok_or(EINVAL)?;
        let caps = found.device.caps();
        *attr = DeviceAttr::default();
        // One more than it gives, as `ibv_devinfo -v` was seen to print on Macs.
        attr.max_qp = caps.max_qp as c_int + 1;
        attr.max_qp_wr = caps.max_queue_frames as c_int;
        attr.max_sge = caps.max_sge as c_int;
        attr.max_cq = caps.max_cq as c_int;
        attr.max_cqe = caps.max_cqe as c_int;
        attr.max_mr = caps.max_mr as c_int;
        attr.max_pd = caps.max_pd as c_int;
        attr.max_mr_size = 0xfa_0000;
        attr.phys_port_cnt = 1;
        attr.node_guid = found.listed.guid.to_be();
        attr.sys_image_guid = found.listed.guid.to_be();
        attr.max_pkeys = 1;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(context: *mut Context, port: u8, attr: *mut PortAttr) -> c_int {
    blocking(same, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ContextObject>(context) }?;
        let engine = Engine::get()?;
        if port != 1 || attr.is_null() {
            return Err(EINVAL);
        }
        engine.catch_up();
        let Listed { host, device, .. } = &found.listed;
        let status = found.device.port()?;
        let gids = engine.driver.net().gids(host, device).map_err(rdma_core::Error::from)?;
        let is_active = status.state == PortState::Active;
        let answer = PortAttr {
            state: if is_active { constants::PORT_ACTIVE } else { constants::PORT_DOWN },
            max_mtu: constants::MTU_4096,
            active_mtu: constants::MTU_4096,
            gid_tbl_len: table_len(engine, gids.len()) as c_int,
            max_msg_sz: found.device.caps().max_message.next_power_of_two(),
            pkey_tbl_len: 1,
            lid: 1,
            active_width: 4,
            active_speed: if status.bits_per_second > 40_000_000_000 { 4 } else { 2 },
            phys_state: if is_active { 5 } else { 3 },
            link_layer: engine.link_layer,
            ..PortAttr::default()
        };
        let size = PORT_ATTR_COMPAT;
        // SAFETY: the exported function fills the compatible part of the structure and nothing beyond.
        unsafe { (&raw const answer).cast::<u8>().copy_to_nonoverlapping(attr.cast(), size) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut Context,
    port: u8,
    index: c_int,
    gid: *mut RawGid,
) -> c_int {
    blocking(minus_one, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ContextObject>(context) }?;
        if port != 1 || gid.is_null() {
            return Err(EINVAL);
        }
        let engine = Engine::get()?;
        let gids = found.device.gids()?;
        let len = table_len(engine, gids.len());
        let entry = usize::try_from(index).ok().filter(|index| *index < len).ok_or(EINVAL)?;
        let entry = gids.get(entry).copied().unwrap_or_default();
        if engine.rules.large_gid_table && entry.is_zero() {
            return Err(EINVAL);
        }
        // SAFETY: the caller's place for an entry.
        unsafe { *gid = RawGid { raw: entry.0 } };
        Ok(0)
    })
}

/// The entries of a GID table that a program sees, of which so many may be set
fn table_len(engine: &Engine, set: usize) -> usize {
    set.max(if engine.rules.large_gid_table { 1024 } else { 16 })
}
