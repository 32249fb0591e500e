//! The end of the control connection that has the device
#![allow(unsafe_code, reason = "registering and posting are unsafe in the traits")]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use rdma_arena::Arena;
use rdma_core::{
    Access, Completion, CompletionQueue, Device, Error, MemoryRegion, Opcode, QpInit, Qpn, QueuePair,
    RecvRequest, SendOp, SendRequest, Teardown, WrId,
};

use super::message::{
    self, Created, Opened, Piece, Polled, Post, Received, Refusal, Registered, Request, VERSION,
};

/// How a control connection ended
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// The client closed the connection and may connect again
    Closed,
    /// The client needs the server no longer
    Finished,
}

/// A client that sends nothing for this long is taken for gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Memory that a client may register
const MAX_MEMORY: u64 = 1 << 30;
/// Objects that a client may have
const MAX_OBJECTS: usize = 4096;
/// A poll returns no further completions after this many received bytes, so that its response fits into a frame.
const MAX_POLLED_BYTES: usize = 16 << 20;

/// Serves a client until it closes the connection, and drops all its objects then
///
/// # Errors
///
/// `InvalidData` for a malformed message, and the errors of the stream, such as `WouldBlock` after five silent minutes.
pub fn serve<D: Device>(mut stream: TcpStream, open: impl Fn() -> Result<D, Error>) -> io::Result<Ended> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    let mut server = Server::<D>::default();
    loop {
        let request = match message::read(&mut stream) {
            Ok(request) => request,
            // A client may close the connection between two requests.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Ended::Closed),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Ended::Closed),
            Err(error) => return Err(error),
        };
        let is_last = request == Request::Finish;
        server.respond(request, &open, &mut stream)?;
        if is_last {
            return Ok(Ended::Finished);
        }
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Invalid(why.into()))
}

/// Registered memory
struct Region<D: Device> {
    /// Dropped before its memory.
    _region: D::Mr,
    arena: Arena,
    /// The contents outside of posted receives, where the device must not write.
    expected: Vec<u8>,
}

/// A receive that has not completed
struct Receive {
    qp: u32,
    qpn: Qpn,
    id: WrId,
    serial: u64,
    /// Regions and ranges, one for each scatter-gather element.
    targets: Vec<(u32, Range<usize>)>,
}

struct Server<D: Device> {
    devices: BTreeMap<u32, D>,
    cqs: BTreeMap<u32, D::Cq>,
    qps: BTreeMap<u32, <D::Cq as CompletionQueue>::Qp>,
    regions: BTreeMap<u32, Region<D>>,
    receives: Vec<Receive>,
    /// Whether the device may still write memory of a destroyed queue pair.
    may_be_written: bool,
}

impl<D: Device> Default for Server<D> {
    fn default() -> Self {
        Self {
            devices: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            regions: BTreeMap::new(),
            receives: Vec::new(),
            may_be_written: false,
        }
    }
}

fn check_version(version: u32) -> Result<(), Refusal> {
    if version == VERSION {
        return Ok(());
    }
    invalid(format!("the server has version {VERSION}, the client {version}: build both from one commit"))
}

fn at<T>(objects: &BTreeMap<u32, T>, number: u32) -> Result<&T, Refusal> {
    objects.get(&number).ok_or_else(|| Refusal::Invalid(format!("there is no object {number} of that kind")))
}

impl<D: Device> Server<D> {
    /// Carries out a request and writes the response
    fn respond(
        &mut self,
        request: Request,
        open: impl Fn() -> Result<D, Error>,
        stream: &mut impl Write,
    ) -> io::Result<()> {
        match request {
            Request::Hello { version } => message::write(stream, &check_version(version)),
            Request::Open { device } => message::write(stream, &self.open(device, open)),
            Request::Port { device } => {
                message::write(stream, &at(&self.devices, device).and_then(|device| Ok(device.port()?)))
            }
            Request::Gids { device } => {
                message::write(stream, &at(&self.devices, device).and_then(|device| Ok(device.gids()?)))
            }
            Request::CreateCq { device, cq, depth } => {
                message::write(stream, &self.create_cq(device, cq, depth))
            }
            Request::Register { device, region, len, access } => {
                message::write(stream, &self.register(device, region, len, access))
            }
            Request::CreateQp { cq, qp, init } => message::write(stream, &self.create_qp(cq, qp, &init)),
            Request::State { qp } => message::write(stream, &at(&self.qps, qp).map(QueuePair::state)),
            Request::Modify { qp, to } => {
                message::write(stream, &at(&self.qps, qp).and_then(|qp| Ok(qp.modify(to)?)))
            }
            Request::PostSend { post, op, signaled } => {
                message::write(stream, &self.post_send(&post, op, signaled))
            }
            Request::PostRecv { post, serial } => message::write(stream, &self.post_recv(&post, serial)),
            Request::Poll { cq, at_most } => message::write(stream, &self.poll(cq, at_most)),
            Request::Destroy { qp } => message::write(stream, &self.destroy(qp)),
            Request::Drop { object } => message::write(stream, &self.remove(object)),
            Request::Finish => message::write(stream, &Ok::<(), Refusal>(())),
        }
    }

