//! An event at the end of a session

use std::sync::Arc;
use std::task::{Wake, Waker};

use tracing::Span;

use crate::error::CloseError;

/// Tells how a session has ended, in its span
///
/// A waker, because it runs code of the application, that of the subscriber: without a lock.
pub(super) struct EndReport {
    span: Span,
    end: Result<(), CloseError>,
}

impl EndReport {
    pub(super) fn waker(span: Span, end: Result<(), CloseError>) -> Waker {
        Arc::new(Self { span, end }).into()
    }
}

impl Wake for EndReport {
    fn wake(self: Arc<Self>) {
        self.span.in_scope(|| match &self.end {
            Ok(()) => tracing::debug!("session closed"),
            Err(error) => tracing::info!(%error, "session lost"),
        });
    }
}
