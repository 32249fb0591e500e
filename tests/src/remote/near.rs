//! The end that asks
#![allow(unsafe_code, reason = "registering and posting are unsafe in the traits")]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
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

use super::message::{Created, Opened, Piece, Polled, Question, Registered, VERSION, outcome};
use super::wire::{Bytes, Wire};
use super::{read_frame, write_frame};

/// No answer takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a process that [serves](super::serve) a device
///
/// What is opened through it fails once it is gone.
#[derive(Debug)]
pub struct RemoteHost(Arc<Link>);

struct Link {
    /// `None` once something went wrong: questions and answers belong together no more.
    stream: Mutex<Option<TcpStream>>,
    peer: String,
    next_object: AtomicU32,
    next_serial: AtomicU64,
    regions: Mutex<Vec<Region>>,
    /// By the number that goes to the far end and comes back.
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
    places: Vec<Place>,
}

struct Place {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is reached only while a post or a poll may touch it, by whoever holds the lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Send for Place {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteHost {
    /// Connects to a server
    ///
    /// # Errors
    ///
    /// Nobody serves there, or another version of this.
    pub fn connect(peer: &str) -> io::Result<Self> {
        let told = |error: io::Error| io::Error::new(error.kind(), format!("the far end at {peer}: {error}"));
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let addresses = peer.to_socket_addrs().map_err(told)?;
        let mut connect = |address| {
            TcpStream::connect_timeout(&address, PATIENCE)
                .inspect_err(|error| last = io::Error::other(error.to_string()))
        };
        let connected = addresses.into_iter().find_map(|address| connect(address).ok());
        let Some(stream) = connected else { return Err(told(last)) };
        stream.set_nodelay(true).map_err(told)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(told)?;
        let link = Link {
            stream: Mutex::new(Some(stream)),
            peer: peer.to_owned(),
            next_object: AtomicU32::new(0),
            next_serial: AtomicU64::new(0),
            regions: Mutex::default(),
            receives: Mutex::default(),
        };
        let answer = link.ask::<()>(&Question::Hello { version: VERSION });
        match answer.map_err(io::Error::other)? {
            Ok(()) => Ok(Self(Arc::new(link))),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Opens the device that is served
    ///
    /// # Errors
    ///
    /// What the far end says.
    ///
    /// # Panics
    ///
    /// All calls panic when the far end is gone, or does not answer for a minute: a test fails then, and says so.
    pub fn open(&self) -> Result<RemoteDevice, Error> {
        let number = self.0.new_object();
        let Opened { name, caps } = self.0.call(&Question::Open { device: number })?;
        Ok(RemoteDevice { object: Object { link: Arc::clone(&self.0), number }, name, caps })
    }

    /// Tells the server that nobody will come any more
    pub fn finish(self) {
        // It may be gone by itself.
        let _ = self.0.ask::<()>(&Question::Bye {});
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        // Whatever still holds the link, such as a region that was given up for lost: the far end cleans up.
        if let Some(stream) = lock(&self.0.stream).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Link {
    fn new_object(&self) -> u32 {
        self.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks; what is wrong with the connection, or with the question, is a text
    fn ask<T: Wire>(&self, question: &Question) -> Result<Result<T, Error>, String> {
        let mut stream = lock(&self.stream);
        let Some(connection) = &mut *stream else {
            return Err(format!("the far end at {} is gone", self.peer));
        };
        let mut body = Vec::new();
        question.put(&mut body);
        let answer = write_frame(connection, &body).and_then(|()| read_frame(connection));
        let parsed = answer.map_err(|error| error.to_string()).and_then(|answer| {
            let malformed = |error: super::wire::Malformed| error.to_string();
            let (kind, content) = answer.split_first().ok_or("an empty answer")?;
            match *kind {
                outcome::DONE => T::parse(content).map(|value| Ok(Ok(value))).map_err(malformed),
                outcome::REFUSED => Error::parse(content).map(|error| Ok(Err(error))).map_err(malformed),
                outcome::WRONG => String::parse(content).map(Err).map_err(malformed),
                _ => Err("an answer of no kind".to_owned()),
            }
        });
        let told = |why: String| format!("the far end at {}: {why}", self.peer);
        match parsed {
            Ok(answer) => answer.map_err(told),
            Err(why) => {
                *stream = None;
                Err(told(why))
            }
        }
    }

    fn call<T: Wire>(&self, question: &Question) -> Result<T, Error> {
        self.ask(question).unwrap_or_else(|why| panic!("{why}"))
    }

    /// What the elements of a request name: numbers and content for the far end, places for this one
    ///
    /// # Safety
    ///
    /// The memory that the elements name may be read now.
    unsafe fn named(&self, device: u32, sgl: &[Sge]) -> (Vec<Piece>, Vec<Place>) {
        let regions = lock(&self.regions);
        let mut named = (Vec::new(), Vec::new());
        for sge in sgl {
            let is_it = |region: &&Region| (region.device, region.lkey) == (device, sge.lkey);
            // What names nothing goes as it is: the device has to find out.
            let Some(region) = regions.iter().find(is_it) else { continue };
            let Some(offset) = sge.addr.checked_sub(region.base).map(|offset| offset as usize) else {
                continue;
            };
            let len = sge.len as usize;
            if offset.saturating_add(len) > region.len {
                continue;
            }
            // SAFETY: the offset was just found to be inside.
            let start = unsafe { region.start.add(offset) };
            // SAFETY: the region is registered, and so its memory is there; the caller lets it be read.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
            named.0.push(Piece {
                region: region.number,
                offset: offset as u64,
                bytes: Bytes(bytes.to_vec()),
            });
            named.1.push(Place { start, len });
        }
        named
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Something that the far end has, until this is dropped
#[derive(Debug)]
struct Object {
    link: Arc<Link>,
    number: u32,
}

impl Drop for Object {
    fn drop(&mut self) {
        // If the far end is gone, so is the object.
        let _ = self.link.ask::<()>(&Question::Drop { object: self.number });
    }
}

/// A device of a [`RemoteHost`]
#[derive(Debug)]
pub struct RemoteDevice {
    object: Object,
    name: String,
    caps: Caps,
}

// SAFETY: this end touches memory when a request that names it is posted, and when its completion is polled, of a queue pair that
// is not destroyed; what has completed is forgotten.
unsafe impl Device for RemoteDevice {
    type Mr = RemoteMemoryRegion;
    type Cq = RemoteCompletionQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.object.link.call(&Question::Port { device: self.object.number })
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.object.link.call(&Question::Gids { device: self.object.number })
    }

    fn create_cq(&self, depth: u32) -> Result<RemoteCompletionQueue, Error> {
        let Object { link, number: device } = &self.object;
        let cq = link.new_object();
        link.call::<()>(&Question::CreateCq { device: *device, cq, depth })?;
        Ok(RemoteCompletionQueue { object: Object { link: Arc::clone(link), number: cq }, device: *device })
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<RemoteMemoryRegion, Error> {
        let Object { link, number: device } = &self.object;
        let (number, len) = (link.new_object(), mem.len());
        let question = Question::Register { device: *device, region: number, len: len as u64, access };
        let Registered { base, lkey, rkey } = link.call(&question)?;
        let region = Region { device: *device, number, base, lkey, start: mem.cast(), len };
        lock(&link.regions).push(region);
        Ok(RemoteMemoryRegion { object: Object { link: Arc::clone(link), number }, base, lkey, rkey })
    }
}

/// A memory region of a [`RemoteDevice`]
#[derive(Debug)]
pub struct RemoteMemoryRegion {
    object: Object,
    base: u64,
    lkey: Lkey,
    rkey: Option<Rkey>,
}

impl MemoryRegion for RemoteMemoryRegion {
    fn base(&self) -> u64 {
        self.base
    }

    fn lkey(&self) -> Lkey {
        self.lkey
    }

    fn rkey(&self) -> Option<Rkey> {
        self.rkey
    }
}

impl Drop for RemoteMemoryRegion {
    fn drop(&mut self) {
        lock(&self.object.link.regions).retain(|region| region.number != self.object.number);
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
        let Created { address, capacity } = link.call(&Question::CreateQp { cq: *cq, qp, init: *init })?;
        let object = Object { link: Arc::clone(link), number: qp };
        Ok(RemoteQueuePair { object, device: self.device, address, capacity, teardown: None })
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let Object { link, number: cq } = &self.object;
        let polled: Polled = link.call(&Question::Poll { cq: *cq, at_most: out.len() as u32 })?;
        assert!(
            polled.completions.len() <= out.len(),
            "the far end found more completions than there is space for"
        );
        let mut receives = lock(&link.receives);
        for arrived in &polled.arrived {
            let Some(receive) = receives.remove(&arrived.serial) else { continue };
            for (place, Bytes(bytes)) in receive.places.iter().zip(&arrived.bytes) {
                let len = bytes.len().min(place.len);
                // SAFETY: the memory was named by a receive that is completed by this, on a queue pair that is not destroyed.
                unsafe { place.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
            }
        }
        out[..polled.completions.len()].copy_from_slice(&polled.completions);
        Ok(polled.completions.len())
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let n = self.poll(out)?;
        if n < out.len() {
            // Nobody tells this end when to ask again.
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
    address: QpAddress,
    capacity: QpCapacity,
    teardown: Option<Teardown>,
}

impl QueuePair for RemoteQueuePair {
    fn address(&self) -> QpAddress {
        self.address
    }

    fn capacity(&self) -> QpCapacity {
        self.capacity
    }

    fn state(&self) -> QpState {
        let state = self.object.link.call(&Question::State { qp: self.object.number });
        state.unwrap_or_else(|error| panic!("a state is not refused: {error}"))
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        self.object.link.call(&Question::Modify { qp: self.object.number, to })
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        if request.op != SendOp::Send {
            return Err(Error::new(Verb::PostSend, Cause::Unsupported));
        }
        // SAFETY: memory that is posted is not written, by contract.
        let (bytes, _) = unsafe { self.object.link.named(self.device, request.sgl) };
        let SendRequest { id, op, sgl, signaled } = *request;
        let qp = self.object.number;
        self.object.link.call(&Question::PostSend { qp, id, op, signaled, sgl: sgl.to_vec(), bytes })
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let Object { link, number: qp } = &self.object;
        // SAFETY: memory that is posted is left to the device, by contract.
        let (bytes, places) = unsafe { link.named(self.device, request.sgl) };
        let serial = link.next_serial.fetch_add(1, Ordering::Relaxed);
        // Before it is posted: another thread may poll.
        lock(&link.receives).insert(serial, Receive { qp: *qp, places });
        let RecvRequest { id, sgl } = *request;
        let question = Question::PostRecv { qp: *qp, serial, id, sgl: sgl.to_vec(), bytes };
        let answer = link.ask(&question);
        if !matches!(answer, Ok(Ok(()))) {
            lock(&link.receives).remove(&serial);
        }
        answer.unwrap_or_else(|why| panic!("{why}"))
    }

    fn destroy(&mut self) -> Teardown {
        let Object { link, number: qp } = &self.object;
        *self.teardown.get_or_insert_with(|| {
            let answer = link.ask(&Question::Destroy { qp: *qp });
            lock(&link.receives).retain(|_, receive| receive.qp != *qp);
            // If the far end is gone, nobody touches memory here.
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
