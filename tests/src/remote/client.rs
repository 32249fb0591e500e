//! The end of the control connection that uses the device
#![allow(unsafe_code, reason = "registering and posting are unsafe in the traits")]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rdma_core::{
    Access, Caps, Cause, Completion, CompletionQueue, Device, Error, Gid, Lkey, MemoryRegion, PortStatus,
    QpAddress, QpCapacity, QpInit, QpState, QueuePair, RecvRequest, Rkey, SendOp, SendRequest, Sge, Teardown,
    Transition, Verb,
};
use serde::de::DeserializeOwned;

use super::message::{self, Created, Opened, Piece, Polled, Post, Refusal, Registered, Request, VERSION};

/// A server that does not respond within this time is taken for gone.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a process that [serves](super::serve) a device
///
/// Once it is gone, the calls of its devices panic.
#[derive(Debug)]
pub struct RemoteHost(Arc<Link>);

struct Link {
    /// `None` after an error: later responses could belong to earlier requests.
    stream: Mutex<Option<TcpStream>>,
    peer: String,
    next_object: AtomicU32,
    next_serial: AtomicU64,
    regions: Mutex<Vec<Region>>,
    /// Posted receives by their serial number.
    receives: Mutex<BTreeMap<u64, Receive>>,
}

#[derive(Clone, Copy)]
struct Region {
    device: u32,
    number: u32,
    base: u64,
    lkey: Lkey,
    start: NonNull<u8>,
    len: usize,
}

struct Receive {
    qp: u32,
    targets: Vec<Target>,
}

