//! Values as bytes

use rdma_core::{
    Access, AttrMask, Caps, Cause, Completion, Error, Gid, Invalid, Lkey, Opcode, PortState, PortStatus,
    QpAddress, QpCapacity, QpInit, QpState, QpType, Qpn, Resource, Rkey, SendOp, Sge, Status, Teardown,
    Transition, Verb, WrId,
};

/// These bytes are not what was expected
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the bytes are no {0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// What is left of a frame
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed("whole value"))?;
        self.0 = rest;
        Ok(head)
    }
}

pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed>;

    /// Reads a value that is everything
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input(bytes);
        let value = Self::get(&mut input)?;
        if input.0.is_empty() { Ok(value) } else { Err(Malformed("value alone")) }
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                let bytes = input.take(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().map_err(|_| Malformed("number"))?))
            }
        }
    )+};
}
numbers!(u8, u16, u32, u64, usize, i32);

/// Structures of which each field has a public name
macro_rules! fields {
    ($($type:path { $($field:tt),+ })+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Wire::get(input)?),+ })
            }
        }
    )+};
}
fields! {
    Gid { 0 }
    Lkey { 0 }
    Qpn { 0 }
    Rkey { 0 }
    WrId { 0 }
    QpCapacity { recv_frames, send_frames }
    QpInit { capacity, qp_type }
    Sge { addr, len, lkey }
    Completion { id, status, opcode, byte_len, qpn }
    AttrMask { 0 }
    Error { verb, cause }
}

/// Enumerations without data, by their place in the list
macro_rules! listed {
    ($($type:ident { $($variant:ident),+ })+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let all = [$(Self::$variant),+];
                // One that is not in the list is not understood there, and said to be so.
                out.push(all.iter().position(|known| known == self).map_or(u8::MAX, |at| at as u8));
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                let all = [$(Self::$variant),+];
                all.get(usize::from(u8::get(input)?)).copied().ok_or(Malformed(stringify!($type)))
            }
        }
    )+};
}
listed! {
    QpType { Rc, Uc, Ud }
    QpState { Reset, Init, ReadyToReceive, ReadyToSend, Error }
    PortState { Active, Down }
    Teardown { Quiesced, Unknown }
    Opcode { Atomic, Read, Recv, Send, Write }
    Resource { CompletionQueues, MemoryRegions, ProtectionDomains, QueuePairs }
    Verb { AllocPd, CreateCq, CreateQp, DeregMr, ModifyQp, OpenDevice, PollCq, PostRecv, PostSend, QueryPort, RegMr }
}

impl Wire for () {
    fn put(&self, _out: &mut Vec<u8>) {}

    fn get(_input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(u8::get(input)? != 0)
    }
}

impl Wire for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        input.take(16)?.try_into().map_err(|_| Malformed("GID"))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let len = u32::get(input)?;
        // Nothing is reserved by what is only announced.
        (0..len).map(|_| T::get(input)).collect()
    }
}

/// Bytes of memory
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        out.extend_from_slice(&self.0);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let len = u32::get(input)? as usize;
        Ok(Self(input.take(len)?.to_vec()))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        Bytes(self.as_bytes().to_vec()).put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Self::from_utf8(Bytes::get(input)?.0).map_err(|_| Malformed("text"))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(if bool::get(input)? { Some(T::get(input)?) } else { None })
    }
}

impl Wire for Access {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let bits = u32::get(input)?;
        let all = [Self::LOCAL_WRITE, Self::REMOTE_WRITE, Self::REMOTE_READ, Self::REMOTE_ATOMIC];
        let known = all.into_iter().filter(|right| bits & right.bits() != 0);
        Ok(known.fold(Self::NONE, Self::union))
    }
}

impl Wire for PortStatus {
    fn put(&self, out: &mut Vec<u8>) {
        self.state.put(out);
        self.bits_per_second.put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self::new(Wire::get(input)?, Wire::get(input)?))
    }
}

impl Wire for QpAddress {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let bytes = input.take(Self::WIRE_LEN)?.try_into().map_err(|_| Malformed("address"))?;
        Ok(Self::from_bytes(bytes))
    }
}

impl Wire for Status {
    fn put(&self, out: &mut Vec<u8>) {
        self.code().put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self::from_code(u32::get(input)?))
    }
}

