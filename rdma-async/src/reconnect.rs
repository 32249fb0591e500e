//! Whether another connection can succeed after an error

use rdma_core::{Cause, Error, Verb};

use crate::error::{CloseError, ConnectError, ConnectionError, RecvError, SendError};

/// Whether an endpoint of the device can make connections after this error
fn survives(error: &Error) -> bool {
    // Without its completion queue an endpoint hears of nothing any more.
    let is_deaf = error.verb == Verb::PollCq;
    let lasts = matches!(
        error.cause,
        Cause::DeviceGone | Cause::Invalid(_) | Cause::NotImplemented | Cause::Unsupported
    );
    !is_deaf && !lasts
}

impl ConnectionError {
    /// Whether another connection of the same endpoint can succeed
    ///
    /// If not, none will: make a new endpoint, on the device opened anew. If the device vanished while a peer was silent, only
    /// connecting tells: [`ConnectError::can_reconnect`].
    ///
    /// ```
    /// use rdma_async::ConnectionError;
    ///
    /// assert!(ConnectionError::Aborted.can_reconnect());
    /// assert!(!ConnectionError::RuntimeGone.can_reconnect());
    /// ```
    pub fn can_reconnect(&self) -> bool {
        match self {
            Self::Device(error) => survives(error),
            Self::RuntimeGone => false,
            Self::Abandoned(_)
            | Self::Aborted
            | Self::Completion(_)
            | Self::Overlong { .. }
            | Self::PeerLost(_)
            | Self::Protocol(_)
            | Self::UnknownCompletion(_) => true,
        }
    }
}

impl ConnectError {
    /// Whether another connection of the same endpoint can succeed, to this peer or to another
    ///
    /// If not, none will: make a new endpoint, on the device opened anew.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_async::ConnectError;
    ///
    /// assert!(ConnectError::Timeout(Duration::from_secs(10)).can_reconnect());
    /// assert!(!ConnectError::Closed.can_reconnect());
    /// ```
    pub fn can_reconnect(&self) -> bool {
        match self {
            Self::Closed => false,
            Self::Device(error) => survives(error),
            Self::Lost(error) => error.can_reconnect(),
            Self::Epoch { .. }
            | Self::Memory
            | Self::Peer(_)
            | Self::Stream(_)
            | Self::Timeout(_)
            | Self::TooManyConnections { .. } => true,
        }
    }
}

impl SendError {
    /// Whether another connection of the same endpoint can succeed; see [`ConnectionError::can_reconnect`]
    pub fn can_reconnect(&self) -> bool {
        if let Self::Lost(error) = self { error.can_reconnect() } else { true }
    }
}

impl RecvError {
    /// Whether another connection of the same endpoint can succeed; see [`ConnectionError::can_reconnect`]
    pub fn can_reconnect(&self) -> bool {
        if let Self::Lost(error) = self { error.can_reconnect() } else { true }
    }
}

impl CloseError {
    /// Whether another connection of the same endpoint can succeed; see [`ConnectionError::can_reconnect`]
    pub fn can_reconnect(&self) -> bool {
        if let Self::Lost(error) = self { error.can_reconnect() } else { true }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rdma_core::Invalid;

    use super::*;

    /// Catches each kind of error that is judged the other way.
    #[test]
    fn an_endpoint_outlives_its_peers_and_not_its_device() {
        let device = |verb, cause| ConnectionError::Device(Error::new(verb, cause));
        let lasting = [
            device(Verb::PostSend, Cause::DeviceGone),
            device(Verb::PollCq, Cause::Os(5)),
            device(Verb::CreateQp, Cause::Invalid(Invalid::Refused)),
            device(Verb::CreateQp, Cause::Unsupported),
            device(Verb::ModifyQp, Cause::NotImplemented),
            ConnectionError::RuntimeGone,
        ];
        let passing = [
            device(Verb::ModifyQp, Cause::PeerUnreachable),
            device(Verb::ModifyQp, Cause::Busy),
            device(Verb::PostSend, Cause::Os(5)),
            ConnectionError::PeerLost(Duration::from_secs(5)),
        ];
        for (errors, can) in [(&lasting[..], false), (&passing[..], true)] {
            for error in errors {
                assert_eq!(error.can_reconnect(), can, "{error}");
                assert_eq!(ConnectError::Lost(error.clone()).can_reconnect(), can, "{error}");
                assert_eq!(SendError::Lost(error.clone()).can_reconnect(), can, "{error}");
                assert_eq!(RecvError::Lost(error.clone()).can_reconnect(), can, "{error}");
                assert_eq!(CloseError::Lost(error.clone()).can_reconnect(), can, "{error}");
                if let ConnectionError::Device(error) = error {
                    assert_eq!(ConnectError::Device(*error).can_reconnect(), can, "{error}");
                }
            }
        }
        assert!(!ConnectError::Closed.can_reconnect());
        assert!(SendError::PeerClosed.can_reconnect() && RecvError::WouldBlock.can_reconnect());
    }
}
