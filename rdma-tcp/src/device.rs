//! Devices behind the traits
#![allow(unsafe_code, reason = "implements an unsafe trait")]

use std::fmt;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker as TaskWaker;
use std::thread;

use mio::net::TcpListener;
use mio::{Poll, Waker};
use rdma_core::{Access, Caps, Device, Error, Gid, PortState, PortStatus, Verb};

use crate::bind_error::BindError;
use crate::completion_queue::TcpCompletionQueue;
use crate::engine::{Engine, MAILBOX};
use crate::handle::Handle;
use crate::handshake;
use crate::mailbox::Mailbox;
use crate::memory_region::TcpMemoryRegion;
use crate::options::TcpOptions;
use crate::shared::Shared;

/// A software device whose queue pairs are TCP connections
///
/// It has a listener, a thread that moves the bytes of all its queue pairs, and a protection domain of its own. The thread sleeps
/// while there is nothing to do. When the device and all objects that were created on it are gone, the thread has ended and
/// the sockets are closed.
///
/// ```
/// use rdma_core::{Device as _, PortState};
/// use rdma_tcp::{TcpDevice, TcpOptions};
///
/// let device = TcpDevice::bind(([127, 0, 0, 1], 0).into(), TcpOptions::new())?;
/// assert_eq!(device.port()?.state, PortState::Active);
/// assert_eq!(device.gids()?[0].to_string(), "::ffff:127.0.0.1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpDevice {
    handle: Arc<Handle>,
    address: SocketAddr,
}

impl TcpDevice {
    /// Opens a device that listens on `address`; port 0 is any port that is free
    ///
    /// The IP address is the GID, unless [`TcpOptions::advertise`] states another. Queue pair addresses carry the port.
    ///
    /// # Errors
    ///
    /// [`BindError::Unspecified`] if peers would have to connect to an unspecified address, [`BindError::Listen`] if the system refuses
    /// the address, [`BindError::Thread`] if it has no event queue or thread.
    ///
    /// ```
    /// use rdma_tcp::{TcpDevice, TcpOptions};
    ///
    /// // On all interfaces, for peers that reach this host as 192.0.2.7.
    /// let options = TcpOptions::new().advertise([192, 0, 2, 7].into());
    /// let device = TcpDevice::bind(([0, 0, 0, 0], 0).into(), options)?;
    /// assert_ne!(device.local_addr().port(), 0);
    /// # Ok::<(), rdma_tcp::BindError>(())
    /// ```
    pub fn bind(address: SocketAddr, options: TcpOptions) -> Result<Self, BindError> {
        let advertised = options.advertise.unwrap_or_else(|| address.ip());
        if advertised.to_canonical().is_unspecified() {
            return Err(BindError::Unspecified { address: (advertised, address.port()).into() });
        }
        let listener = TcpListener::bind(address).map_err(|source| BindError::Listen { address, source })?;
        let bound = listener.local_addr().map_err(|source| BindError::Listen { address, source })?;
        let scope = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        let poll = Poll::new().map_err(BindError::Thread)?;
        let waker = Waker::new(poll.registry(), MAILBOX).map_err(BindError::Thread)?;
        let gid = handshake::gid(advertised);
        let shared = Arc::new(Shared::new(gid, scope, bound.port(), options, Mailbox::new(waker)));
        let engine = Engine::new(&shared, poll, listener).map_err(BindError::Thread)?;
        // Names of threads end at the first zero.
        let name = shared.options.name.replace('\0', "");
        let thread = thread::Builder::new().name(name).spawn(|| engine.run());
        let thread = Some(thread.map_err(BindError::Thread)?);
        Ok(Self { handle: Arc::new(Handle { shared, thread }), address: bound })
    }

    /// Where the listener is
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    fn check(&self, verb: Verb) -> Result<(), Error> {
        self.handle.shared.check().map_err(|cause| Error::new(verb, cause))
    }
}

// SAFETY: each access to registered memory is in `wire.rs`, under the lock of its queue pair's connection and that of the
// regions, for a request that is at the head of its queue.
// * `destroy` takes the first lock, and afterwards the connection and its requests are gone.
// * A request is taken out of its queue when it completes, and its memory is accessed only before.
// * Receives leave their queue in the order of their posts and complete one after the other.
// * A range is found through the table of regions for each access; there are no one-sided operations.
// * Deregistering takes the second lock to remove the region from the table.
unsafe impl Device for TcpDevice {
    type Mr = TcpMemoryRegion;
    type Cq = TcpCompletionQueue;

    fn name(&self) -> &str {
        &self.handle.shared.options.name
    }

    fn caps(&self) -> &Caps {
        &self.handle.shared.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.check(Verb::QueryPort)?;
        Ok(PortStatus::new(PortState::Active, self.handle.shared.options.bits_per_second))
    }

    /// The port is active until the thread of the device ends
    fn watch_port(&self, waker: TaskWaker) -> bool {
        self.handle.shared.watch_port(waker);
        true
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.check(Verb::QueryPort)?;
        Ok(vec![self.handle.shared.gid])
    }

    fn create_cq(&self, depth: u32) -> Result<TcpCompletionQueue, Error> {
        TcpCompletionQueue::new(&self.handle, depth)
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<TcpMemoryRegion, Error> {
        self.check(Verb::RegMr)?;
        // SAFETY: the caller promises it until the returned region is dropped, which removes it from the table.
        let lkey = unsafe { self.handle.shared.regions.add(mem, access) };
        let lkey = lkey.map_err(|cause| Error::new(Verb::RegMr, cause))?;
        let base = mem.cast::<u8>().as_ptr() as u64;
        Ok(TcpMemoryRegion { device: Arc::clone(&self.handle), base, lkey })
    }
}

impl fmt::Debug for TcpDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpDevice").field("address", &self.address).finish_non_exhaustive()
    }
}
