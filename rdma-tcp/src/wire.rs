//! The TCP connection of a queue pair, and the messages that are under way on it
//!
//! A message is its length, four bytes big-endian, and its bytes. A queue pair that is destroyed sends the length
//! [`GOODBYE`]: its peer then falls silent, as on any unreliable connection, whereas a connection that is cut is an error.
#![allow(unsafe_code, reason = "moves bytes between the socket and posted memory")]

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

use mio::net::TcpStream;
use rdma_core::{Sge, Status};

use crate::frame_counts::Queue;
use crate::regions::{Mapped, Regions};
use crate::sync::lock;
use crate::transfer::{self, MAX_RANGES, Ranges};
use crate::work::{Finisher, Request, Work};

/// Stands for the length of a message when there will be none.
const GOODBYE: u32 = u32::MAX;
/// Bytes of the length before a message.
const HEADER: usize = 4;
/// Bytes of one direction after which other queue pairs have their turn.
const BUDGET: usize = 256 << 10;
/// Bytes that one read takes beyond the receive that it fills. They are copied: lengths, short messages, and beginnings of long ones.
pub(crate) const STAGING: usize = 16 << 10;

/// The connection of a queue pair
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// Whether the system has refused bytes: the connection is over when everything of the peer is read.
    has_failed: bool,
    header: [u8; HEADER],
    /// Bytes of `header` that have arrived, while `body` is [`Body::Expected`].
    header_len: usize,
    body: Body,
    sending: VecDeque<Outgoing>,
    /// Bytes of the first message in `sending` that the system has taken, its length included.
    sent: usize,
}

/// Where the bytes of the message that arrives go
enum Body {
    /// No message is arriving
    Expected,
    /// Into a receive: so many of so many bytes are there
    Into { request: Request, filled: u32, len: u32 },
    /// Nowhere: so many bytes are still to come
    Discard(u32),
}

/// A message that is being sent
struct Outgoing {
    header: [u8; HEADER],
    request: Request,
}

/// Why a connection is over
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// The peer destroyed its queue pair
    Goodbye,
    /// The connection is cut, or the peer does not follow the protocol, or memory of a request was deregistered
    Lost,
}