    fn open(&mut self, number: u32, open: impl Fn() -> Result<D, Error>) -> Result<Opened, Refusal> {
        self.require_vacant(number)?;
        let device = open()?;
        let opened = Opened { name: device.name().to_owned(), caps: device.caps().clone() };
        self.devices.insert(number, device);
        Ok(opened)
    }

    fn create_cq(&mut self, device: u32, number: u32, depth: u32) -> Result<(), Refusal> {
        self.require_vacant(number)?;
        let cq = at(&self.devices, device)?.create_cq(depth)?;
        self.cqs.insert(number, cq);
        Ok(())
    }

    fn create_qp(&mut self, cq: u32, number: u32, init: &QpInit) -> Result<Created, Refusal> {
        self.require_vacant(number)?;
        let qp = at(&self.cqs, cq)?.create_qp(init)?;
        let created = Created { address: qp.address(), capacity: qp.capacity() };
        self.qps.insert(number, qp);
        Ok(created)
    }

    fn post_send(&mut self, post: &Post, op: SendOp, signaled: bool) -> Result<(), Refusal> {
        self.fill(&post.contents)?;
        let request = SendRequest { id: post.id, op, sgl: &post.sgl, signaled };
        // SAFETY: the regions exist until the client drops them, which keeps the contract of the traits; `fill` writes only where
        // the client did.
        unsafe { at(&self.qps, post.qp)?.post_send(&request) }?;
        Ok(())
    }

    fn post_recv(&mut self, post: &Post, serial: u64) -> Result<(), Refusal> {
        let targets = self.fill(&post.contents)?;
        let qp = at(&self.qps, post.qp)?;
        // SAFETY: as in `post_send`; `fill` refuses to write to posted receives.
        unsafe { qp.post_recv(&RecvRequest { id: post.id, sgl: &post.sgl }) }?;
        let qpn = qp.address().qpn;
        self.receives.push(Receive { qp: post.qp, qpn, id: post.id, serial, targets });
        Ok(())
    }

    fn require_vacant(&self, number: u32) -> Result<(), Refusal> {
        let count = self.devices.len() + self.cqs.len() + self.qps.len() + self.regions.len();
        let is_taken = self.devices.contains_key(&number)
            || self.cqs.contains_key(&number)
            || self.qps.contains_key(&number)
            || self.regions.contains_key(&number);
        match () {
            () if is_taken => invalid(format!("number {number} is in use")),
            () if count >= MAX_OBJECTS => invalid(format!("a client has at most {MAX_OBJECTS} objects")),
            () => Ok(()),
        }
    }

    fn register(
        &mut self,
        device: u32,
        number: u32,
        len: u64,
        access: Access,
    ) -> Result<Registered, Refusal> {
        self.require_vacant(number)?;
        let registered: usize = self.regions.values().map(|region| region.arena.len()).sum();
        let is_too_much = len.saturating_add(registered as u64) > MAX_MEMORY;
        let arena = match usize::try_from(len) {
            Ok(len) if !is_too_much => {
                Arena::new(len).map_err(|error| Refusal::Invalid(error.to_string()))?
            }
            _ => return invalid(format!("a client registers at most {MAX_MEMORY} bytes")),
        };
        // SAFETY: the arena is dropped after the region; this end does not touch posted memory.
        let region = unsafe { at(&self.devices, device)?.register(arena.as_slice_ptr(), access) }?;
        let answer = Registered { base: region.base(), lkey: region.lkey(), rkey: region.rkey() };
        let expected = vec![0; arena.len()];
        self.regions.insert(number, Region { _region: region, arena, expected });
        Ok(answer)
    }

