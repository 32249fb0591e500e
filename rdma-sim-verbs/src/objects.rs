//! The objects behind the pointers of the ABI

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use rdma_sim::{SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};
use rdma_verbs_abi::{CompChannel, Context, Cq, Device, Mr, Pd, Qp};

use crate::completion_channel::{Channel, CqNotifier};
use crate::devices::Listed;
use crate::slots::{FreeSlot, Object};

/// An entry of the list of devices; it is never freed, because contexts lead to it when the list is gone
#[repr(C)]
pub(crate) struct ListedDevice {
    pub(crate) abi: Device,
    pub(crate) listed: Listed,
}

#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) abi: Context,
    pub(crate) device: SimDevice,
    pub(crate) listed: Listed,
}

#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) abi: Pd,
    pub(crate) device: SimDevice,
}

#[repr(C)]
pub(crate) struct MrObject {
    pub(crate) abi: Mr,
    pub(crate) region: SimMemoryRegion,
}

#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) abi: Cq,
    pub(crate) queue: SimCompletionQueue,
    /// Notified when a completion comes that the program has asked for.
    pub(crate) notifier: OnceLock<Arc<CqNotifier>>,
}

#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) abi: Qp,
    pub(crate) pair: SimQueuePair,
    pub(crate) signals_all: bool,
}

#[repr(C)]
pub(crate) struct ChannelObject {
    pub(crate) abi: CompChannel,
    pub(crate) channel: Arc<Channel>,
}

macro_rules! objects {
    ($($object:ident: $abi:ident, $tag:literal;)*) => {$(
        // SAFETY: the types above are `repr(C)`, and their first field is the structure.
        unsafe impl Object for $object {
            type Abi = $abi;
            const TYPE_TAG: u64 = u64::from_le_bytes(*$tag);
            fn free_list() -> &'static Mutex<VecDeque<FreeSlot>> {
                static FREE: Mutex<VecDeque<FreeSlot>> = Mutex::new(VecDeque::new());
                &FREE
            }
        }
    )*};
}

objects! {
    ListedDevice: Device, b"tb5 dev.";
    ContextObject: Context, b"tb5 ctx.";
    PdObject: Pd, b"tb5 pd..";
    MrObject: Mr, b"tb5 mr..";
    CqObject: Cq, b"tb5 cq..";
    QpObject: Qp, b"tb5 qp..";
    ChannelObject: CompChannel, b"tb5 chan";
}
