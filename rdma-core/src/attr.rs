use crate::{Access, Gid, Lid, Psn, QpAddress, QpState, Qpn};

/// Which fields of a [`QpAttr`] are set, with the bits of `ibv_qp_attr_mask`
///
/// ```
/// use rdma_core::AttrMask;
///
/// assert!(AttrMask::INIT.contains(AttrMask::PORT));
/// assert!(!AttrMask::READY_TO_SEND.contains(AttrMask::AV));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AttrMask(pub u32);

impl AttrMask {
    /// `IBV_QP_STATE`
    pub const STATE: Self = Self(1);
    /// `IBV_QP_ACCESS_FLAGS`
    pub const ACCESS_FLAGS: Self = Self(8);
    /// `IBV_QP_PKEY_INDEX`
    pub const PKEY_INDEX: Self = Self(16);
    /// `IBV_QP_PORT`
    pub const PORT: Self = Self(32);
    /// `IBV_QP_AV`
    pub const AV: Self = Self(128);
    /// `IBV_QP_PATH_MTU`
    pub const PATH_MTU: Self = Self(256);
    /// `IBV_QP_RQ_PSN`
    pub const RQ_PSN: Self = Self(4096);
    /// `IBV_QP_SQ_PSN`
    pub const SQ_PSN: Self = Self(0x1_0000);
    /// `IBV_QP_DEST_QPN`
    pub const DEST_QPN: Self = Self(0x10_0000);

    /// Fields that the transition to [`QpState::Init`] needs (Apple TN3205): `0x39`
    pub const INIT: Self = Self(0x39);
    /// Fields that the transition to [`QpState::ReadyToReceive`] needs (Apple TN3205): `0x10_1181`
    pub const READY_TO_RECEIVE: Self = Self(0x10_1181);
    /// Fields that the transition to [`QpState::ReadyToSend`] needs (Apple TN3205): `0x1_0001`
    pub const READY_TO_SEND: Self = Self(0x1_0001);

    /// Whether every bit of `other` is set
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Attributes of a queue pair that `ibv_modify_qp` changes
///
/// ```
/// use rdma_core::{AttrMask, Psn, QpAttr, QpState};
///
/// let (attr, mask) = QpAttr::ready_to_send(Psn(7));
/// assert_eq!((attr.state, attr.sq_psn, mask), (QpState::ReadyToSend, Psn(7), AttrMask::READY_TO_SEND));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpAttr {
    /// The next state
    pub state: QpState,
    /// Rights of peers on memory behind the queue pair
    pub access: Access,
    /// Index of the partition key; 0
    pub pkey_index: u16,
    /// The port, from 1
    pub port: u8,
    /// Bytes in a packet of the path
    pub path_mtu: u32,
    /// Number of the peer's queue pair
    pub dest_qpn: Qpn,
    /// The peer's global identifier, if the address has one
    pub dgid: Option<Gid>,
    /// The peer's local identifier
    pub dlid: Lid,
    /// Index of the own global identifier
    pub sgid_index: u8,
    /// Number of the first packet that the queue pair expects
    pub rq_psn: Psn,
    /// Number of the first packet that the queue pair sends
    pub sq_psn: Psn,
}

impl QpAttr {
    /// Attributes of the transition to [`QpState::Init`]
    pub fn init() -> (Self, AttrMask) {
        (Self::to(QpState::Init), AttrMask::INIT)
    }

    /// Attributes of the transition to [`QpState::ReadyToReceive`]
    ///
    /// `sgid_index` is the entry of the own GID table to send from, `path_mtu` the bytes in a packet.
    pub fn ready_to_receive(peer: &QpAddress, sgid_index: u8, path_mtu: u32) -> (Self, AttrMask) {
        let attr = Self {
            path_mtu,
            dest_qpn: peer.qpn,
            dgid: Some(peer.gid),
            dlid: peer.lid,
            sgid_index,
            rq_psn: peer.psn,
            ..Self::to(QpState::ReadyToReceive)
        };
        (attr, AttrMask::READY_TO_RECEIVE)
    }

    /// Attributes of the transition to [`QpState::ReadyToSend`]
    pub fn ready_to_send(sq_psn: Psn) -> (Self, AttrMask) {
        (Self { sq_psn, ..Self::to(QpState::ReadyToSend) }, AttrMask::READY_TO_SEND)
    }

    /// Attributes of a transition that needs only the state: to [`QpState::Reset`] or [`QpState::Error`]
    pub fn plain(state: QpState) -> (Self, AttrMask) {
        (Self::to(state), AttrMask::STATE)
    }

    fn to(state: QpState) -> Self {
        Self {
            state,
            access: Access::LOCAL_WRITE,
            pkey_index: 0,
            port: 1,
            path_mtu: 1024,
            dest_qpn: Qpn(0),
            dgid: None,
            dlid: Lid(0),
            sgid_index: 0,
            rq_psn: Psn(0),
            sq_psn: Psn(0),
        }
    }
}
