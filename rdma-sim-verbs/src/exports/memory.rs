//! Protection domains and memory

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdma_core::{Access, Device as _, MemoryRegion};
use rdma_verbs_abi::{Context, Mr, Pd};

use crate::engine::Engine;
use crate::errno::{EBUSY, EINVAL, guarded, null, same};
use crate::objects::{ContextObject, MrObject, PdObject};
use crate::slots::{hand_out, object, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut Context) -> *mut Pd {
    guarded(null, || {
        // SAFETY: the contract of all functions.
        let Some(found) = (unsafe { object::<ContextObject>(context) }) else { return null(EINVAL) };
        if !Engine::get().is_some_and(Engine::claim_host) {
            return null(EBUSY);
        }
        match found.device.alloc_pd() {
            Ok(device) => {
                let abi = Pd { context, handle: 0 };
                hand_out(PdObject { abi, device, users: AtomicUsize::new(0) })
            }
            // Apple's provider returns NULL without an error number.
            Err(_) => null(0),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut Pd) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        match unsafe { object::<PdObject>(pd) } {
            None => EINVAL,
            Some(found) if found.users.load(Ordering::Acquire) > 0 => EBUSY,
            Some(_) => {
                // SAFETY: as above.
                drop(unsafe { take_back::<PdObject>(pd) });
                0
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    guarded(null, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<PdObject>(pd) };
        let (Some(found), Some(start)) = (found, NonNull::new(addr.cast::<u8>())) else {
            return null(EINVAL);
        };
        // No memory is that long, or wraps around the end of the addresses.
        if isize::try_from(length).is_err() || addr.addr().checked_add(length).is_none() {
            return null(EINVAL);
        }
        let memory = NonNull::slice_from_raw_parts(start, length);
        let rights = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
        let granted = rights.into_iter().filter(|right| access as u32 & right.bits() != 0);
        let access = granted.fold(Access::NONE, Access::union);
        // SAFETY: the program keeps the memory until it deregisters it, as the manual page says.
        match unsafe { found.device.register(memory, access) } {
            Ok(region) => {
                found.users.fetch_add(1, Ordering::AcqRel);
                let (lkey, rkey) = (region.lkey().0, region.rkey().map_or(0, |rkey| rkey.0));
                let abi = Mr { context: found.abi.context, pd, addr, length, handle: 0, lkey, rkey };
                hand_out(MrObject { abi, region: Some(region) })
            }
            Err(error) => null(error.errno()),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let Some(mut taken) = (unsafe { take_back::<MrObject>(mr) }) else { return EINVAL };
        drop(taken.region.take());
        // SAFETY: a protection domain is not deallocated while a region hangs on it.
        if let Some(pd) = unsafe { object::<PdObject>(taken.abi.pd) } {
            pd.users.fetch_sub(1, Ordering::AcqRel);
        }
        0
    })
}
