//! Protection domains and memory

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use rdma_core::{Access, Cause, Device as _, Error, MemoryRegion};
use rdma_verbs_abi::{Context, Mr, Pd};

use super::blocking::blocking;
use crate::engine::Engine;
use crate::errno::{EBUSY, EINVAL, Errno, null, same};
use crate::objects::{ContextObject, MrObject, PdObject};
use crate::slots::{hand_out, hold, object, release, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut Context) -> *mut Pd {
    blocking(null, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ContextObject>(context) }?;
        if !Engine::get()?.claim_host() {
            return Err(EBUSY);
        }
        // Apple's provider returns NULL without an error number.
        let device = found.device.alloc_pd().map_err(|_| Errno(0))?;
        Ok(hand_out(PdObject { abi: Pd { context, handle: 0 }, device }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut Pd) -> c_int {
    blocking(same, || {
        // SAFETY: the contract of all functions.
        drop(unsafe { take_back::<PdObject>(pd) }?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    blocking(null, || {
        if pd.is_null() {
            Engine::get()?.crash("ibv_reg_mr", "the protection domain is NULL");
        }
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<PdObject>(pd) }?;
        let start = NonNull::new(addr.cast::<u8>()).ok_or(EINVAL)?;
        // No memory is that long, or wraps around the end of the addresses.
        if isize::try_from(length).is_err() || addr.addr().checked_add(length).is_none() {
            return Err(EINVAL);
        }
        let memory = NonNull::slice_from_raw_parts(start, length);
        let rights = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
        let granted = rights.into_iter().filter(|right| access as u32 & right.bits() != 0);
        let access = granted.fold(Access::NONE, Access::union);
        // SAFETY: the program keeps the memory until it deregisters it, as the manual page says.
        let registered = unsafe { found.device.register(memory, access) };
        let engine = Engine::get()?;
        let is_surplus = |error: &Error| matches!(error.cause, Cause::Exhausted { .. });
        if engine.rules.surplus_region_crashes && registered.as_ref().is_err_and(is_surplus) {
            engine.crash("ibv_reg_mr", "the device has as many memory regions as it can have");
        }
        let region = registered?;
        engine.silent_outcomes.log_region(memory);
        // SAFETY: the contract of all functions.
        unsafe { hold::<PdObject>(pd) };
        let (lkey, rkey) = (region.lkey().0, region.rkey().map_or(0, |rkey| rkey.0));
        let abi = Mr { context: found.abi.context, pd, addr, length, handle: 0, lkey, rkey };
        Ok(hand_out(MrObject { abi, region }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    blocking(same, || {
        // SAFETY: the contract of all functions.
        let MrObject { abi, region } = unsafe { take_back(mr) }?;
        drop(region);
        // SAFETY: a protection domain is not deallocated while a region hangs on it.
        unsafe { release::<PdObject>(abi.pd) };
        Ok(0)
    })
}
