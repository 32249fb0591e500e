//! Devices, their ports and GID tables

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::OnceLock;

use rdma_core::{Device as _, PortState};
use rdma_verbs_abi::{
    Context, ContextOps, Device, DeviceAttr, PORT_ATTR_COMPAT, PortAttr, PostRecv, PostSend, RawGid,
    constants,
};

use super::channel::req_notify_cq;
use super::completion::poll_cq;
use super::post::{post_recv, post_send};
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
        Box::into_raw(list).cast()
    })
}

/// The addresses of the devices, each of which is made once
fn listed_devices(engine: &Engine) -> &'static [usize] {
    static DEVICES: OnceLock<Vec<usize>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let entries = engine.devices.iter().map(|listed| {
            let mut abi = [0_u64; 83];
            abi[2] = u64::from(constants::THUNDERBOLT) << 32 | u64::from(constants::THUNDERBOLT);
            for (at, chunk) in listed.name.as_bytes().chunks(8).take(7).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                abi[3 + at] = u64::from_ne_bytes(word);
                abi[11 + at] = u64::from_ne_bytes(word);
            }
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
    if unsafe { object::<ListedDevice>(device) }.is_none() {
        return std::ptr::null();
    }
    // SAFETY: the name is at offset 24 of the structure.
    unsafe { device.cast::<c_char>().add(24) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut Device) -> u64 {
    // SAFETY: the contract of all functions.
    unsafe { object::<ListedDevice>(device) }.map_or(0, |entry| entry.listed.guid.to_be())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut Device) -> *mut Context {
    guarded(null, || {
        // SAFETY: the contract of all functions.
        let Some(entry) = (unsafe { object::<ListedDevice>(device) }) else { return null(EINVAL) };
        let listed = &entry.listed;
        let Some(engine) = Engine::get() else { return null(EINVAL) };
        // The device is opened as it is now.
        engine.catch_up();
        let opened = match engine.driver.net().open_context(&listed.host, &listed.device) {
            Ok(opened) => opened,
            Err(error) => return null(error.errno()),
        };
        let ops = ContextOps {
            before: [null_mut(); 11],
            poll_cq: Some(poll_cq),
            req_notify_cq: Some(req_notify_cq),
            between: [null_mut(); 12],
            post_send: Some(post_send as PostSend),
            post_recv: Some(post_recv as PostRecv),
            after: [null_mut(); 5],
        };
        // SAFETY: zeros are valid for the structure: numbers, NULL, and a mutex that is not used.
        let mut abi: Context = unsafe { std::mem::zeroed() };
        abi.device = device;
        abi.ops = ops;
        abi.cmd_fd = -1;
        abi.async_fd = -1;
        abi.num_comp_vectors = 1;
        let (host, name, guid) = (listed.host.clone(), listed.device.clone(), listed.guid);
        hand_out(ContextObject { abi, device: opened, host, name, guid })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut Context) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        match unsafe { take_back::<ContextObject>(context) } {
            // Objects that a program forgets are no reason to refuse: perftest leaves a completion queue behind.
            Some(_) => 0,
            None => EINVAL,
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let Some(found) = (unsafe { object::<ContextObject>(context) }) else { return EINVAL };
        // SAFETY: as above.
        let Some(attr) = (unsafe { attr.as_mut() }) else { return EINVAL };
        let caps = found.device.caps();
        // SAFETY: zeros are valid numbers.
        *attr = unsafe { std::mem::zeroed() };
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
        attr.node_guid = found.guid.to_be();
        attr.sys_image_guid = found.guid.to_be();
        attr.max_pkeys = 1;
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(context: *mut Context, port: u8, attr: *mut PortAttr) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let Some(found) = (unsafe { object::<ContextObject>(context) }) else { return EINVAL };
        let Some(engine) = Engine::get() else { return EINVAL };
        if port != 1 || attr.is_null() {
            return EINVAL;
        }
        engine.catch_up();
        let net = engine.driver.net();
        let (Ok(status), Ok(gids)) = (net.port(&found.host, &found.name), net.gids(&found.host, &found.name))
        else {
            return EINVAL;
        };
        let is_active = status.state == PortState::Active;
        let answer = PortAttr {
            state: if is_active { constants::PORT_ACTIVE } else { constants::PORT_DOWN },
            max_mtu: constants::MTU_4096,
            active_mtu: constants::MTU_4096,
            gid_tbl_len: gids.len().max(16) as c_int,
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
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut Context,
    port: u8,
    index: c_int,
    gid: *mut RawGid,
) -> c_int {
    guarded(minus_one, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ContextObject>(context) };
        let (Some(found), Some(engine), 1, false) = (found, Engine::get(), port, gid.is_null()) else {
            return minus_one(EINVAL);
        };
        let Ok(gids) = engine.driver.net().gids(&found.host, &found.name) else { return -1 };
        let entry = usize::try_from(index).ok().filter(|index| *index < gids.len().max(16));
        let Some(entry) = entry else {
            return minus_one(EINVAL);
        };
        let raw = gids.get(entry).copied().unwrap_or_default().0;
        // SAFETY: the caller's place for an entry.
        unsafe { *gid = RawGid { raw } };
        0
    })
}
