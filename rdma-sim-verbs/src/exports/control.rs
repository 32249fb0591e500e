//! Control of the simulation, for tests

use std::ffi::{CStr, c_char, c_int};

use super::{EBUSY, EINVAL, guarded};
use crate::engine::Engine;

/// Sets what the environment would, before the first call of any other function: `RDMA_SIM_CLOCK=virtual,RDMA_SIM_SEED=7`
///
/// 16 if the simulation has begun already, 22 without a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_sim_configure(text: *const c_char) -> c_int {
    guarded(EINVAL, || {
        if text.is_null() {
            return EINVAL;
        }
        // SAFETY: the caller's string ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        if crate::engine::configure(&text.to_string_lossy()) { 0 } else { EBUSY }
    })
}

/// Lets so many nanoseconds pass on a virtual clock
#[unsafe(no_mangle)]
pub extern "C" fn rdma_sim_rest(ns: u64) {
    if let Some(engine) = Engine::get() {
        engine.rest(ns);
    }
}

/// Has the faults of a plan happen, such as `at 0s a:rdma_en2 unplug`; 22 if the text is none
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_sim_inject(plan: *const c_char) -> c_int {
    guarded(EINVAL, || {
        let Some(engine) = Engine::get().filter(|_| !plan.is_null()) else { return EINVAL };
        // SAFETY: the caller's string ends with a zero.
        let text = unsafe { CStr::from_ptr(plan) };
        let Ok(plan) = text.to_string_lossy().parse::<rdma_sim::FaultPlan>() else { return EINVAL };
        // All faults of a plan have their place, or none happens.
        if plan.check(&engine.topology).is_err() {
            return EINVAL;
        }
        plan.0.into_iter().for_each(|fault| engine.driver.net().inject(fault));
        engine.rest(1);
        0
    })
}

/// How many queue pairs, completion queues, memory regions and protection domains there are
#[unsafe(no_mangle)]
pub extern "C" fn rdma_sim_objects() -> usize {
    guarded(0, || {
        let objects = Engine::get().map(|engine| engine.driver.net().objects());
        objects.map_or(0, |found| {
            found.queue_pairs + found.completion_queues + found.memory_regions + found.protection_domains
        })
    })
}
