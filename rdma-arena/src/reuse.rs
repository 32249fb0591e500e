//! Keeping the mappings of dropped arenas for later ones

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::mapping::Mapping;

/// While it lives, arenas of this thread reuse the mappings of dropped ones of the same length
///
/// For programs that make and drop many arenas, such as thousands of simulations: the system gives a fresh mapping page by page, which
/// takes longer than to clear the pages that were used. Arenas are zero-filled as ever. The memory is given back when the last
/// `Reuse` of the thread is dropped. Without effect except on Linux.
///
/// A device that writes into the memory of a dropped arena, which is a bug, then writes into one that may be used again, where it would
/// end the process otherwise.
///
/// ```
/// use rdma_arena::{Arena, Reuse};
///
/// let reuse = Reuse::on_this_thread();
/// for _ in 0..1_000 {
///     let arena = Arena::new(32 << 20)?;
///     drop(arena);
/// }
/// drop(reuse);
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "mappings are kept only while it lives"]
pub struct Reuse {
    /// It counts for the thread that made it.
    _not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
struct KeptMappings {
    /// How many [`Reuse`] of this thread live
    users: usize,
    /// The process that has the mappings: a forked child does not
    process: u32,
    mappings: Vec<Arc<Mapping>>,
}

/// Most mappings that are kept
const MAX_KEPT: usize = 16;

thread_local! {
    static KEPT: RefCell<KeptMappings> =
        RefCell::new(KeptMappings { users: 0, process: std::process::id(), mappings: Vec::new() });
}

/// Calls `f` with the mappings that this thread keeps, unless the thread ends
fn with_kept<T>(f: impl FnOnce(&mut KeptMappings) -> T) -> Option<T> {
    let with_own = |kept: &RefCell<KeptMappings>| {
        let kept = &mut *kept.borrow_mut();
        if kept.process != std::process::id() {
            kept.process = std::process::id();
            // Unmapping the mappings of the parent would unmap what the child has at the same addresses.
            std::mem::forget(std::mem::take(&mut kept.mappings));
        }
        f(kept)
    };
    KEPT.try_with(with_own).ok()
}

impl Reuse {
    /// Keeps mappings from now on
    pub fn on_this_thread() -> Self {
        with_kept(|kept| kept.users += 1);
        Self { _not_send: PhantomData }
    }
}

impl Drop for Reuse {
    fn drop(&mut self) {
        with_kept(|kept| {
            kept.users -= 1;
            if kept.users == 0 {
                kept.mappings.clear();
            }
        });
    }
}

/// A mapping of `len` usable bytes that no arena has any more, zero-filled
pub(crate) fn take(len: usize) -> Option<Arc<Mapping>> {
    let take = |kept: &mut KeptMappings| {
        let is_idle = |kept: &mut Arc<Mapping>| kept.len() == len && Arc::get_mut(kept).is_some();
        let position = kept.mappings.iter_mut().position(is_idle)?;
        let is_clear = Arc::get_mut(&mut kept.mappings[position]).is_some_and(|idle| idle.clear().is_ok());
        if is_clear {
            return Some(Arc::clone(&kept.mappings[position]));
        }
        kept.mappings.swap_remove(position);
        None
    };
    with_kept(take).flatten()
}

/// Keeps a mapping for arenas to come, if this thread reuses mappings
pub(crate) fn keep(mapping: &Arc<Mapping>) {
    let keep = |kept: &mut KeptMappings| {
        // Elsewhere they cannot be cleared.
        if kept.users == 0 || !cfg!(target_os = "linux") {
            return;
        }
        if kept.mappings.len() == MAX_KEPT {
            kept.mappings.retain(|mapping| Arc::strong_count(mapping) > 1);
        }
        if kept.mappings.len() < MAX_KEPT {
            kept.mappings.push(Arc::clone(mapping));
        }
    };
    with_kept(keep);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::KEPT;
    use crate::{Arena, Reuse};

    const LEN: usize = 8 << 20;

    fn write(arena: &Arena, offset: usize) {
        assert!(offset < arena.len());
        let byte = arena.as_ptr().as_ptr().wrapping_add(offset);
        #[allow(unsafe_code, reason = "an arena is accessed by pointer")]
        // SAFETY: the byte is inside the arena, which no device and no other thread uses.
        unsafe {
            byte.write(7);
        }
    }

    fn is_zero(arena: &Arena) -> bool {
        #[allow(unsafe_code, reason = "an arena is accessed by pointer")]
        // SAFETY: no device and no other thread uses the arena.
        let bytes = unsafe { arena.as_slice_ptr().as_ref() };
        bytes.iter().all(|byte| *byte == 0)
    }

    /// Catches a `Mapping::clear` that clears nothing, or only pages at the beginning.
    #[test]
    fn a_reused_mapping_is_zero_filled() {
        let _alone = crate::tests::alone();
        let _reuse = Reuse::on_this_thread();
        for used in [&[0][..], &[LEN - 1], &[5000, LEN / 2, LEN - 1], &[]] {
            let first = Arena::new(LEN).unwrap();
            let address = first.as_ptr();
            used.iter().for_each(|offset| write(&first, *offset));
            drop(first);
            let second = Arena::new(LEN).unwrap();
            assert_eq!(second.as_ptr(), address, "the mapping is the same");
            assert!(is_zero(&second), "after {used:?}");
        }
        let whole = Arena::new(LEN).unwrap();
        (0..LEN).step_by(4096).for_each(|offset| write(&whole, offset));
        drop(whole);
        assert!(is_zero(&Arena::new(LEN).unwrap()), "after all pages were used");
    }

    /// Catches a mapping that is cleared at its beginning only, or not to the end of a range, or by what an earlier arena said.
    #[test]
    fn a_retired_arena_is_cleared_where_it_was_written() {
        let _alone = crate::tests::alone();
        let _reuse = Reuse::on_this_thread();
        let retired = Arena::new(LEN).unwrap();
        let address = retired.as_ptr();
        [0, 9_999, LEN / 2, LEN - 1].iter().for_each(|offset| write(&retired, *offset));
        retired.retire(vec![0..10_000, LEN / 2..LEN / 2 + 1, LEN - 1..LEN]);
        let dropped = Arena::new(LEN).unwrap();
        assert_eq!(dropped.as_ptr(), address, "the mapping is the same");
        assert!(is_zero(&dropped), "after an arena that was retired");
        write(&dropped, LEN / 4);
        drop(dropped);
        let last = Arena::new(LEN).unwrap();
        assert!(is_zero(&last), "after one that was dropped");
        // What is said of the memory is believed.
        write(&last, LEN / 4);
        last.retire(Vec::new());
        assert!(!is_zero(&Arena::new(LEN).unwrap()));
    }

    #[test]
    #[should_panic(expected = "1..8388609 is not inside the arena")]
    fn a_range_outside_of_the_arena_is_refused() {
        Arena::new(LEN).unwrap().retire(vec![0..1, 1..LEN + 1]);
    }

    /// Catches that `take` gives a mapping to two arenas, or one of another length.
    #[test]
    fn a_mapping_has_one_arena_at_a_time() {
        let _alone = crate::tests::alone();
        let _reuse = Reuse::on_this_thread();
        let arenas: Vec<_> = (0..40).map(|_| Arena::new(LEN).unwrap()).collect();
        let mut addresses: Vec<_> = arenas.iter().map(Arena::as_ptr).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 40);
        drop(arenas);
        assert_eq!(Arena::new(LEN / 2).unwrap().len(), LEN / 2);
    }