/// Enumerations with data, by a tag
macro_rules! tagged {
    ($($type:ident { $($tag:literal $variant:ident $({ $($field:ident),+ })? $(($value:ident))?),+ })+) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),+ })? $(($value))? => {
                        out.push($tag);
                        $($($field.put(out);)+)?
                        $($value.put(out);)?
                    })+
                    // One that is not in the list has a tag that no receiver knows.
                    _ => out.push(u8::MAX),
                }
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(match u8::get(input)? {
                    $($tag => {
                        $($(let $field = Wire::get(input)?;)+)?
                        $(let $value = Wire::get(input)?;)?
                        Self::$variant $({ $($field),+ })? $(($value))?
                    })+
                    _ => return Err(Malformed(stringify!($type))),
                })
            }
        }
    )+};
}
tagged! {
    Transition { 0 Reset, 1 Init, 2 ReadyToReceive { peer }, 3 ReadyToSend, 4 Error }
    Cause {
        0 Busy,
        1 DeviceGone,
        2 Exhausted { resource, limit },
        3 GidTableEmpty,
        4 Invalid(invalid),
        5 MessageTooLong { len, max },
        6 NoUsableGid,
        7 PeerUnreachable,
        8 PortDown,
        9 QueueFull,
        10 Unsupported,
        11 Os(errno),
        12 LockedMemory,
        13 NoRoute
    }
    Invalid {
        0 AttrMask { mask, needed },
        1 CqDepth { depth, max },
        2 Destroyed,
        3 EmptyRegion,
        4 Lkey { lkey },
        5 LocalWriteOnly,
        6 Misaligned { addr, align },
        7 NoSuchDevice,
        8 OutsideRegion { addr, len },
        9 Port { port, pkey_index },
        10 QueueFrames { frames, max },
        11 Refused,
        12 SgeCount { count, max },
        13 ShortQueue { recv_frames },
        14 State { state },
        15 Transition { from, to }
    }
}

/// Caps have no public constructor but those of known devices
macro_rules! caps {
    ($($field:ident),+) => {
        impl Wire for Caps {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
                let mut caps = Self::tb5();
                $(caps.$field = Wire::get(input)?;)+
                Ok(caps)
            }
        }
    };
}
caps!(
    flush_on_error,
    frame,
    max_cq,
    max_cqe,
    max_message,
    max_mr,
    max_pd,
    max_qp,
    max_queue_frames,
    max_sge,
    one_sided,
    send_waits_for_receive
);

impl Wire for SendOp {
    fn put(&self, out: &mut Vec<u8>) {
        // Others are refused before they get here.
        out.push(if *self == Self::Send { 0 } else { u8::MAX });
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Malformed> {
        if u8::get(input)? == 0 { Ok(Self::Send) } else { Err(Malformed("operation")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T: Wire + PartialEq + std::fmt::Debug>(value: T) {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        assert_eq!(T::parse(&bytes).as_ref(), Ok(&value));
        for cut in 0..bytes.len() {
            assert!(T::parse(&bytes[..cut]).is_err(), "{value:?}, {cut} of {} bytes", bytes.len());
        }
        bytes.push(0);
        assert!(T::parse(&bytes).is_err(), "{value:?} and more");
    }

    #[test]
    fn values_survive_their_encoding_and_nothing_less_is_read() {
        for cause in [
            Cause::Busy,
            Cause::Exhausted { resource: Resource::QueuePairs, limit: 10 },
            Cause::Invalid(Invalid::Transition { from: QpState::Init, to: QpState::Reset }),
            Cause::Invalid(Invalid::OutsideRegion { addr: 1 << 40, len: 7 }),
            Cause::MessageTooLong { len: 1 << 40, max: 7 },
            Cause::Os(-5),
            Cause::QueueFull,
            Cause::Unsupported,
        ] {
            survives(Error::new(Verb::PostSend, cause));
        }
        survives(Caps::roce());
        survives(PortStatus::new(PortState::Down, 7));
        let address = QpAddress { qpn: Qpn(9), ..QpAddress::default() };
        survives(Transition::ReadyToReceive { peer: address });
        survives(vec![Transition::Init, Transition::Error]);
        survives(Completion { id: WrId(u64::MAX), status: Status::Flushed, ..Completion::default() });
        survives(vec![Some("text".to_owned()), None]);
        survives(Bytes(vec![1, 2, 3]));
        survives(Access::LOCAL_WRITE.union(Access::REMOTE_READ));
        let endless = [u32::MAX.to_le_bytes().as_slice(), &[1]].concat();
        assert!(Vec::<u8>::parse(&endless).is_err());
    }
}
