//! The paths that are made before a peering is used

use std::io;
use std::time::Duration;

use rdma_core::Device;
use rdma_core::session::{ByeReason, Side};

use super::{Control, PORT_INTERVAL, PathState, concerns_both_ports};
use crate::error::{ConnectError, SessionError};
use crate::node::first_failures::FirstFailures;
use crate::node::pairing::Pairing;
use crate::time::timeout;

impl<D: Device> Control<D> {
    /// Makes paths, and ends as soon as there is one
    ///
    /// All ports are tried side by side, because an attempt that fails takes a second on Apple's device (field reports): first those of
    /// the same number, then crosswise.
    ///
    /// # Errors
    ///
    /// If each port has failed with each of the peer's, the reason of the first failure.
    pub(in crate::node) async fn make_first_paths(&mut self) -> Result<(), ConnectError> {
        while !self.has_path() {
            if let Some(error) = self.first_paths_failed() {
                // A peer that does not read, or has left, changes nothing about the reason.
                let _ = timeout(&*self.node.runtime, self.peer_timeout, self.stream.flush()).await;
                return Err(error);
            }
            self.step().await;
        }
        self.first = None;
        self.stream.flush().await?;
        Ok(())
    }

    /// Why no path can be made, if that is decided
    fn first_paths_failed(&mut self) -> Option<ConnectError> {
        if let Some(error) = self.peering.error() {
            // What this side knows of its own ports says more than that the peer has made no path, either.
            let is_mutual = error == SessionError::PeerGone(ByeReason::NoPath);
            let own = if is_mutual { self.first_failure() } else { None };
            return Some(own.unwrap_or_else(|| error.into()));
        }
        let is_over = match self.side {
            Side::Connecting => {
                let is_down = |path: &PathState<D>| matches!(path, PathState::Down { .. });
                self.paths.iter().all(is_down) && self.pairings.iter().all(Pairing::has_tried_all)
            }
            // Each path once with each port.
            Side::Accepting => {
                let attempts = self.paths.len() * self.node.ports.len();
                self.first.as_ref().is_some_and(|first| first.count() >= attempts)
            }
        };
        if !is_over && self.stream.is_open() {
            return None;
        }
        let failure = self.first_failure();
        Some(failure.unwrap_or_else(|| match is_over {
            true => self.no_path(),
            false => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
        }))
    }

    /// Why this side could make no path; which ports, if no two of them could be joined
    fn first_failure(&mut self) -> Option<ConnectError> {
        let failure = self.first.as_mut().and_then(FirstFailures::take)?;
        Some(if concerns_both_ports(&failure) { self.no_path() } else { failure })
    }

    /// Runs until a path carries packets in both directions
    ///
    /// The connecting side sends nothing but questions before it has the answer to one, so the accepting side has its proof with the
    /// first session.
    pub(in crate::node) async fn prove_path(&mut self) -> Result<(), ConnectError> {
        // Making the first paths may have taken long.
        self.heard = self.now();
        self.port_at = self.heard + PORT_INTERVAL;
        while !self.peering.update(|state, _| state.take_proof()) {
            if let Some(error) = self.peering.error() {
                return Err(error.into());
            }
            if !self.stream.is_open() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.step().await;
        }
        self.on_news();
        Ok(())
    }

    /// The peer is to learn that no path was made
    pub(in crate::node) fn on_no_path(&mut self) {
        self.on_drop = ByeReason::NoPath;
    }

    /// No path was proven within `waited`
    pub(in crate::node) fn unproven(&mut self, waited: Duration) -> ConnectError {
        self.on_no_path();
        ConnectError::Unproven { ports: self.port_names(), waited }
    }
}
