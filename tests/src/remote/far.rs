//! The end that has the device
#![allow(unsafe_code, reason = "registering and posting are unsafe in the traits")]

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use rdma_arena::Arena;
use rdma_core::{
    Access, Completion, CompletionQueue, Device, Error, MemoryRegion, Opcode, Qpn, QueuePair, RecvRequest,
    SendRequest, Teardown, WrId,
};

use super::message::{Arrived, Created, Opened, Piece, Polled, Question, Registered, VERSION, outcome};
use super::wire::{Bytes, Wire};
use super::{read_frame, write_frame};

/// How a connection ended
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// The peer will connect again, perhaps
    Left,
    /// The peer needs nothing more
    Finished,
}

/// A peer that says nothing for so long is gone.
const IDLE: Duration = Duration::from_secs(300);
/// Memory that a peer may register
const MAX_MEMORY: u64 = 1 << 30;
/// Objects that a peer may have
const MAX_OBJECTS: usize = 4096;
/// Once so much has arrived, a poll finds no more: its answer has to fit into a frame.
const ENOUGH: usize = 16 << 20;

/// Answers a peer until it leaves; nothing of what it had made is left then
///
/// # Errors
///
/// The peer says nothing any more, or what no peer says.
pub fn serve<D: Device>(mut stream: TcpStream, open: impl Fn() -> Result<D, Error>) -> io::Result<Ended> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut far = Far::<D>::default();
    loop {
        let body = match read_frame(&mut stream) {
            Ok(body) => body,
            // Between two questions a peer may go.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Ended::Left),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Ended::Left),
            Err(error) => return Err(error),
        };
        let question =
            Question::parse(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if question == (Question::Bye {}) {
            write_frame(&mut stream, &[outcome::DONE])?;
            return Ok(Ended::Finished);
        }
        let mut answer = vec![outcome::DONE];
        if let Err(refusal) = far.answer(question, &open, &mut answer) {
            answer.clear();
            match refusal {
                Refusal::Verb(error) => {
                    answer.push(outcome::REFUSED);
                    error.put(&mut answer);
                }
                Refusal::Wrong(why) => {
                    answer.push(outcome::WRONG);
                    why.put(&mut answer);
                }
            }
        }
        write_frame(&mut stream, &answer)?;
    }
}

enum Refusal {
    Verb(Error),
    /// The peer asked for what is not there, or the device did what it must not
    Wrong(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Verb(error)
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Wrong(why.into()))
}

/// Registered memory
struct Region<D: Device> {
    /// Dropped before its memory.
    _region: D::Mr,
    arena: Arena,
    /// What is there outside of posted receives, if the device keeps to them.
    expected: Vec<u8>,
}

/// A receive that has not completed
struct Receive {
    qp: u32,
    qpn: Qpn,
    id: WrId,
    serial: u64,
    places: Vec<(u32, Range<usize>)>,
}

struct Far<D: Device> {
    devices: BTreeMap<u32, D>,
    cqs: BTreeMap<u32, D::Cq>,
    qps: BTreeMap<u32, <D::Cq as CompletionQueue>::Qp>,
    regions: BTreeMap<u32, Region<D>>,
    receives: Vec<Receive>,
    /// The device may still touch the memory of a queue pair that is gone.
    is_haunted: bool,
}

impl<D: Device> Default for Far<D> {
    fn default() -> Self {
        Self {
            devices: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            regions: BTreeMap::new(),
            receives: Vec::new(),
            is_haunted: false,
        }
    }
}

fn at<T>(objects: &BTreeMap<u32, T>, number: u32) -> Result<&T, Refusal> {
    objects.get(&number).ok_or_else(|| Refusal::Wrong(format!("there is no object {number} of that kind")))
}

impl<D: Device> Far<D> {
    fn answer(
        &mut self,
        question: Question,
        open: impl Fn() -> Result<D, Error>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match question {
            Question::Hello { version: VERSION } => {}
            Question::Hello { version } => {
                return wrong(format!(
                    "this end speaks version {VERSION}, that one {version}: check out the same"
                ));
            }
            Question::Open { device } => {
                self.vacant(device)?;
                let opened = open()?;
                Opened { name: opened.name().to_owned(), caps: opened.caps().clone() }.put(out);
                self.devices.insert(device, opened);
            }
            Question::Port { device } => at(&self.devices, device)?.port()?.put(out),
            Question::Gids { device } => at(&self.devices, device)?.gids()?.put(out),
            Question::CreateCq { device, cq, depth } => {
                self.vacant(cq)?;
                let created = at(&self.devices, device)?.create_cq(depth)?;
                self.cqs.insert(cq, created);
            }
            Question::Register { device, region, len, access } => {
                self.register(device, region, len, access)?.put(out)
            }
            Question::CreateQp { cq, qp, init } => {
                self.vacant(qp)?;
                let created = at(&self.cqs, cq)?.create_qp(&init)?;
                Created { address: created.address(), capacity: created.capacity() }.put(out);
                self.qps.insert(qp, created);
            }
            Question::State { qp } => at(&self.qps, qp)?.state().put(out),
            Question::Modify { qp, to } => at(&self.qps, qp)?.modify(to)?,
            Question::PostSend { qp, id, op, signaled, sgl, bytes } => {
                self.fill(&bytes)?;
                let request = SendRequest { id, op, sgl: &sgl, signaled };
                // SAFETY: the regions stay until the peer drops them, which keeps to the contract of the traits as well; `fill`
                // changes nothing but where the peer does.
                unsafe { at(&self.qps, qp)?.post_send(&request) }?;
            }
            Question::PostRecv { qp, serial, id, sgl, bytes } => {
                let places = self.fill(&bytes)?;
                let pair = at(&self.qps, qp)?;
                // SAFETY: as above; what is posted is left alone until it completes.
                unsafe { pair.post_recv(&RecvRequest { id, sgl: &sgl }) }?;
                let qpn = pair.address().qpn;
                self.receives.push(Receive { qp, qpn, id, serial, places });
            }
            Question::Poll { cq, at_most } => self.poll(cq, at_most)?.put(out),
            Question::Destroy { qp } => self.destroy(qp)?.put(out),
            Question::Drop { object } => self.remove(object)?,
            Question::Bye {} => {}
        }
        Ok(())
    }

