use std::ops::Deref;
use std::sync::Arc;

use rdma_core::Device;
use rdma_core::session::SessionId;

use super::message::{Message, Recycle};
use crate::peering::body::Body;
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

    /// The session, without keeping it open
    pub(super) fn session(&self) -> Arc<SessionRef<D>> {
        Arc::clone(&self.0)
    }

    /// A received message
    pub(super) fn message(&self, body: Body) -> Message {
        Message::new(body, self.session() as Arc<dyn Recycle>)
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
