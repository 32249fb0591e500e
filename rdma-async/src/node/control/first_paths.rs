//! The paths that are made before a peering is used

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rdma_core::Device;
use rdma_core::session::{ControlMessage, HelloError, PathId, Side};

use super::{Control, PORT_INTERVAL};
use crate::bootstrap_stream::BootstrapStream;
use crate::error::ConnectError;

impl<D: Device, S: BootstrapStream + Send + 'static> Control<D, S> {
    /// Makes the paths that can be made now, at least one
    ///
    /// Ports are tried with those of the same number first, and crosswise only if none of them leads to the peer: an attempt
    /// that fails may harm Apple's device.
    pub(in crate::node) async fn make_first_paths(&mut self) -> Result<(), ConnectError> {
        let made = match self.side {
            Side::Connecting => self.offer_first_paths().await,
            Side::Accepting => self.answer_first_path().await,
        };
        self.stream.flush().await?;
        made
    }

    async fn offer_first_paths(&mut self) -> Result<(), ConnectError> {
        let mut failure = None;
        for _ in 0..self.peer_ports {
            for index in 0..self.paths.len() {
                match self.offer_first_path(index).await {
                    Err(ConnectError::Stream(error)) => {
                        return Err(failure.unwrap_or(ConnectError::Stream(error)));
                    }
                    Err(error) => failure = failure.or(Some(error)),
                    Ok(()) => (),
                }
            }
            if self.has_path() {
                return Ok(());
            }
        }
        Err(failure.unwrap_or_else(|| self.no_path()))
    }

    /// Makes a path, if a port of the peer is free that was not tried
    async fn offer_first_path(&mut self, index: usize) -> Result<(), ConnectError> {
        let Ok(port) = self.find_candidate(index) else { return Ok(()) };
        self.begin_offer(index, port);
        self.finish_making(index).await?;
        let (path, epoch) = (PathId(index as u32), self.epochs[index]);
        loop {
            match self.stream.next().await? {
                ControlMessage::Answer { end, port } if (end.path, end.epoch) == (path, epoch) => {
                    self.on_answer(end, port)?;
                    return self.finish_making(index).await;
                }
                ControlMessage::Lost { path: lost, epoch: of, is_unreachable }
                    if (lost, of) == (path, epoch) =>
                {
                    self.retry_later(index, is_unreachable);
                    return Err(self.no_path());
                }
                ControlMessage::Confirm(_) | ControlMessage::Offer(_) => {
                    return Err(HelloError::Unexpected.into());
                }
                // Of an earlier path, or that the peer is alive.
                other => self.on_message(other),
            }
            if let Some(error) = self.peering.error() {
                return Err(error.into());
            }
        }
    }

    /// Answers until one path is made
    async fn answer_first_path(&mut self) -> Result<(), ConnectError> {
        let mut failure = None;
        // Each path once with each port.
        for _ in 0..self.paths.len() * self.node.ports.len() {
            let message = match self.stream.next().await {
                Err(error) => return Err(failure.unwrap_or(error)),
                Ok(message) => message,
            };
            let ControlMessage::Offer(offer) = message else {
                return Err(failure.unwrap_or_else(|| HelloError::Unexpected.into()));
            };
            let index = offer.end.path.0 as usize;
            let made = match self.on_offer(offer) {
                Ok(()) => self.finish_making(index).await,
                Err(error) => Err(error),
            };
            match made {
                Ok(()) => return Ok(()),
                Err(error) => failure = failure.or(Some(error)),
            }
            self.stream.flush().await?;
        }
        Err(failure.unwrap_or_else(|| self.no_path()))
    }

    /// Waits until the device has done what it does for a path
    async fn finish_making(&mut self, index: usize) -> Result<(), ConnectError> {
        let made = poll_fn(|cx| match self.making.get_mut(index).and_then(Option::as_mut) {
            Some(making) => making.as_mut().poll(cx).map(Some),
            None => Poll::Ready(None),
        });
        match made.await {
            Some(made) => self.on_made(index, made),
            // An earlier incarnation of the path has not stopped.
            None => Err(self.no_path()),
        }
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

    /// No path was proven within `waited`
    pub(in crate::node) fn unproven(&self, waited: Duration) -> ConnectError {
        ConnectError::Unproven { ports: self.port_names(), waited }
    }
}
