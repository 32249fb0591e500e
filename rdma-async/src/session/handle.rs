use std::ops::Deref;
use std::sync::Arc;

use rdma_core::Device;
use rdma_core::session::SessionId;

use super::message::Recycle;
use crate::peering::shared::PeeringShared;

/// A session and its peering
pub(crate) struct SessionRef<D: Device> {
    pub(crate) peering: Arc<PeeringShared<D>>,
    pub(crate) id: SessionId,
}

impl<D: Device> Recycle for SessionRef<D> {
    fn recycle(&self, len: usize) {
        self.peering.with(|state, now, effects| state.recycle(self.id, len, now, effects));
    }
}

/// Keeps a session open: dropping the last one abandons it
pub(crate) struct SessionHandle<D: Device>(Arc<SessionRef<D>>);

impl<D: Device> SessionHandle<D> {
    pub(super) fn new(peering: Arc<PeeringShared<D>>, id: SessionId) -> Self {
        Self(Arc::new(SessionRef { peering, id }))
    }

    /// Takes back messages, without keeping the session open
    pub(super) fn recycler(&self) -> Arc<dyn Recycle> {
        Arc::clone(&self.0) as _
    }
}

impl<D: Device> Deref for SessionHandle<D> {
    type Target = SessionRef<D>;

    fn deref(&self) -> &SessionRef<D> {
        &self.0
    }
}

impl<D: Device> Drop for SessionHandle<D> {
    fn drop(&mut self) {
        self.peering.with(|state, now, effects| state.abandon(self.id, now, effects));
    }
}
