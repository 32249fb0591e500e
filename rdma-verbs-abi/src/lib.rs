#![doc = include_str!("../README.md")]
#![cfg(unix)]

mod assertions;
pub mod constants;
#[expect(missing_docs, reason = "the fields of these structures are those of the C header")]
mod layout;
mod rate;
#[allow(unsafe_code, reason = "zeros are valid for the structures named there")]
mod zeroed;

pub use layout::{
    AhAttr, CompChannel, Context, ContextOps, Cq, Device, DeviceAttr, GlobalRoute, Mr, PORT_ATTR_COMPAT, Pd,
    PollCq, PortAttr, PostRecv, PostSend, Qp, QpAttr, QpCap, QpInitAttr, RawGid, RecvWr, ReqNotifyCq, SendWr,
    Sge, Wc,
};
pub use rate::{lanes, megabits_per_lane};
