//! The errors of this crate as those of [`std::io`]

use std::io;

use crate::error::{
    AllocError, CloseError, ConnectError, NodeError, OpenError, PoolError, RecvError, RequestError,
    SendError, SessionError,
};
use crate::invalid_options::InvalidOptions;
use crate::send_failed::SendFailed;

/// Makes an error usable where [`io::Error`] is spoken; the error itself is its source
macro_rules! impl_into_io_error {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for io::Error {
            fn from(error: $error) -> Self {
                Self::new(error.kind(), error)
            }
        }
    )*};
}

impl_into_io_error!(
    AllocError,
    CloseError,
    ConnectError,
    InvalidOptions,
    NodeError,
    OpenError,
    PoolError,
    RecvError,
    RequestError,
    SendError,
    SessionError,
);

impl From<SendFailed> for io::Error {
    /// The lease is dropped
    fn from(failed: SendFailed) -> Self {
        failed.error.into()
    }
}

fn kind_of(error: &rdma_core::Error) -> io::ErrorKind {
    io::Error::from(*error).kind()
}

impl AllocError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::TooLarge { .. } => io::ErrorKind::InvalidInput,
            Self::WouldBlock => io::ErrorKind::WouldBlock,
        }
    }
}

impl InvalidOptions {
    fn kind(&self) -> io::ErrorKind {
        io::ErrorKind::InvalidInput
    }
}

impl PoolError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Memory(kind) => *kind,
            Self::Register(error) => kind_of(error),
        }
    }
}

impl NodeError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoRuntime | Self::NoTimers => io::ErrorKind::Unsupported,
            Self::Options(error) => error.kind(),
            Self::Pool(error) => error.kind(),
        }
    }
}

impl CloseError {
    fn kind(&self) -> io::ErrorKind {
        let Self::Lost(error) = self;
        error.kind()
    }
}

impl ConnectError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Closed => io::ErrorKind::NotConnected,
            Self::Device(error) | Self::Pool(PoolError::Register(error)) => kind_of(error),
            Self::Lost(error) => error.kind(),
            Self::Crowded { .. } => io::ErrorKind::ConnectionAborted,
            Self::Memory => io::ErrorKind::OutOfMemory,
            Self::NoPath { .. } => io::ErrorKind::HostUnreachable,
            Self::PortBusy { .. } => io::ErrorKind::ResourceBusy,
            Self::Open(_) => io::ErrorKind::NotFound,
            Self::Options(error) => error.kind(),
            Self::Peer(_) => io::ErrorKind::InvalidData,
            Self::Pool(PoolError::Memory(kind)) => *kind,
            Self::Stream(error) => error.kind(),
            Self::Blocked(_) | Self::Timeout { .. } | Self::Unproven { .. } => io::ErrorKind::TimedOut,
            // Another attempt takes the device into account.
            Self::ShortMessages { .. } => io::ErrorKind::ConnectionRefused,
            Self::TooManySessions => io::ErrorKind::QuotaExceeded,
        }
    }
}

impl OpenError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Closed => io::ErrorKind::NotConnected,
            Self::Lost(error) => error.kind(),
            Self::PeerClosed => io::ErrorKind::BrokenPipe,
        }
    }
}

impl RecvError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::ForeignLease => io::ErrorKind::InvalidInput,
            Self::Lost(error) => error.kind(),
            Self::WouldBlock => io::ErrorKind::WouldBlock,
        }
    }
}

impl RequestError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Open(error) => error.kind(),
            Self::Recv(error) => error.kind(),
            Self::Send(error) => error.kind(),
            Self::Unanswered => io::ErrorKind::ConnectionRefused,
        }
    }
}

impl SendError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Closed => io::ErrorKind::NotConnected,
            Self::ForeignLease | Self::TooLong { .. } => io::ErrorKind::InvalidInput,
            Self::Lost(error) => error.kind(),
            Self::PeerClosed | Self::StreamDropped => io::ErrorKind::BrokenPipe,
            Self::WouldBlock => io::ErrorKind::WouldBlock,
        }
    }
}

impl SessionError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Abandoned(_) | Self::Blocked(_) | Self::PeerLost(_) => io::ErrorKind::TimedOut,
            Self::Aborted | Self::RuntimeGone => io::ErrorKind::ConnectionAborted,
            Self::PeerGone(_) | Self::Reset(_) => io::ErrorKind::ConnectionReset,
            Self::Overlong { .. } | Self::Protocol(_) | Self::UnknownCompletion(_) | Self::Unstopped => {
                io::ErrorKind::InvalidData
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Catches a conversion that drops the error, and a kind that does not reach through the layers.
    #[test]
    fn an_io_error_has_a_kind_and_the_error_itself() {
        let lost = CloseError::from(SessionError::PeerLost(Duration::from_secs(5)));
        let error = io::Error::from(lost.clone());
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.downcast::<CloseError>().expect("the error is inside"), lost);
        let busy = io::Error::from(AllocError::WouldBlock);
        assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
    }
}
