//! Messages on a bootstrap stream

use rdma_core::session::ControlMessage;

use crate::bootstrap_stream::{BootstrapStream, read_exact};
use crate::error::ConnectError;

/// The next message
pub(super) async fn read_message(stream: &mut impl BootstrapStream) -> Result<ControlMessage, ConnectError> {
    let mut bytes = [0; ControlMessage::LEN];
    read_exact(stream, &mut bytes).await?;
    Ok(ControlMessage::from_bytes(&bytes)?)
}
