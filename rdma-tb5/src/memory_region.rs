//! Memory regions behind the traits
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;

use rdma_core::{Access, Cause, Error, Invalid, Lkey, MemoryRegion, Rkey, Teardown, Verb, crosses_boundary};
use rdma_verbs_abi::Mr;

use crate::errno;
use crate::shared::DeviceShared;
use crate::sync::Arc;

/// Memory registered with a [`VerbsDevice`](crate::VerbsDevice)
pub struct VerbsMemoryRegion {
    device: Arc<DeviceShared>,
    mr: NonNull<Mr>,
    base: u64,
    lkey: Lkey,
    rkey: Rkey,
    /// What the deregistration has shown, once there was one.
    teardown: Option<Teardown>,
}

// SAFETY: the structure is only named to deregister the region, once, which may happen on any thread.
unsafe impl Send for VerbsMemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for VerbsMemoryRegion {}

impl VerbsMemoryRegion {
    /// Registers memory
    ///
    /// # Safety
    ///
    /// As [`Device::register`](rdma_core::Device::register).
    pub(crate) unsafe fn new(
        device: Arc<DeviceShared>,
        mem: NonNull<[u8]>,
        access: Access,
    ) -> Result<Self, Error> {
        let is_guarded = device.is_apple && !device.options.is_unguarded;
        let (addr, len) = (mem.addr().get() as u64, mem.len() as u64);
        // Apple's device accepts such memory, and was seen to write what it receives exactly 4 GiB too low.
        if is_guarded && crosses_boundary(addr, len) {
            return Err(Error::new(Verb::RegMr, Invalid::CrossesBoundary { addr, len }.into()));
        }
        let register = |access: Access| {
            let (addr, access) = (mem.cast().as_ptr(), access.bits() as c_int);
            errno::clear();
            // SAFETY: the protection domain exists, and the caller promises that the memory is valid until the region is dropped.
            let mr =
                unsafe { (device.context.provider.ibv_reg_mr)(device.pd.as_ptr(), addr, mem.len(), access) };
            NonNull::new(mr).ok_or_else(errno::last)
        };
        // Reports disagree on whether Apple's device wants more rights than it uses: they are the second attempt. No peer can use
        // them: the device has no one-sided operations, and `rkey` hands out no key there.
        let all = access.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);
        let is_invalid = |errno| matches!(errno::cause(errno), Cause::Invalid(_));
        let mr = register(access)
            .or_else(|errno| if is_guarded && is_invalid(errno) { register(all) } else { Err(errno) });
        match mr {
            Ok(mr) => {
                // SAFETY: the provider keeps the structure until the region is deregistered, and does not write to it.
                let Mr { addr, lkey, rkey, .. } = unsafe { mr.as_ref() };
                let (base, lkey, rkey) = (*addr as u64, Lkey(*lkey), Rkey(*rkey));
                Ok(Self { device, mr, base, lkey, rkey, teardown: None })
            }
            Err(errno) => {
                let cause = errno::registration_cause(errno, device.caps.max_mr, errno::lock_limit());
                Err(Error::new(Verb::RegMr, cause))
            }
        }
    }
}

impl MemoryRegion for VerbsMemoryRegion {
    fn base(&self) -> u64 {
        self.base
    }

    fn lkey(&self) -> Lkey {
        self.lkey
    }

    fn rkey(&self) -> Option<Rkey> {
        (!self.device.is_apple && self.rkey != Rkey(0)).then_some(self.rkey)
    }

    fn deregister(&mut self) -> Teardown {
        if let Some(teardown) = self.teardown {
            return teardown;
        }
        // SAFETY: the region is deregistered once, and before its protection domain, which `device` keeps.
        let failed = unsafe { (self.device.context.provider.ibv_dereg_mr)(self.mr.as_ptr()) };
        let teardown = if failed == 0 {
            Teardown::Quiesced
        } else {
            // The provider keeps the pages locked: a write of the device still lands in them.
            tracing::warn!(errno = failed, "memory could not be deregistered");
            Teardown::Unknown
        };
        *self.teardown.insert(teardown)
    }
}

impl Drop for VerbsMemoryRegion {
    fn drop(&mut self) {
        let _answer = self.deregister();
    }
}

impl fmt::Debug for VerbsMemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsMemoryRegion").field("lkey", &self.lkey()).finish_non_exhaustive()
    }
}
