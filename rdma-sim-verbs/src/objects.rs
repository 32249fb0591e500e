//! What the pointers of the ABI lead to
//!
//! Each structure of the ABI is the first part of an object of ours, so that its address leads to both. Before the object lies a
//! mark that tells of which kind it is, or that it is gone. Memory that has held an object holds objects of its kind for ever, and
//! seldom soon again: a stale pointer finds the mark of what is gone, and a pointer to an object of another kind its mark.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rdma_sim::{SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};
use rdma_verbs_abi::{CompChannel, Context, Cq, Device, Mr, Pd, Qp};

use crate::channel::{Alarm, Channel};
use crate::engine::Listed;

/// A device as lists have it; it stays for ever, because contexts lead to it when its list is freed
#[repr(C)]
pub(crate) struct ListedDevice {
    /// `ibv_device`: 664 bytes, of which the name is at 24, and the types at 16 and 20.
    pub(crate) abi: [u64; 83],
    pub(crate) listed: Listed,
}

#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) abi: Context,
    pub(crate) device: SimDevice,
    pub(crate) host: String,
    pub(crate) name: String,
    pub(crate) guid: u64,
}

#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) abi: Pd,
    pub(crate) device: SimDevice,
    pub(crate) users: AtomicUsize,
}

#[repr(C)]
pub(crate) struct MrObject {
    pub(crate) abi: Mr,
    pub(crate) region: Option<SimMemoryRegion>,
}

#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) abi: Cq,
    pub(crate) queue: SimCompletionQueue,
    pub(crate) users: AtomicUsize,
    /// What happens when a completion has been asked for and comes.
    pub(crate) alarm: OnceLock<Arc<Alarm>>,
}

#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) abi: Qp,
    pub(crate) pair: Mutex<SimQueuePair>,
    pub(crate) signals_all: bool,
}

#[repr(C)]
pub(crate) struct ChannelObject {
    pub(crate) abi: CompChannel,
    pub(crate) channel: Arc<Channel>,
    /// Queues that tell through it.
    pub(crate) users: AtomicUsize,
}

/// An object that begins with the structure `Abi`
pub(crate) trait Object: Sized + 'static {
    type Abi;
    /// Tells objects of this kind
    const MARK: u64;
    /// Where such objects have been
    fn graves() -> &'static Mutex<VecDeque<Grave>>;
}

macro_rules! object {
    ($($object:ident: $abi:ident, $mark:literal;)*) => {$(
        impl Object for $object {
            type Abi = $abi;
            const MARK: u64 = u64::from_le_bytes(*$mark);
            fn graves() -> &'static Mutex<VecDeque<Grave>> {
                static GRAVES: Mutex<VecDeque<Grave>> = Mutex::new(VecDeque::new());
                &GRAVES
            }
        }
    )*};
}

object! {
    ListedDevice: Device, b"tb5 dev.";
    ContextObject: Context, b"tb5 ctx.";
    PdObject: Pd, b"tb5 pd..";
    MrObject: Mr, b"tb5 mr..";
    CqObject: Cq, b"tb5 cq..";
    QpObject: Qp, b"tb5 qp..";
    ChannelObject: CompChannel, b"tb5 chan";
}

/// Where an object was
#[derive(Debug)]
pub(crate) struct Grave(*mut u64);

// SAFETY: nobody uses the memory of an object that is gone.
unsafe impl Send for Grave {}

#[repr(C, align(16))]
struct Place<T> {
    mark: AtomicU64,
    /// So that all objects begin at the same distance.
    _space: u64,
    object: MaybeUninit<T>,
}

const GONE: u64 = u64::from_le_bytes(*b"tb5 gone");
/// From the mark to the object.
const STEP: usize = 16;
/// Objects of a kind that are gone before the memory of one is used again
const REST: usize = 256;

/// The place of an object, whose mark can be read
fn place<T: Object>(abi: *mut T::Abi) -> Option<*mut Place<T>> {
    const { assert!(std::mem::offset_of!(Place<T>, object) == STEP) };
    let is_possible = !abi.is_null() && abi.cast::<Place<T>>().is_aligned();
    is_possible.then(|| abi.wrapping_byte_sub(STEP).cast::<Place<T>>())
}

fn has_mark<T: Object>(place: *mut Place<T>) -> bool {
    // SAFETY: the caller of the ABI promises a pointer that came from here; the memory of all objects stays.
    let mark = unsafe { &(*place).mark };
    mark.load(Ordering::Acquire) == T::MARK
}

/// The object behind a pointer of the ABI; `None` for NULL, and for objects of another kind or that are gone
///
/// # Safety
///
/// The pointer is NULL, or came from [`hand_out`]; nobody takes the object back meanwhile.
pub(crate) unsafe fn object<'a, T: Object>(abi: *mut T::Abi) -> Option<&'a T> {
    let place = place::<T>(abi).filter(|place| has_mark(*place))?;
    // SAFETY: the mark says that the object is there.
    let object = unsafe { &(*place).object };
    // SAFETY: as above.
    Some(unsafe { object.assume_init_ref() })
}

/// Hands an object to the program
pub(crate) fn hand_out<T: Object>(object: T) -> *mut T::Abi {
    let mut graves = T::graves().lock().unwrap_or_else(PoisonError::into_inner);
    let old = if graves.len() > REST { graves.pop_front() } else { None };
    drop(graves);
    let place = old.map_or_else(
        || {
            Box::into_raw(Box::new(Place::<T> {
                mark: AtomicU64::new(GONE),
                _space: 0,
                object: MaybeUninit::uninit(),
            }))
        },
        |Grave(place)| place.cast::<Place<T>>(),
    );
    // SAFETY: the place is new, or was given up by `take_back`.
    unsafe { (*place).object.write(object) };
    // SAFETY: as above.
    unsafe { (*place).mark.store(T::MARK, Ordering::Release) };
    // From the whole place, because its mark is before the object.
    place.wrapping_byte_add(STEP).cast()
}

/// Takes an object back from the program, which does not use it any more
///
/// # Safety
///
/// As [`object`].
pub(crate) unsafe fn take_back<T: Object>(abi: *mut T::Abi) -> Option<T> {
    let place = place::<T>(abi)?;
    // SAFETY: as in `has_mark`.
    let mark = unsafe { &(*place).mark };
    mark.compare_exchange(T::MARK, GONE, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: as in `has_mark`.
    let object = unsafe { &(*place).object };
    // SAFETY: the mark said that the object is there, and says to nobody else that it was.
    let object = unsafe { object.assume_init_read() };
    T::graves().lock().unwrap_or_else(PoisonError::into_inner).push_back(Grave(place.cast()));
    Some(object)
}
