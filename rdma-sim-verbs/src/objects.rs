//! What the pointers of the ABI lead to
//!
//! Each structure of the ABI is the first part of an object of ours, so that its address leads to both. An object begins
//! with the structure and ends with what the simulator has for it; a mark in between tells a stale or foreign pointer as long
//! as its memory is still readable.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use rdma_sim::{SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};
use rdma_tb5::verbs::layout::{Context, Cq, Mr, Pd, Qp};

/// An entry of the device list.
#[repr(C)]
pub(crate) struct ListedDevice {
    /// `ibv_device`: 664 bytes, of which the name is at 24, and the types at 16 and 20.
    pub(crate) abi: [u64; 83],
    pub(crate) host: String,
    pub(crate) device: String,
    pub(crate) guid: u64,
}

#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) abi: Context,
    pub(crate) mark: Mark,
    pub(crate) device: SimDevice,
    pub(crate) host: String,
    pub(crate) name: String,
    /// Objects that hang on it.
    pub(crate) users: AtomicUsize,
}

#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) abi: Pd,
    pub(crate) mark: Mark,
    pub(crate) device: SimDevice,
    pub(crate) users: AtomicUsize,
}

#[repr(C)]
pub(crate) struct MrObject {
    pub(crate) abi: Mr,
    pub(crate) mark: Mark,
    pub(crate) region: Option<SimMemoryRegion>,
}

#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) abi: Cq,
    pub(crate) mark: Mark,
    pub(crate) queue: SimCompletionQueue,
    pub(crate) users: AtomicUsize,
    pub(crate) is_armed: AtomicBool,
}

#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) abi: Qp,
    pub(crate) mark: Mark,
    pub(crate) pair: Mutex<SimQueuePair>,
    pub(crate) signals_all: bool,
}

/// Tells objects of ours, and of which kind they are
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
pub(crate) enum Mark {
    Context = 0x7462_3543_5458_0001,
    Pd = 0x7462_3550_4400_0002,
    Mr = 0x7462_354d_5200_0003,
    Cq = 0x7462_3543_5100_0004,
    Qp = 0x7462_3551_5000_0005,
    /// Destroyed, should somebody still look
    Gone = 0x7462_35de_ad00_0006,
}

/// An object that begins with the structure `Abi`
pub(crate) trait Object {
    type Abi;
    const MARK: Mark;
    fn mark(&self) -> Mark;
    fn forget(&mut self);
}

macro_rules! object {
    ($($object:ident: $abi:ident, $mark:ident;)*) => {$(
        impl Object for $object {
            type Abi = $abi;
            const MARK: Mark = Mark::$mark;
            fn mark(&self) -> Mark {
                self.mark
            }
            fn forget(&mut self) {
                self.mark = Mark::Gone;
            }
        }
    )*};
}

object! {
    ContextObject: Context, Context;
    PdObject: Pd, Pd;
    MrObject: Mr, Mr;
    CqObject: Cq, Cq;
    QpObject: Qp, Qp;
}

/// The object behind a pointer of the ABI; `None` for NULL and for what is not one of ours
///
/// # Safety
///
/// The pointer is NULL, or leads to readable memory that is not changed meanwhile.
pub(crate) unsafe fn object<'a, T: Object>(abi: *mut T::Abi) -> Option<&'a T> {
    // SAFETY: the caller answers for the pointer; every object begins with its structure.
    let object = unsafe { abi.cast::<T>().as_ref() }?;
    (object.mark() == T::MARK).then_some(object)
}

/// Hands an object to the program
pub(crate) fn hand_out<T: Object>(object: T) -> *mut T::Abi {
    Box::into_raw(Box::new(object)).cast()
}

/// Takes an object back from the program, which does not use it any more
///
/// # Safety
///
/// As [`object`]; the pointer came from [`hand_out`] and has not been taken back.
pub(crate) unsafe fn take_back<T: Object>(abi: *mut T::Abi) -> Option<Box<T>> {
    // SAFETY: the caller answers for the pointer.
    unsafe { object::<T>(abi) }?;
    // SAFETY: the mark shows that the pointer came from `hand_out`.
    let mut object = unsafe { Box::from_raw(abi.cast::<T>()) };
    object.forget();
    Some(object)
}
