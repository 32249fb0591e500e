//! Names of numbers

use std::ffi::{CStr, c_char, c_int, c_uint};

use rdma_verbs_abi::constants;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        0 => c"success",
        1 => c"local length error",
        4 => c"local protection error",
        5 => c"Work Request Flushed Error",
        7 => c"bad response error",
        10 => c"remote access error",
        12 => c"transport retry counter exceeded",
        _ => c"unknown",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_port_state_str(state: c_uint) -> *const c_char {
    let text: &CStr = match state {
        0 => c"PORT_NOP",
        constants::PORT_DOWN => c"PORT_DOWN",
        2 => c"PORT_INIT",
        3 => c"PORT_ARMED",
        constants::PORT_ACTIVE => c"PORT_ACTIVE",
        5 => c"PORT_ACTIVE_DEFER",
        _ => c"invalid state",
    };
    text.as_ptr()
}

/// The text for Apple's own type is assumed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    let text: &CStr = match node_type {
        1 => c"InfiniBand channel adapter",
        2 => c"InfiniBand switch",
        3 => c"InfiniBand router",
        4 => c"iWARP NIC",
        100 => c"Thunderbolt",
        _ => c"unknown",
    };
    text.as_ptr()
}