/// The parts of a queue pair that its connection uses during a turn
pub(crate) struct Resources<'a, 'f> {
    pub(crate) work: &'a Mutex<Work>,
    pub(crate) regions: &'a Regions,
    pub(crate) finisher: Finisher<'f>,
    pub(crate) staging: &'a mut [u8; STAGING],
    pub(crate) max_message: u32,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            // The handshake may have used up the events of the socket.
            is_readable: true,
            is_writable: true,
            has_failed: false,
            header: [0; HEADER],
            header_len: 0,
            body: Body::Expected,
            sending: VecDeque::new(),
            sent: 0,
        }
    }

    /// Whether there may be something to do without another event
    pub(crate) fn is_ready(&self, work: &Mutex<Work>) -> bool {
        self.is_readable || self.is_writable && !(self.sending.is_empty() && lock(work).sends.is_empty())
    }

    /// Reads messages into the posted receives until there are no more, or others have their turn
    pub(crate) fn receive(&mut self, resources: &mut Resources<'_, '_>) -> Result<(), Ended> {
        let mut budget = BUDGET;
        while self.is_readable && budget > 0 {
            let n = match self.read(resources)? {
                Ok(0) => return Err(Ended::Lost),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.has_failed => {
                    self.is_readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(Ended::Lost),
            };
            budget = budget.saturating_sub(n);
        }
        Ok(())
    }

    /// Reads once: the rest of the message that arrives into its receive, and bytes behind it into the staging buffer
    fn read(&mut self, resources: &mut Resources<'_, '_>) -> Result<io::Result<usize>, Ended> {
        let mapped = resources.regions.map();
        let mut ranges = Ranges::new();
        let mut direct = 0;
        let mut is_rest = true;
        if let Body::Into { request, filled, len } = &self.body {
            let Ok(at) = mapped.range(&part(request, *filled, len - filled), true) else {
                drop(mapped);
                return Err(self.refuse_receive(resources));
            };
            direct = ((len - filled) as usize).min(BUDGET);
            is_rest = direct == (len - filled) as usize;
            // SAFETY: `mapped` keeps the memory valid and outlives the ranges. The poster promises that nothing else
            // accesses it until the request has completed, or the queue pair was destroyed, which waits for the lock of
            // this connection.
            unsafe { ranges.push(at, direct) };
        }
        if is_rest {
            ranges.push_buffer(&mut resources.staging[..]);
        }
        let n = match transfer::receive(&mut ranges, &self.stream) {
            Ok(n) => n,
            Err(error) => return Ok(Err(error)),
        };
        drop(mapped);
        let direct = n.min(direct);
        self.fill(direct as u32, &mut resources.finisher);
        self.distribute(n - direct, resources)?;
        Ok(Ok(n))
    }

    /// Notes that bytes have arrived in the receive
    fn fill(&mut self, arrived: u32, finisher: &mut Finisher<'_>) {
        let Body::Into { request, filled, len } = &mut self.body else { return };
        *filled += arrived;
        if filled == len {
            finisher.finish(Queue::Recv, request, Status::Success, *len);
            self.body = Body::Expected;
        }
    }

    /// Copies the first `staged` bytes of the staging buffer to where they belong
    fn distribute(&mut self, staged: usize, resources: &mut Resources<'_, '_>) -> Result<(), Ended> {
        let mut at = 0;
        loop {
            match &mut self.body {
                Body::Expected => {
                    let bytes = &resources.staging[at..staged];
                    let n = bytes.len().min(HEADER - self.header_len);
                    self.header[self.header_len..][..n].copy_from_slice(&bytes[..n]);
                    self.header_len += n;
                    at += n;
                    if self.header_len < HEADER {
                        return Ok(());
                    }
                    self.header_len = 0;
                    self.begin(u32::from_be_bytes(self.header), resources)?;
                }
                Body::Discard(left) => {
                    let n = (staged - at).min(*left as usize);
                    at += n;
                    *left -= n as u32;
                    if *left > 0 {
                        return Ok(());
                    }
                    self.body = Body::Expected;
                }
                Body::Into { request, filled, len } => {
                    let bytes = &resources.staging[at..staged];
                    let n = bytes.len().min((*len - *filled) as usize);
                    if n == 0 {
                        return Ok(());
                    }
                    let mapped = resources.regions.map();
                    let Ok(into) = mapped.range(&part(request, *filled, n as u32), true) else {
                        drop(mapped);
                        return Err(self.refuse_receive(resources));
                    };
                    // SAFETY: `mapped` keeps the memory valid, and nothing else accesses it until the request has completed, as
                    // its poster promises; the staging buffer is elsewhere.
                    unsafe { into.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), n) };
                    drop(mapped);
                    at += n;
                    self.fill(n as u32, &mut resources.finisher);
                }
            }
        }
    }

    /// Takes the oldest receive for a message of `len` bytes
    fn begin(&mut self, len: u32, resources: &mut Resources<'_, '_>) -> Result<(), Ended> {
        if len == GOODBYE {
            return Err(Ended::Goodbye);
        }
        if len > resources.max_message {
            return Err(Ended::Lost);
        }
        let request = lock(resources.work).recvs.pop_front();
        self.body = match request {
            // Nothing waits for it: as on any unreliable connection, it is lost.
            None => Body::Discard(len),
            Some(request) if len > request.sge.len => {
                resources.finisher.finish(Queue::Recv, &request, Status::LocalLength, 0);
                Body::Discard(len)
            }
            Some(request) => Body::Into { request, filled: 0, len },
        };
        if len == 0 {
            self.fill(0, &mut resources.finisher);
        }
        Ok(())
    }

    /// Completes the receive whose memory is not registered any more
    fn refuse_receive(&mut self, resources: &mut Resources<'_, '_>) -> Ended {
        if let Body::Into { request, .. } = std::mem::replace(&mut self.body, Body::Expected) {
            resources.finisher.finish(Queue::Recv, &request, Status::LocalProtection, 0);
        }
        Ended::Lost
    }

    /// Writes posted sends until there are no more, the socket is full, or others have their turn
    pub(crate) fn transmit(&mut self, resources: &mut Resources<'_, '_>) -> Result<(), Ended> {
        let mut budget = BUDGET;
        while self.is_writable && budget > 0 {
            self.refill(resources.work);
            if self.sending.is_empty() {
                break;
            }
            let mapped = resources.regions.map();
            let mut ranges = Ranges::new();
            let is_first_valid = gather(&self.sending, self.sent, budget, &mapped, &mut ranges);
            let written = is_first_valid.then(|| ranges.send(&self.stream));
            drop(mapped);
            let n = match written {
                None => {
                    if let Some(Outgoing { request, .. }) = self.sending.pop_front() {
                        resources.finisher.finish(Queue::Send, &request, Status::LocalProtection, 0);
                    }
                    return Err(Ended::Lost);
                }
                Some(Ok(n)) => n,
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_writable = false;
                    break;
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Messages of the peer may be unread, its goodbye among them.
                Some(Err(_)) => {
                    (self.has_failed, self.is_writable, self.is_readable) = (true, false, true);
                    break;
                }
            };
            budget = budget.saturating_sub(n);
            self.advance(n, &mut resources.finisher);
        }
        Ok(())
    }

    /// Takes over sends that the system can take in one call
    fn refill(&mut self, work: &Mutex<Work>) {
        let space = (MAX_RANGES / 2).saturating_sub(self.sending.len());
        if space == 0 {
            return;
        }
        let mut work = lock(work);
        let n = space.min(work.sends.len());
        let outgoing = |request: Request| Outgoing { header: request.sge.len.to_be_bytes(), request };
        self.sending.extend(work.sends.drain(..n).map(outgoing));
    }

    /// Notes that the system has taken `n` bytes
    fn advance(&mut self, n: usize, finisher: &mut Finisher<'_>) {
        self.sent += n;
        while let Some(Outgoing { request, .. }) = self.sending.front() {
            let len = HEADER + request.sge.len as usize;
            if self.sent < len {
                break;
            }
            self.sent -= len;
            finisher.finish(Queue::Send, request, Status::Success, 0);
            self.sending.pop_front();
        }
    }

    /// Announces to the peer that the queue pair is destroyed, unless a message is half sent
    pub(crate) fn say_goodbye(&self) {
        if self.sent == 0 {
            let header = GOODBYE.to_be_bytes();
            let mut ranges = Ranges::new();
            ranges.push_slice(&header);
            // If this fails, the peer sees a connection that is cut.
            let _ = ranges.send(&self.stream);
        }
    }

    /// Closes the connection; returns the requests that it has begun, oldest first
    pub(crate) fn close(self) -> (Option<Request>, impl Iterator<Item = Request>) {
        let recv = match self.body {
            Body::Into { request, .. } => Some(request),
            Body::Expected | Body::Discard(_) => None,
        };
        (recv, self.sending.into_iter().map(|outgoing| outgoing.request))
    }
}

