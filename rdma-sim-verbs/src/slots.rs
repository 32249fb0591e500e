//! The memory behind the pointers of the ABI
//!
//! Each structure of the ABI is the first part of an object, so that its address leads to both. Before the object lies a tag of
//! its type, or of a free slot. The memory of a slot holds objects of one type for ever, and a freed slot is used again late:
//! a stale pointer finds the tag of a free slot, and a pointer to an object of another type finds that type's tag.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// An object that begins with the structure `Abi`
///
/// # Safety
///
/// The first field of the type has the type `Abi`, and both are `repr(C)`.
pub(crate) unsafe trait Object: Sized + 'static {
    type Abi;
    const TYPE_TAG: u64;
    /// The free slots of the type, oldest first
    fn free_list() -> &'static Mutex<VecDeque<FreeSlot>>;
}

/// A slot without an object
#[derive(Debug)]
pub(crate) struct FreeSlot(*mut u64);

// SAFETY: only `hand_out` accesses the memory of a free slot, beside reads of its atomic tag.
unsafe impl Send for FreeSlot {}

#[repr(C, align(16))]
struct Slot<T> {
    tag: AtomicU64,
    /// Objects of all types begin at the same distance.
    _space: u64,
    object: MaybeUninit<T>,
}

const FREE: u64 = u64::from_le_bytes(*b"tb5 gone");
/// From the tag to the object.
const OBJECT_OFFSET: usize = 16;
/// Slots of a type that have to be free before the oldest is used again
const MIN_FREE_SLOTS: usize = 256;

/// The slot of an object, whose tag can be read
fn slot<T: Object>(abi: *mut T::Abi) -> Option<*mut Slot<T>> {
    const { assert!(std::mem::offset_of!(Slot<T>, object) == OBJECT_OFFSET) };
    let is_possible = !abi.is_null() && abi.cast::<Slot<T>>().is_aligned();
    is_possible.then(|| abi.wrapping_byte_sub(OBJECT_OFFSET).cast::<Slot<T>>())
}

fn has_object<T: Object>(slot: *mut Slot<T>) -> bool {
    // SAFETY: the caller of the ABI promises a pointer that came from here; slots are never deallocated.
    let tag = unsafe { &(*slot).tag };
    tag.load(Ordering::Acquire) == T::TYPE_TAG
}

/// The object behind a pointer of the ABI; `None` for NULL, for objects of another type, and for free slots
///
/// # Safety
///
/// The pointer is NULL, or came from [`hand_out`]; no thread takes the object back meanwhile.
pub(crate) unsafe fn object<'a, T: Object>(abi: *mut T::Abi) -> Option<&'a T> {
    let slot = slot::<T>(abi).filter(|slot| has_object(*slot))?;
    // SAFETY: the tag says that the slot holds an object.
    let object = unsafe { &(*slot).object };
    // SAFETY: as above.
    Some(unsafe { object.assume_init_ref() })
}

/// Hands an object to the program
pub(crate) fn hand_out<T: Object>(object: T) -> *mut T::Abi {
    let mut free = T::free_list().lock().unwrap_or_else(PoisonError::into_inner);
    let reused = if free.len() > MIN_FREE_SLOTS { free.pop_front() } else { None };
    drop(free);
    let new = || Slot::<T> { tag: AtomicU64::new(FREE), _space: 0, object: MaybeUninit::uninit() };
    let slot = match reused {
        Some(FreeSlot(slot)) => slot.cast::<Slot<T>>(),
        None => Box::into_raw(Box::new(new())),
    };
    // SAFETY: the slot is new, or was freed by `take_back`; no other thread has it.
    unsafe { (*slot).object.write(object) };
    // SAFETY: as above.
    unsafe { (*slot).tag.store(T::TYPE_TAG, Ordering::Release) };
    // Derived from the whole slot, because its tag is before the object.
    slot.wrapping_byte_add(OBJECT_OFFSET).cast()
}

/// Takes an object back from the program, which does not use it any more
///
/// # Safety
///
/// As [`object`].
pub(crate) unsafe fn take_back<T: Object>(abi: *mut T::Abi) -> Option<T> {
    let slot = slot::<T>(abi)?;
    // SAFETY: as in `has_object`.
    let tag = unsafe { &(*slot).tag };
    tag.compare_exchange(T::TYPE_TAG, FREE, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: as in `has_object`.
    let object = unsafe { &(*slot).object };
    // SAFETY: the tag said that the slot holds an object, and this thread alone has changed the tag.
    let object = unsafe { object.assume_init_read() };
    T::free_list().lock().unwrap_or_else(PoisonError::into_inner).push_back(FreeSlot(slot.cast()));
    Some(object)
}