/// The memory of one scatter-gather element
struct Target {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is accessed only while a post or a poll may do so, by the thread that holds the lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Send for Target {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteHost {
    /// Connects to a server
    ///
    /// # Errors
    ///
    /// The address cannot be resolved or reached, or the server has another version.
    pub fn connect(peer: &str) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("the server at {peer}: {error}"));
        let stream = TcpStream::connect(peer).map_err(named)?;
        stream.set_nodelay(true).map_err(named)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).map_err(named)?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT)).map_err(named)?;
        let link = Link {
            stream: Mutex::new(Some(stream)),
            peer: peer.to_owned(),
            next_object: AtomicU32::new(0),
            next_serial: AtomicU64::new(0),
            regions: Mutex::default(),
            receives: Mutex::default(),
        };
        let greeted = link.request::<()>(&Request::Hello { version: VERSION });
        greeted.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok(Self(Arc::new(link)))
    }

    /// Opens the device that is served
    ///
    /// # Errors
    ///
    /// The error of the device at the server.
    ///
    /// # Panics
    ///
    /// This and all other calls panic if the server is gone or does not respond for a minute, so that the test fails.
    pub fn open(&self) -> Result<RemoteDevice, Error> {
        let number = self.0.new_object();
        let opened = self.0.call(&Request::Open { device: number })?;
        Ok(RemoteDevice { object: Object { link: Arc::clone(&self.0), number }, opened })
    }

    /// Ends the server
    pub fn finish(self) {
        // The server may have ended already.
        let _ = self.0.request::<()>(&Request::Finish);
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        // Leaked objects, such as a region of a queue pair with unknown teardown, hold the link: the server drops their counterparts.
        if let Some(stream) = lock(&self.0.stream).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Link {
    fn new_object(&self) -> u32 {
        self.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and returns the result of the verb; the outer error is that of the connection or of an invalid request
    fn request<T: DeserializeOwned>(&self, request: &Request) -> Result<Result<T, Error>, String> {
        let mut stream = lock(&self.stream);
        let Some(connection) = &mut *stream else {
            return Err(format!("the server at {} is gone", self.peer));
        };
        let response = message::write(connection, request).and_then(|()| message::read(connection));
        match response {
            Ok(Ok(value)) => Ok(Ok(value)),
            Ok(Err(Refusal::Verb(error))) => Ok(Err(error)),
            Ok(Err(Refusal::Invalid(why))) => Err(format!("the server at {}: {why}", self.peer)),
            Err(error) => {
                *stream = None;
                Err(format!("the server at {}: {error}", self.peer))
            }
        }
    }

    fn call<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        self.request(request).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The memory that a request refers to: its contents for the server, its addresses for the client
    ///
    /// # Safety
    ///
    /// The memory of the elements may be read now.
    unsafe fn resolve(&self, device: u32, sgl: &[Sge]) -> (Vec<Piece>, Vec<Target>) {
        let regions = lock(&self.regions);
        let (mut contents, mut targets) = (Vec::new(), Vec::new());
        for sge in sgl {
            let matches = |region: &&Region| (region.device, region.lkey) == (device, sge.lkey);
            // An invalid element is sent without contents: the device must refuse it.
            let Some(region) = regions.iter().find(matches) else { continue };
            let Some(offset) = sge.addr.checked_sub(region.base).map(|offset| offset as usize) else {
                continue;
            };
            let len = sge.len as usize;
            if offset.saturating_add(len) > region.len {
                continue;
            }
            // SAFETY: the offset was just found to be inside.
            let start = unsafe { region.start.add(offset) };
            // SAFETY: the memory of a registered region is valid, and the caller permits reading it.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
            contents.push(Piece { region: region.number, offset: offset as u64, bytes: bytes.to_vec() });
            targets.push(Target { start, len });
        }
        (contents, targets)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// An object at the server, dropped with this
#[derive(Debug)]
struct Object {
    link: Arc<Link>,
    number: u32,
}

impl Drop for Object {
    fn drop(&mut self) {
        // If the server is gone, so is the object.
        let _ = self.link.request::<()>(&Request::Drop { object: self.number });
    }
}

/// A device of a [`RemoteHost`]
#[derive(Debug)]
pub struct RemoteDevice {
    object: Object,
    opened: Opened,
}

// SAFETY: memory is accessed when a request that refers to it is posted, and when its completion is polled on a queue pair that
// is not destroyed; a completed receive is removed from the list.
unsafe impl Device for RemoteDevice {
    type Mr = RemoteMemoryRegion;
    type Cq = RemoteCompletionQueue;

    fn name(&self) -> &str {
        &self.opened.name
    }

    fn caps(&self) -> &Caps {
        &self.opened.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.object.link.call(&Request::Port { device: self.object.number })
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.object.link.call(&Request::Gids { device: self.object.number })
    }

    fn create_cq(&self, depth: u32) -> Result<RemoteCompletionQueue, Error> {
        let Object { link, number: device } = &self.object;
        let cq = link.new_object();
        link.call::<()>(&Request::CreateCq { device: *device, cq, depth })?;
        Ok(RemoteCompletionQueue { object: Object { link: Arc::clone(link), number: cq }, device: *device })
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<RemoteMemoryRegion, Error> {
        let Object { link, number: device } = &self.object;
        let (number, len) = (link.new_object(), mem.len());
        let request_message = Request::Register { device: *device, region: number, len: len as u64, access };
        let registered: Registered = link.call(&request_message)?;
        let (base, lkey) = (registered.base, registered.lkey);
        let region = Region { device: *device, number, base, lkey, start: mem.cast(), len };
        lock(&link.regions).push(region);
        Ok(RemoteMemoryRegion { object: Object { link: Arc::clone(link), number }, registered })
    }
}

/// A memory region of a [`RemoteDevice`]
#[derive(Debug)]
pub struct RemoteMemoryRegion {
    object: Object,
    registered: Registered,
}

impl MemoryRegion for RemoteMemoryRegion {
    fn base(&self) -> u64 {
        self.registered.base
    }

    fn lkey(&self) -> Lkey {
        self.registered.lkey
    }

    fn rkey(&self) -> Option<Rkey> {
        self.registered.rkey
    }

    fn deregister(&mut self) -> Teardown {
        lock(&self.object.link.regions).retain(|region| region.number != self.object.number);
        Teardown::Quiesced
    }
}

impl Drop for RemoteMemoryRegion {
    fn drop(&mut self) {
        let _quiesced = self.deregister();
    }
}

/// A completion queue of a [`RemoteDevice`]
#[derive(Debug)]
pub struct RemoteCompletionQueue {
    object: Object,
    device: u32,
}

impl CompletionQueue for RemoteCompletionQueue {
    type Qp = RemoteQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<RemoteQueuePair, Error> {
        let Object { link, number: cq } = &self.object;
        let qp = link.new_object();
        let created = link.call(&Request::CreateQp { cq: *cq, qp, init: *init })?;
        let object = Object { link: Arc::clone(link), number: qp };
        Ok(RemoteQueuePair { object, device: self.device, created, teardown: None })
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let Object { link, number: cq } = &self.object;
        let polled: Polled = link.call(&Request::Poll { cq: *cq, at_most: out.len() as u32 })?;
        assert!(
            polled.completions.len() <= out.len(),
            "the server returned more completions than there is space for"
        );
        let mut receives = lock(&link.receives);
        for received in &polled.received {
            let Some(receive) = receives.remove(&received.serial) else { continue };
            for (target, bytes) in receive.targets.iter().zip(&received.bytes) {
                let len = bytes.len().min(target.len);
                // SAFETY: the memory belongs to a receive that completes now, on a queue pair that is not destroyed.
                unsafe { target.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
            }
        }
        out[..polled.completions.len()].copy_from_slice(&polled.completions);
        Ok(polled.completions.len())
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let n = self.poll(out)?;
        if n < out.len() {
            // The server does not announce completions: poll again at once.
            cx.waker().wake_by_ref();
        }
        if n == 0 { Poll::Pending } else { Poll::Ready(Ok(n)) }
    }
}

/// A queue pair of a [`RemoteDevice`]
#[derive(Debug)]
pub struct RemoteQueuePair {
    object: Object,
    device: u32,
    created: Created,
    teardown: Option<Teardown>,
}

impl QueuePair for RemoteQueuePair {
    fn address(&self) -> QpAddress {
        self.created.address
    }

    fn capacity(&self) -> QpCapacity {
        self.created.capacity
    }

    fn state(&self) -> QpState {
        let state = self.object.link.call(&Request::State { qp: self.object.number });
        state.unwrap_or_else(|error| panic!("the state of a queue pair: {error}"))
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        self.object.link.call(&Request::Modify { qp: self.object.number, to })
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        if request.op != SendOp::Send {
            return Err(Error::new(Verb::PostSend, Cause::Unsupported));
        }
        // SAFETY: by contract, posted memory is not written.
        let (contents, _) = unsafe { self.object.link.resolve(self.device, request.sgl) };
        let SendRequest { id, op, sgl, signaled } = *request;
        let post = Post { qp: self.object.number, id, sgl: sgl.to_vec(), contents };
        self.object.link.call(&Request::PostSend { post, op, signaled })
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let Object { link, number: qp } = &self.object;
        // SAFETY: by contract, posted memory is left to the device.
        let (contents, targets) = unsafe { link.resolve(self.device, request.sgl) };
        let serial = link.next_serial.fetch_add(1, Ordering::Relaxed);
        // Inserted before the post: another thread may poll the completion.
        lock(&link.receives).insert(serial, Receive { qp: *qp, targets });
        let RecvRequest { id, sgl } = *request;
        let post = Post { qp: *qp, id, sgl: sgl.to_vec(), contents };
        let answer = link.request(&Request::PostRecv { post, serial });
        if !matches!(answer, Ok(Ok(()))) {
            lock(&link.receives).remove(&serial);
        }
        answer.unwrap_or_else(|why| panic!("{why}"))
    }

    fn destroy(&mut self) -> Teardown {
        let Object { link, number: qp } = &self.object;
        *self.teardown.get_or_insert_with(|| {
            let answer = link.request(&Request::Destroy { qp: *qp });
            lock(&link.receives).retain(|_, receive| receive.qp != *qp);
            // If the server is gone, this process does not access the memory any more.
            answer.map_or(Teardown::Quiesced, |teardown| teardown.unwrap_or(Teardown::Unknown))
        })
    }
}

impl Drop for RemoteQueuePair {
    fn drop(&mut self) {
        let number = self.object.number;
        lock(&self.object.link.receives).retain(|_, receive| receive.qp != number);
    }
}
