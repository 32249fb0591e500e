//! Memory regions behind the traits

use std::fmt;
use std::sync::Arc;

use rdma_core::{Lkey, MemoryRegion, Rkey, Teardown};

use crate::handle::Handle;

/// Memory registered with a [`TcpDevice`](crate::TcpDevice)
pub struct TcpMemoryRegion {
    pub(crate) device: Arc<Handle>,
    pub(crate) base: u64,
    pub(crate) lkey: Lkey,
}

impl MemoryRegion for TcpMemoryRegion {
    fn base(&self) -> u64 {
        self.base
    }

    fn lkey(&self) -> Lkey {
        self.lkey
    }

    fn rkey(&self) -> Option<Rkey> {
        None
    }

    fn deregister(&mut self) -> Teardown {
        self.device.shared.regions.remove(self.lkey);
        Teardown::Quiesced
    }
}

impl Drop for TcpMemoryRegion {
    fn drop(&mut self) {
        let _ = self.deregister();
    }
}

impl fmt::Debug for TcpMemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpMemoryRegion").field("lkey", &self.lkey).finish_non_exhaustive()
    }
}
