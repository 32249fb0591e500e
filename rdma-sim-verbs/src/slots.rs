//! The memory behind the pointers of the ABI
//!
//! Each structure of the ABI is the first part of an object, so that its address leads to both. Before the object lies a tag of
//! its type, or of a free slot. The memory of a slot holds objects of one type for ever, and a freed slot is used again late:
//! a stale pointer finds the tag of a free slot, and a pointer to an object of another type finds that type's tag. A slot counts
//! the objects that use its own, which stays until they are gone.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::errno::{EBUSY, EINVAL, Errno};

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
    /// Objects that use this one.
    users: AtomicU64,
    object: MaybeUninit<T>,
}

const FREE: u64 = u64::from_le_bytes(*b"tb5 gone");
/// From the tag to the object.
const OBJECT_OFFSET: usize = 16;
/// Slots of a type that have to be free before the oldest is used again
const MIN_FREE_SLOTS: usize = 256;

/// The slot of an object; [`EINVAL`] for NULL, for objects of another type, and for free slots
fn slot<T: Object>(abi: *mut T::Abi) -> Result<*mut Slot<T>, Errno> {
    const { assert!(std::mem::offset_of!(Slot<T>, object) == OBJECT_OFFSET) };
    if abi.is_null() || !abi.cast::<Slot<T>>().is_aligned() {
        return Err(EINVAL);
    }
    let slot = abi.wrapping_byte_sub(OBJECT_OFFSET).cast::<Slot<T>>();
    // SAFETY: the caller of the ABI promises a pointer that came from here; slots are never deallocated.
    let tag = unsafe { &(*slot).tag };
    if tag.load(Ordering::Acquire) == T::TYPE_TAG { Ok(slot) } else { Err(EINVAL) }
}

/// The count of the objects that use the one behind a pointer of the ABI
fn users<T: Object>(abi: *mut T::Abi) -> Option<&'static AtomicU64> {
    // SAFETY: as in `slot`.
    slot::<T>(abi).ok().map(|slot| unsafe { &(*slot).users })
}

/// Keeps an object from being taken back; does nothing for NULL
///
/// # Safety
///
/// As [`object`].
pub(crate) unsafe fn hold<T: Object>(abi: *mut T::Abi) {
    users::<T>(abi).map(|users| users.fetch_add(1, Ordering::AcqRel));
}

/// Undoes a [`hold`]
///
/// # Safety
///
/// As [`object`].
pub(crate) unsafe fn release<T: Object>(abi: *mut T::Abi) {
    users::<T>(abi).map(|users| users.fetch_sub(1, Ordering::AcqRel));
}

/// The object behind a pointer of the ABI; [`EINVAL`] for NULL, for objects of another type, and for free slots
///
/// # Safety
///
/// The pointer is NULL, or came from [`hand_out`]; no thread takes the object back meanwhile.
pub(crate) unsafe fn object<'a, T: Object>(abi: *mut T::Abi) -> Result<&'a T, Errno> {
    let slot = slot::<T>(abi)?;
    // SAFETY: the tag says that the slot holds an object.
    let object = unsafe { &(*slot).object };
    // SAFETY: as above.
    Ok(unsafe { object.assume_init_ref() })
}

/// Hands an object to the program
pub(crate) fn hand_out<T: Object>(object: T) -> *mut T::Abi {
    let mut free = T::free_list().lock().unwrap_or_else(PoisonError::into_inner);
    let reused = if free.len() > MIN_FREE_SLOTS { free.pop_front() } else { None };
    drop(free);
    let none = AtomicU64::new(0);
    let new = || Slot::<T> { tag: AtomicU64::new(FREE), users: none, object: MaybeUninit::uninit() };
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

/// Takes an object back from the program, which does not use it any more; [`EBUSY`] if other objects use it
///
/// # Safety
///
/// As [`object`].
pub(crate) unsafe fn take_back<T: Object>(abi: *mut T::Abi) -> Result<T, Errno> {
    let slot = slot::<T>(abi)?;
    if users::<T>(abi).is_some_and(|users| users.load(Ordering::Acquire) > 0) {
        return Err(EBUSY);
    }
    // SAFETY: as in `slot`.
    let tag = unsafe { &(*slot).tag };
    let taken = tag.compare_exchange(T::TYPE_TAG, FREE, Ordering::AcqRel, Ordering::Relaxed);
    taken.map_err(|_| EINVAL)?;
    // SAFETY: as in `slot`.
    let object = unsafe { &(*slot).object };
    // SAFETY: the tag said that the slot holds an object, and this thread alone has changed the tag.
    let object = unsafe { object.assume_init_read() };
    T::free_list().lock().unwrap_or_else(PoisonError::into_inner).push_back(FreeSlot(slot.cast()));
    Ok(object)
}
