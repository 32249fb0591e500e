//! Control of the simulation, for tests

use std::ffi::{CStr, c_char, c_int};

use rdma_core::Time;

use crate::engine::Engine;
use crate::errno::{EBUSY, EINVAL, guarded, same};

/// Sets what the environment would, before the first call of any other function: `RDMA_SIM_CLOCK=virtual,RDMA_SIM_SEED=7`
///
/// 16 if the simulation has begun already, 22 without a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_sim_configure(text: *const c_char) -> c_int {
    guarded(same, || {
        if text.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the caller's string ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        if crate::engine::configure(&text.to_string_lossy()) { Ok(0) } else { Err(EBUSY) }
    })
}

/// Advances a virtual clock by `ns` nanoseconds
#[unsafe(no_mangle)]
pub extern "C" fn rdma_sim_rest(ns: u64) {
    guarded(|_| (), || Engine::get().map(|engine| engine.rest(ns)));
}

/// The time by the clock of the simulation, in nanoseconds
#[unsafe(no_mangle)]
pub extern "C" fn rdma_sim_now() -> u64 {
    guarded(|_| 0, || Engine::get().map(|engine| engine.now().as_nanos()))
}

/// Advances a virtual clock to the next event, or to `most` nanoseconds if that is earlier, and returns the time
///
/// For programs that are several tasks: with `RDMA_SIM_CLOCK=stepped`, no poll of one task skips what another one waits for.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_sim_step(most: u64) -> u64 {
    guarded(|_| 0, || Engine::get().map(|engine| engine.step(Time::from_nanos(most)).as_nanos()))
}

/// Schedules the faults of a plan, such as `at 0s a:rdma_en2 unplug`; 22 if the text is not a plan
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_sim_inject(plan: *const c_char) -> c_int {
    guarded(same, || {
        let engine = Engine::get()?;
        if plan.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the caller's string ends with a zero.
        let text = unsafe { CStr::from_ptr(plan) };
        let plan: rdma_sim::FaultPlan = text.to_string_lossy().parse().map_err(|_| EINVAL)?;
        // All faults of a plan have a target, or none is scheduled.
        plan.check(&engine.topology).map_err(|_| EINVAL)?;
        plan.0.into_iter().for_each(|fault| engine.driver.net().inject(fault));
        engine.rest(1);
        engine.catch_up();
        Ok(0)
    })
}

/// Writes the name of the profile that the devices follow, such as `tb5`, or `tb5 with changes`, and returns its length
///
/// At most `len` bytes are written, without a zero at the end. For programs that measure: their figures are not those of a Mac.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_sim_profile(text: *mut c_char, len: usize) -> usize {
    guarded(
        |_| 0,
        || {
            let engine = Engine::get()?;
            let name = engine.profile.as_bytes();
            if !text.is_null() {
                // SAFETY: the caller's memory has `len` bytes.
                unsafe { text.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len().min(len)) };
            }
            Ok(name.len())
        },
    )
}

/// The number of queue pairs, completion queues, memory regions and protection domains
#[unsafe(no_mangle)]
pub extern "C" fn rdma_sim_objects() -> usize {
    let count = || {
        let found = Engine::get()?.driver.net().objects();
        Ok(found.queue_pairs + found.completion_queues + found.memory_regions + found.protection_domains)
    };
    guarded(|_| 0, count)
}
