//! The constants of the verbs ABI, named as in the C header without `IBV_`

use std::ffi::c_int;

/// `IBV_PORT_ACTIVE`
pub const PORT_ACTIVE: u32 = 4;
/// `IBV_PORT_DOWN`
pub const PORT_DOWN: u32 = 1;
/// `IBV_QPT_RC`
pub const QPT_RC: u32 = 2;
/// `IBV_QPT_UC`
pub const QPT_UC: u32 = 3;
/// `IBV_QPT_UD`
pub const QPT_UD: u32 = 4;
/// `IBV_WR_RDMA_WRITE`
pub const WR_RDMA_WRITE: u32 = 0;
/// `IBV_WR_SEND`
pub const WR_SEND: u32 = 2;
/// `IBV_WR_RDMA_READ`
pub const WR_RDMA_READ: u32 = 4;
/// `IBV_WR_ATOMIC_CMP_AND_SWP`
pub const WR_ATOMIC_CMP_AND_SWP: u32 = 5;
/// `IBV_WR_ATOMIC_FETCH_AND_ADD`
pub const WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
/// `IBV_SEND_SIGNALED`
pub const SEND_SIGNALED: u32 = 2;
/// `IBV_WC_SEND`
pub const WC_SEND: u32 = 0;
/// `IBV_WC_RDMA_WRITE`
pub const WC_RDMA_WRITE: u32 = 1;
/// `IBV_WC_RDMA_READ`
pub const WC_RDMA_READ: u32 = 2;
/// `IBV_WC_COMP_SWAP`
pub const WC_COMP_SWAP: u32 = 3;
/// `IBV_WC_FETCH_ADD`
pub const WC_FETCH_ADD: u32 = 4;
/// `IBV_WC_RECV`
pub const WC_RECV: u32 = 128;
/// `IBV_QP_CAP`
pub const QP_CAP: c_int = 1 << 19;
/// `IBV_QP_STATE`
pub const QP_STATE: c_int = 1;
/// `IBV_MTU_1024`
pub const MTU_1024: u32 = 3;
/// `IBV_MTU_4096`
pub const MTU_4096: u32 = 5;
/// The transport type, the node type and the link layer of Apple's devices
pub const THUNDERBOLT: u32 = 100;
/// `IBV_QPS_RESET`
pub const QPS_RESET: u32 = 0;
/// `IBV_QPS_INIT`
pub const QPS_INIT: u32 = 1;
/// `IBV_QPS_RTR`
pub const QPS_RTR: u32 = 2;
/// `IBV_QPS_RTS`
pub const QPS_RTS: u32 = 3;
/// `IBV_QPS_ERR`
pub const QPS_ERR: u32 = 6;
/// `IBV_LINK_LAYER_INFINIBAND`
pub const LINK_LAYER_INFINIBAND: u8 = 1;
/// `IBV_LINK_LAYER_ETHERNET`
pub const LINK_LAYER_ETHERNET: u8 = 2;
