use std::time::Duration;

use super::Params;
use super::params::MAX_KEEPALIVES;

/// Configuration of one side of a connection; see the example of the [module](super)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProtocolConfig {
    /// Bulk receives that may be posted at once
    pub bulk_receives: u32,
    /// Frames that the bulk queue pair can hold for sending
    pub bulk_send_frames: u32,
    /// Messages that the eager queue pair can hold for sending
    pub eager_send_frames: u32,
    /// Time without a send on the eager lane after which a keep-alive is sent; half of the peer timeout, if that is shorter
    pub keep_alive_interval: Duration,
    /// Limits that this side has announced to its peer
    pub params: Params,
    /// Messages that may be queued at once
    pub max_queued: u32,
}

impl ProtocolConfig {
    /// Whether a connection can work: usable parameters, no zero, and a timeout of two to eight keep-alive intervals
    pub fn is_usable(&self) -> bool {
        self.params.is_usable()
            && self.max_queued >= 1
            && self.bulk_receives >= 1
            && self.eager_send_frames >= 1
            && self.keep_alive_interval > Duration::ZERO
            && self.params.peer_timeout >= self.keep_alive_interval * 2
            && self.params.peer_timeout <= self.keep_alive_interval * MAX_KEEPALIVES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USABLE: ProtocolConfig = ProtocolConfig {
        bulk_receives: 1,
        bulk_send_frames: 64,
        eager_send_frames: 1,
        keep_alive_interval: Duration::from_millis(10),
        params: Params {
            announces: 2,
            max_message: 1 << 16,
            peer_timeout: Duration::from_millis(80),
            window: 24,
        },
        max_queued: 1,
    };

    /// Catches each condition of `is_usable` left out, moved by one, or joined by `||`.
    #[test]
    fn a_configuration_is_usable_within_its_limits() {
        let with_timeout = |ms| {
            let params = Params { peer_timeout: Duration::from_millis(ms), ..USABLE.params };
            ProtocolConfig { params, ..USABLE }
        };
        for usable in [USABLE, with_timeout(20)] {
            assert!(usable.is_usable(), "{usable:?}");
        }
        let unusable_params = Params { announces: 0, ..USABLE.params };
        let no_interval = ProtocolConfig { keep_alive_interval: Duration::ZERO, ..with_timeout(0) };
        for unusable in [
            ProtocolConfig { bulk_receives: 0, ..USABLE },
            ProtocolConfig { eager_send_frames: 0, ..USABLE },
            ProtocolConfig { max_queued: 0, ..USABLE },
            ProtocolConfig { params: unusable_params, ..USABLE },
            no_interval,
            with_timeout(19),
            with_timeout(81),
        ] {
            assert!(!unusable.is_usable(), "{unusable:?}");
        }
    }
}