/// `len` bytes of the memory of a request, from `offset` on
fn part(request: &Request, offset: u32, len: u32) -> Sge {
    Sge { addr: request.sge.addr + u64::from(offset), len, lkey: request.sge.lkey }
}

/// Adds the unsent bytes of messages, at most `budget`; false if the memory of the first is not registered any more
fn gather<'a>(
    sending: &'a VecDeque<Outgoing>,
    sent: usize,
    budget: usize,
    mapped: &'a Mapped<'_>,
    ranges: &mut Ranges<'a>,
) -> bool {
    let mut skip = sent;
    for (number, Outgoing { header, request }) in sending.iter().enumerate() {
        let Ok(at) = mapped.range(&request.sge, false) else { return number > 0 };
        let space = budget.saturating_sub(ranges.bytes());
        if space == 0 {
            break;
        }
        ranges.push_slice(&header[skip.min(HEADER)..]);
        let offset = skip.saturating_sub(HEADER);
        let rest = (request.sge.len as usize - offset).min(space);
        // SAFETY: the offset is below the length of the request, or equal.
        let at = unsafe { at.add(offset) };
        // SAFETY: `mapped` keeps the memory valid for `'a`. The poster promises that it is not written until the request has
        // completed, or the queue pair was destroyed, which waits for the lock of this connection.
        unsafe { ranges.push(at, rest) };
        skip = 0;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener};
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use rdma_core::{Access, QpCapacity, Qpn, WrId};

    use super::*;
    use crate::frame_counts::FrameCounts;

    /// Catches a connection that ends with the first write that fails, although a message of the peer is unread, and one that waits for
    /// more afterwards.
    #[test]
    fn messages_of_the_peer_are_read_after_a_write_has_failed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(&[&5_u32.to_be_bytes()[..], b"hello"].concat()).unwrap();
        // The system refuses bytes from now on, and what the peer sends still arrives.
        ours.shutdown(Shutdown::Write).unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut wire = Wire::new(TcpStream::from_std(ours));

        let mut memory = vec![0; 16].into_boxed_slice();
        let addr = memory.as_ptr() as u64;
        let regions = Regions::new(1);
        // SAFETY: the memory outlives the table, and is read only after all requests have completed.
        let lkey = unsafe { regions.add(NonNull::from(&mut *memory), Access::LOCAL_WRITE) }.unwrap();
        let request = |id, addr, len| Request {
            id: WrId(id),
            sge: Sge { addr, len, lkey },
            frames: 1,
            is_signaled: true,
        };
        let work = Mutex::new(Work::default());
        lock(&work).recvs.push_back(request(1, addr, 8));
        lock(&work).sends.push_back(request(2, addr + 8, 8));
        let counts = Arc::new(FrameCounts::new(QpCapacity { recv_frames: 8, send_frames: 8 }));
        let (mut out, mut staging) = (Vec::new(), [0; STAGING]);
        let mut resources = Resources {
            work: &work,
            regions: &regions,
            finisher: Finisher { counts: &counts, qpn: Qpn(1), out: &mut out },
            staging: &mut staging,
            max_message: 16,
        };
        wire.is_readable = false;
        assert_eq!(wire.transmit(&mut resources), Ok(()), "the message of the peer is unread");
        assert!(wire.is_readable);
        // Until the message is here; the bound only ends a test that hangs.
        let ended = (0..20_000).find_map(|_| {
            let ended = wire.receive(&mut resources).err();
            wire.is_readable = true;
            if ended.is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            ended
        });
        assert_eq!(ended, Some(Ended::Lost), "nothing can be written any more");
        let completions = out.iter().map(|finished| finished.completion);
        let completions = completions.map(|done| (done.id, done.status, done.byte_len)).collect::<Vec<_>>();
        assert_eq!(completions, [(WrId(1), Status::Success, 5)]);
        assert_eq!(memory[..5], *b"hello");
        drop(peer);
    }
}