    /// Copies the contents that a request refers to into the regions
    fn fill(&mut self, pieces: &[Piece]) -> Result<Vec<(u32, Range<usize>)>, Refusal> {
        let mut targets = Vec::new();
        for Piece { region: number, offset, bytes } in pieces {
            let Some(region) = self.regions.get_mut(number) else {
                return invalid(format!("there is no region {number}"));
            };
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            let range = start..start.saturating_add(bytes.len());
            if range.end > region.arena.len() {
                return invalid(format!("{range:?} is not inside of region {number}"));
            }
            let mut posted = self.receives.iter().flat_map(|receive| &receive.targets);
            if posted.any(|(of, there)| of == number && there.start < range.end && range.start < there.end) {
                return invalid(format!("{range:?} of region {number} is posted for receiving"));
            }
            // Equal bytes are not written: the device may be sending them.
            if region.expected[range.clone()] != **bytes {
                region.expected[range.clone()].copy_from_slice(bytes);
                // SAFETY: the range was just found to be inside.
                let to = unsafe { region.arena.as_ptr().add(range.start) };
                // SAFETY: the range holds as many bytes; the device does not write there, and there are no references into the arena.
                unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            }
            targets.push((*number, range));
        }
        Ok(targets)
    }

    fn poll(&mut self, cq: u32, at_most: u32) -> Result<Polled, Refusal> {
        let mut polled = Polled { completions: Vec::new(), received: Vec::new() };
        let mut bytes = 0;
        let queue = at(&self.cqs, cq)?;
        while polled.completions.len() < (at_most as usize).min(256) && bytes < MAX_POLLED_BYTES {
            let mut completion = [Completion::default()];
            if queue.poll(&mut completion)? == 0 {
                break;
            }
            let [completion] = completion;
            polled.completions.push(completion);
            let matches = |receive: &Receive| (receive.qpn, receive.id) == (completion.qpn, completion.id);
            if completion.opcode == Opcode::Recv
                && let Some(found) = self.receives.iter().position(matches)
            {
                // The oldest one with this ID: receives complete in the order of their posts.
                let receive = self.receives.remove(found);
                let regions = &mut self.regions;
                let contents: Vec<_> =
                    receive.targets.iter().filter_map(|target| absorb(regions, target)).collect();
                bytes += contents.iter().map(Vec::len).sum::<usize>();
                polled.received.push(Received { serial: receive.serial, bytes: contents });
            }
        }
        if !polled.received.is_empty() {
            self.check_unposted_memory()?;
        }
        Ok(polled)
    }

    /// Refuses if the device wrote where no receive was posted
    fn check_unposted_memory(&self) -> Result<(), Refusal> {
        for (number, region) in &self.regions {
            let posted = self.receives.iter().flat_map(|receive| &receive.targets);
            let mut posted: Vec<_> =
                posted.filter(|(of, _)| of == number).map(|(_, range)| range.clone()).collect();
            posted.sort_by_key(|range| range.start);
            let mut start = 0;
            let end = region.arena.len();
            for next in posted.into_iter().chain(std::iter::once(end..end)) {
                if start < next.start {
                    let found = region.bytes(start..next.start);
                    let expected = &region.expected[start..next.start];
                    if found != expected {
                        let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
                        let at = start + at.unwrap_or(0);
                        return invalid(format!(
                            "the device wrote at {at} of region {number}, where nothing was posted"
                        ));
                    }
                }
                start = start.max(next.end);
            }
        }
        Ok(())
    }

    fn destroy(&mut self, number: u32) -> Result<Teardown, Refusal> {
        let Some(qp) = self.qps.get_mut(&number) else {
            return invalid(format!("there is no queue pair {number}"));
        };
        let teardown = qp.destroy();
        match teardown {
            Teardown::Quiesced => {
                for receive in self.receives.extract_if(.., |receive| receive.qp == number) {
                    receive.targets.iter().for_each(|target| drop(absorb(&mut self.regions, target)));
                }
            }
            Teardown::Unknown => self.may_be_written = true,
        }
        Ok(teardown)
    }

    fn remove(&mut self, number: u32) -> Result<(), Refusal> {
        if self.qps.contains_key(&number) {
            let _ = self.destroy(number)?;
        }
        let is_found = self.qps.remove(&number).is_some()
            || self.cqs.remove(&number).is_some()
            || self.regions.remove(&number).is_some()
            || self.devices.remove(&number).is_some();
        if is_found { Ok(()) } else { invalid(format!("there is no object {number}")) }
    }
}

impl<D: Device> Drop for Server<D> {
    fn drop(&mut self) {
        let numbers: Vec<_> = self.qps.keys().copied().collect();
        for number in numbers {
            // The number was just found, so that nothing is refused.
            let _ = self.remove(number);
        }
        if self.may_be_written {
            std::mem::forget(std::mem::take(&mut self.regions));
        }
        self.regions.clear();
        self.cqs.clear();
    }
}