    fn vacant(&self, number: u32) -> Result<(), Refusal> {
        let count = self.devices.len() + self.cqs.len() + self.qps.len() + self.regions.len();
        let is_taken = self.devices.contains_key(&number)
            || self.cqs.contains_key(&number)
            || self.qps.contains_key(&number)
            || self.regions.contains_key(&number);
        match () {
            () if is_taken => wrong(format!("there is an object {number}")),
            () if count >= MAX_OBJECTS => wrong(format!("a peer has at most {MAX_OBJECTS} objects")),
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
        self.vacant(number)?;
        let registered: usize = self.regions.values().map(|region| region.arena.len()).sum();
        let is_too_much = len.saturating_add(registered as u64) > MAX_MEMORY;
        let arena = match usize::try_from(len) {
            Ok(len) if !is_too_much => Arena::new(len).map_err(|error| Refusal::Wrong(error.to_string()))?,
            _ => return wrong(format!("a peer registers at most {MAX_MEMORY} bytes")),
        };
        // SAFETY: the arena is dropped after the region; nobody touches what is posted.
        let region = unsafe { at(&self.devices, device)?.register(arena.as_slice_ptr(), access) }?;
        let answer = Registered { base: region.base(), lkey: region.lkey(), rkey: region.rkey() };
        let expected = vec![0; arena.len()];
        self.regions.insert(number, Region { _region: region, arena, expected });
        Ok(answer)
    }

    /// Puts what the peer has in the memory that a request names into the memory here
    fn fill(&mut self, pieces: &[Piece]) -> Result<Vec<(u32, Range<usize>)>, Refusal> {
        let mut places = Vec::new();
        for Piece { region: number, offset, bytes: Bytes(bytes) } in pieces {
            let Some(region) = self.regions.get_mut(number) else {
                return wrong(format!("there is no region {number}"));
            };
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            let range = start..start.saturating_add(bytes.len());
            if range.end > region.arena.len() {
                return wrong(format!("{range:?} is not inside of region {number}"));
            }
            let mut posted = self.receives.iter().flat_map(|receive| &receive.places);
            if posted.any(|(of, there)| of == number && there.start < range.end && range.start < there.end) {
                return wrong(format!("{range:?} of region {number} is posted for receiving"));
            }
            // What is the same is not written: it may be under way.
            if region.expected[range.clone()] != **bytes {
                region.expected[range.clone()].copy_from_slice(bytes);
                // SAFETY: the range was just found to be inside.
                let to = unsafe { region.arena.as_ptr().add(range.start) };
                // SAFETY: there is space for so many; the device does not write there, and nobody holds references into the arena.
                unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            }
            places.push((*number, range));
        }
        Ok(places)
    }

    fn poll(&mut self, cq: u32, at_most: u32) -> Result<Polled, Refusal> {
        let mut polled = Polled { completions: Vec::new(), arrived: Vec::new() };
        let mut bytes = 0;
        let queue = at(&self.cqs, cq)?;
        while polled.completions.len() < (at_most as usize).min(256) && bytes < ENOUGH {
            let mut completion = [Completion::default()];
            if queue.poll(&mut completion)? == 0 {
                break;
            }
            let [completion] = completion;
            polled.completions.push(completion);
            let is_it = |receive: &Receive| (receive.qpn, receive.id) == (completion.qpn, completion.id);
            if completion.opcode == Opcode::Recv
                && let Some(found) = self.receives.iter().position(is_it)
            {
                // The oldest of that name: completions come in the order of the posts.
                let receive = self.receives.remove(found);
                let regions = &mut self.regions;
                let contents: Vec<_> =
                    receive.places.iter().filter_map(|place| absorb(regions, place)).map(Bytes).collect();
                bytes += contents.iter().map(|content| content.0.len()).sum::<usize>();
                polled.arrived.push(Arrived { serial: receive.serial, bytes: contents });
            }
        }
        if !polled.arrived.is_empty() {
            self.assert_nothing_astray()?;
        }
        Ok(polled)
    }

    /// Finds bytes that the device wrote where nothing was posted
    fn assert_nothing_astray(&self) -> Result<(), Refusal> {
        for (number, region) in &self.regions {
            let posted = self.receives.iter().flat_map(|receive| &receive.places);
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
                        return wrong(format!(
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
            return wrong(format!("there is no queue pair {number}"));
        };
        let teardown = qp.destroy();
        match teardown {
            Teardown::Quiesced => {
                for receive in self.receives.extract_if(.., |receive| receive.qp == number) {
                    receive.places.iter().for_each(|place| drop(absorb(&mut self.regions, place)));
                }
            }
            Teardown::Unknown => self.is_haunted = true,
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
        if is_found { Ok(()) } else { wrong(format!("there is no object {number}")) }
    }
}

impl<D: Device> Drop for Far<D> {
    fn drop(&mut self) {
        let numbers: Vec<_> = self.qps.keys().copied().collect();
        for number in numbers {
            // It is there.
            let _ = self.remove(number);
        }
        if self.is_haunted {
            std::mem::forget(std::mem::take(&mut self.regions));
        }
        self.regions.clear();
        self.cqs.clear();
    }
}

/// What the device may have changed is as it should be
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
    /// Part of the memory, on which the device does not work
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
    use rdma_core::{Lkey, SendOp, Sge};
    use rdma_sim::{Driver, Sim, SimDevice};

    use super::*;

    fn ask(far: &mut Far<SimDevice>, driver: &Driver, question: Question) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        match far.answer(question, || driver.net().open("a", crate::DEVICE), &mut out) {
            Ok(()) => Ok(out),
            Err(Refusal::Verb(error)) => Err(error.to_string()),
            Err(Refusal::Wrong(why)) => Err(why),
        }
    }

    /// A device, a completion queue, a queue pair and a region of 8192 bytes, numbered from 0
    fn far(driver: &Driver) -> Far<SimDevice> {
        let mut far = Far::default();
        for question in [
            Question::Open { device: 0 },
            Question::CreateCq { device: 0, cq: 1, depth: 16 },
            Question::CreateQp { cq: 1, qp: 2, init: rdma_core::QpInit::default() },
            Question::Register { device: 0, region: 3, len: 8192, access: Access::LOCAL_WRITE },
        ] {
            ask(&mut far, driver, question).unwrap();
        }
        far
    }

    #[test]
    fn bytes_outside_of_receives_are_astray() {
        let driver = Driver::new(Sim::new(), drop).unwrap();
        let mut far = far(&driver);
        let qpn = far.qps[&2].address().qpn;
        let places = vec![(3, 100..200)];
        far.receives.push(Receive { qp: 2, qpn, id: WrId(1), serial: 1, places });
        let write = |far: &Far<SimDevice>, at: usize| {
            // SAFETY: the offset is inside of the region.
            let to = unsafe { far.regions[&3].arena.as_ptr().add(at) };
            // SAFETY: nobody else uses the arena.
            unsafe { to.write(7) };
        };
        for at in [100, 199] {
            write(&far, at);
            assert!(far.assert_nothing_astray().is_ok());
        }
        for at in [200, 99, 0, 8191] {
            write(&far, at);
            let Err(Refusal::Wrong(why)) = far.assert_nothing_astray() else { panic!("{at} is not seen") };
            assert!(why.contains(&format!("wrote at {at} ")), "{why}");
            far.regions.get_mut(&3).unwrap().expected[at] = 7;
        }
    }

    #[test]
    fn questions_about_what_is_not_there_are_refused() {
        let driver = Driver::new(Sim::new(), drop).unwrap();
        let mut far = far(&driver);
        let send = |region, offset, len| Question::PostSend {
            qp: 2,
            id: WrId(1),
            op: SendOp::Send,
            signaled: true,
            sgl: vec![Sge { addr: 0, len: 1, lkey: Lkey(0) }],
            bytes: vec![Piece { region, offset, bytes: Bytes(vec![1; len]) }],
        };
        for nonsense in [
            Question::Open { device: 3 },
            Question::Port { device: 1 },
            Question::Poll { cq: 2, at_most: 1 },
            Question::Drop { object: 4 },
            Question::Destroy { qp: 3 },
            Question::Register { device: 0, region: 4, len: MAX_MEMORY, access: Access::NONE },
            Question::Register { device: 0, region: 4, len: 0, access: Access::NONE },
            send(4, 0, 1),
            send(3, 8192, 1),
            send(3, u64::MAX, 2),
        ] {
            assert!(ask(&mut far, &driver, nonsense.clone()).is_err(), "{nonsense:?}");
        }
        // In any order.
        for object in [0, 1, 3, 2] {
            ask(&mut far, &driver, Question::Drop { object }).unwrap();
        }
    }
}
