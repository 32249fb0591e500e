//! Memory of the application, on all paths of a node

use std::ops::DerefMut;
use std::sync::Arc;

use rdma_core::session::PathId;
use rdma_core::{Cause, Device};
use stable_deref_trait::StableDeref;

use super::Node;
use super::inner::{NodeInner, Route};
use super::port::Port;
use crate::adopt_error::AdoptError;
use crate::blocked_call::DeviceCall;
use crate::error::PoolError;
use crate::peering::shared::PeeringShared;
use crate::pool::{Adopted, AdoptedMemory, Adopter, Registration};

impl<D: Device> Node<D> {
    /// Takes memory of the application, to send from it and receive into it without a copy, on all sessions of the node
    ///
    /// Registered once for each path, also for those that are made later. Apple's device takes no memory of the heap, and none that is
    /// not aligned to 16 KiB, and misplaces data in memory across a 4 GiB boundary of its addresses, which is refused there (field
    /// reports): [`MappedBytes`](crate::MappedBytes) suits it. A device takes about 100 registrations: as
    /// many times as many memories as paths, and no path can be made beyond.
    ///
    /// Messages are [received](crate::Stream::recv_into) without a copy when all paths to the peer were made after the memory was adopted:
    /// Apple's device does not write to memory that was registered after a queue pair was set up (field reports). Until then, they
    /// are copied. Devices register it on the calling thread, which may take long.
    ///
    /// # Errors
    ///
    /// With the owner: [`AdoptError`] if a device refuses the memory, or if it has no byte, or 4 GiB or more.
    pub fn adopt<T>(&self, owner: T) -> Result<Adopted<T>, AdoptError<T>>
    where
        T: DerefMut<Target = [u8]> + StableDeref + Send + 'static,
    {
        let node = self.inner();
        let memory = match node.pool.adopt(owner) {
            Ok(memory) => memory,
            Err(owner) => return Err(AdoptError { refusal: None, owner: Some(owner) }),
        };
        let registered = node.adopt(&memory);
        let weak = Arc::downgrade(node);
        let adopted = Adopted::new(memory, weak);
        match registered {
            Ok(()) => Ok(adopted),
            Err(refusal) => Err(AdoptError { refusal: Some(refusal), owner: adopted.into_inner().ok() }),
        }
    }
}

impl<D: Device> NodeInner<D> {
    /// The memory that each path registers
    pub(super) fn adopted(&self) -> Vec<AdoptedMemory> {
        self.adopted.lock().iter().map(|(memory, _)| memory.clone()).collect()
    }

    /// Registers `memory` for all paths, and tries the devices that no path uses now
    fn adopt(&self, memory: &AdoptedMemory) -> Result<(), PoolError> {
        self.forget_unused();
        for port in self.ports.iter().filter_map(Port::current) {
            match Registration::adopted(memory, port.device()) {
                Err(error) if error.cause != Cause::DeviceGone => return Err(PoolError::Register(error)),
                registered => drop(registered),
            }
        }
        // First for paths that are being made.
        self.keep(memory);
        for Route { peering, path, .. } in self.routes() {
            let Some((key, port)) = peering.update(|state, _| state.wants(path, memory)) else { continue };
            let registration = Registration::adopted(memory, port.device()).map_err(PoolError::Register)?;
            let late = peering.update(|state, _| state.adopt(path, key, registration));
            port.calls().discard(DeviceCall::Stop, late);
        }
        Ok(())
    }

    /// Lets all paths forget the memory that was given up and has no lease
    fn forget_unused(&self) {
        let mut adopted = self.adopted.lock();
        let unused = adopted.extract_if(.., |(memory, is_given_up)| *is_given_up && memory.is_free());
        let unused = unused.collect::<Vec<_>>();
        drop(adopted);
        if !unused.is_empty() {
            for Route { peering, path, .. } in self.routes() {
                self.forget_on(&peering, path);
            }
        }
    }

    /// Lets a path forget what is not adopted any more
    pub(super) fn forget_on(&self, peering: &PeeringShared<D>, path: PathId) {
        let adopted = self.adopted();
        if let Some((calls, forgotten)) = peering.update(|state, _| state.retain_adopted(path, &adopted)) {
            calls.discard(DeviceCall::Stop, forgotten);
        }
    }
}

impl<D: Device> Adopter for NodeInner<D> {
    fn keep(&self, memory: &AdoptedMemory) {
        self.adopted.lock().push((memory.clone(), false));
    }

    fn disown(&self, memory: &AdoptedMemory) {
        for (known, is_given_up) in self.adopted.lock().iter_mut() {
            *is_given_up |= known.is(memory);
        }
        self.forget_unused();
    }
}