/// Takes the bytes that the device may have written as the expected contents
fn absorb<D: Device>(
    regions: &mut BTreeMap<u32, Region<D>>,
    (number, range): &(u32, Range<usize>),
) -> Option<Vec<u8>> {
    let region = regions.get_mut(number)?;
    let found = region.bytes(range.clone()).to_vec();
    region.expected[range.clone()].copy_from_slice(&found);
    Some(found)
}

impl<D: Device> Region<D> {
    /// Bytes of the region outside of posted receives
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.arena.len());
        // SAFETY: the range was just found to be inside.
        let start = unsafe { self.arena.as_ptr().add(range.start) };
        // SAFETY: the arena lives as long as `self`; nothing of the range is posted for receiving, as the callers see to, and this
        // end writes to it by `&mut self` only.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{Lkey, Sge};
    use rdma_sim::{Driver, Sim, SimDevice};

    use super::*;

    fn ask(server: &mut Server<SimDevice>, driver: &Driver, request: Request) -> Result<(), Refusal> {
        let mut response = Vec::new();
        server
            .respond(request, || driver.net().open("a", crate::DEVICE).map_err(Error::from), &mut response)
            .unwrap();
        // The first byte tells whether the request was carried out.
        if response[4] == 0 {
            Ok(())
        } else {
            message::read::<Result<(), _>>(&mut response.as_slice()).unwrap()
        }
    }

    /// A device, a completion queue, a queue pair and a region of 8192 bytes, numbered from 0
    fn server(driver: &Driver) -> Server<SimDevice> {
        let mut server = Server::default();
        for request in [
            Request::Open { device: 0 },
            Request::CreateCq { device: 0, cq: 1, depth: 16 },
            Request::CreateQp { cq: 1, qp: 2, init: QpInit::default() },
            Request::Register { device: 0, region: 3, len: 8192, access: Access::LOCAL_WRITE },
        ] {
            ask(&mut server, driver, request).unwrap();
        }
        server
    }

    #[test]
    fn a_write_outside_of_posted_receives_is_found() {
        let driver = Driver::new(Sim::new(), drop).unwrap();
        let mut server = server(&driver);
        let qpn = server.qps[&2].address().qpn;
        let targets = vec![(3, 100..200)];
        server.receives.push(Receive { qp: 2, qpn, id: WrId(1), serial: 1, targets });
        let write = |server: &Server<SimDevice>, at: usize| {
            // SAFETY: the offset is inside of the region.
            let to = unsafe { server.regions[&3].arena.as_ptr().add(at) };
            // SAFETY: nothing else accesses the arena.
            unsafe { to.write(7) };
        };
        for at in [100, 199] {
            write(&server, at);
            assert!(server.check_unposted_memory().is_ok());
        }
        for at in [200, 99, 0, 8191] {
            write(&server, at);
            let Err(Refusal::Invalid(why)) = server.check_unposted_memory() else {
                panic!("the write at {at} was not found")
            };
            assert!(why.contains(&format!("wrote at {at} ")), "{why}");
            server.regions.get_mut(&3).unwrap().expected[at] = 7;
        }
    }

    #[test]
    fn requests_with_invalid_numbers_or_ranges_are_refused() {
        let driver = Driver::new(Sim::new(), drop).unwrap();
        let mut server = server(&driver);
        let send = |region, offset, len| {
            let contents = vec![Piece { region, offset, bytes: vec![1; len] }];
            let sgl = vec![Sge { addr: 0, len: 1, lkey: Lkey(0) }];
            let post = Post { qp: 2, id: WrId(1), sgl, contents };
            Request::PostSend { post, op: SendOp::Send, signaled: true }
        };
        for (request, reason) in [
            (Request::Open { device: 3 }, "in use"),
            (Request::Port { device: 1 }, "no object 1"),
            (Request::Poll { cq: 2, at_most: 1 }, "no object 2"),
            (Request::Drop { object: 4 }, "no object 4"),
            (Request::Destroy { qp: 3 }, "no queue pair 3"),
            (Request::Register { device: 0, region: 4, len: MAX_MEMORY, access: Access::NONE }, "at most"),
            (Request::Register { device: 0, region: 4, len: 0, access: Access::NONE }, ""),
            (send(4, 0, 1), "no region 4"),
            (send(3, 8192, 1), "not inside"),
            (send(3, u64::MAX, 2), "not inside"),
        ] {
            let refusal = ask(&mut server, &driver, request.clone());
            assert!(
                matches!(&refusal, Err(Refusal::Invalid(why)) if why.contains(reason)),
                "{request:?}: {refusal:?}"
            );
        }
        // Objects may be dropped in any order.
        for object in [0, 1, 3, 2] {
            ask(&mut server, &driver, Request::Drop { object }).unwrap();
        }
    }
}