    /// Catches mappings that are kept for ever, or that an inner guard gives back for an outer one.
    #[test]
    fn mappings_are_kept_while_a_guard_lives() {
        let _alone = crate::tests::alone();
        let kept = || KEPT.with_borrow(|kept| kept.mappings.len());
        let outer = Reuse::on_this_thread();
        let inner = Reuse::on_this_thread();
        drop(Arena::new(LEN).unwrap());
        drop(inner);
        assert_eq!(kept(), 1, "the outer guard lives");
        drop(outer);
        assert_eq!(kept(), 0, "no guard lives");
        drop(Arena::new(LEN).unwrap());
        assert_eq!(kept(), 0, "no guard lives");
    }

    /// Catches a child that takes or unmaps what its parent keeps: by then it may have something else there.
    #[test]
    #[allow(unsafe_code, reason = "the child maps memory at an address of its choice")]
    fn a_forked_child_does_not_share_the_mappings_that_its_parent_keeps() {
        let _alone = crate::tests::alone();
        let reuse = Reuse::on_this_thread();
        let arena = Arena::new(LEN).unwrap();
        let kept = arena.as_ptr();
        drop(arena);
        let is_apart = crate::tests::in_child(move || {
            let place = kept.as_ptr().cast();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: the flags refuse an address at which the child has memory.
            let own = unsafe { libc::mmap(place, LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            if own != place {
                return false;
            }
            // SAFETY: the mapping is the child's own and has `LEN` bytes.
            let own = unsafe { std::slice::from_raw_parts_mut(own.cast::<u8>(), LEN) };
            own.fill(9);
            let Ok(arena) = Arena::new(LEN) else { return false };
            let is_another = arena.as_ptr() != kept;
            write(&arena, 0);
            drop((arena, reuse));
            // Reading ends the child with a signal if its mapping is gone.
            is_another && own.iter().all(|byte| *byte == 9)
        });
        assert!(is_apart);
        assert_eq!(Arena::new(LEN).unwrap().as_ptr(), kept, "the parent still has it");
    }
}
