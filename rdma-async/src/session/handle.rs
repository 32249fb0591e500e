use std::sync::Arc;

use rdma_core::Device;
use rdma_core::session::SessionId;

use super::message::Recycle;
use crate::peering::shared::PeeringShared;

/// Keeps a session open: dropping the last one abandons it
pub(crate) struct SessionHandle<D: Device> {
    pub(crate) peering: Arc<PeeringShared<D>>,
    pub(crate) id: SessionId,
}

impl<D: Device> Recycle for SessionHandle<D> {
    fn recycle(&self, len: usize) {
        self.peering.with(|state, now, effects| state.recycle(self.id, len, now, effects));
    }
}

impl<D: Device> Drop for SessionHandle<D> {
    fn drop(&mut self) {
        self.peering.with(|state, now, effects| state.abandon(self.id, now, effects));
    }
}
