//! The side that asks: its device, its peer, and what was found

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_core::{AnyDevice, Device as _, Error, Gid, QpAddress, Runtime, Time};

use crate::calls::{Call, Calls};
use crate::conformance::expectations::Expectations;
use crate::control::{Control, REPLY_TIMEOUT, Stream};
use crate::error::CalibrateError;
use crate::findings::Findings;
use crate::machine::{Machine, Path, ViewOfC};
use crate::message::{Numbered, Reply, Request};
use crate::serve::{open, require_active};
use crate::station::Station;
use crate::transitions::Transitions;
use crate::watched::{open_watched, watch};

/// The interval of keep-alives to the peer, while this side waits
const ALIVE: Duration = Duration::from_secs(20);
/// The shortest rest, in which the time passes that a simulated task has taken.
const CLOCK_STEP: Duration = Duration::from_nanos(1);

pub(crate) struct Lab<'a> {
    pub(crate) machine: &'a dyn Machine,
    pub(crate) device: Arc<AnyDevice>,
    calls: Arc<Calls>,
    pub(crate) findings: Findings,
    control: Control<'a>,
    /// Of the latest request
    number: u64,
    /// The time of the latest request
    asked: Time,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Those that fail in the conformance body
    pub(crate) transitions: Transitions,
    /// How many frames a queue takes: what the device states, or less if a queue of the measurement of posts was full before
    pub(crate) queue_room: usize,
    start: Time,
}

impl<'a> Lab<'a> {
    /// Exchanges versions with the peer, and opens the device
    pub(crate) async fn connect(
        machine: &'a dyn Machine,
        stream: &'a mut dyn Stream,
        calls: &Arc<Calls>,
    ) -> Result<Self, CalibrateError> {
        let runtime = machine.runtime();
        let control = Control::handshake(stream, &*runtime).await?;
        let device = open(machine, calls).map_err(CalibrateError::Device)?;
        let findings = Findings::new(device.name(), device.port().map_err(CalibrateError::Device)?);
        let start = runtime.now();
        let calls = Arc::clone(calls);
        let transitions = Transitions::default();
        let queue_room = device.caps().max_queue_frames as usize;
        Ok(Self {
            machine,
            device,
            calls,
            findings,
            control,
            number: 0,
            asked: start,
            runtime,
            transitions,
            queue_room,
            start,
        })
    }

    /// Ends the calibration of the peer, which may have ended
    pub(crate) async fn finish(&mut self) {
        // Everything is found: a peer that has vanished takes nothing of it away.
        let _ = self.ask(Request::Bye).await;
        self.findings.took = self.runtime.now() - self.start;
    }

    /// Passes what was found so far to the machine
    pub(crate) fn report(&mut self) {
        self.findings.took = self.runtime.now() - self.start;
        self.machine.found(&self.findings);
    }

    /// Returns the end of the calibration if `error` is one, and otherwise why this stage has none: silence of the cable is the end
    /// if the peer is gone, or if the port is down
    pub(crate) async fn explain(&mut self, error: CalibrateError) -> CalibrateError {
        if let CalibrateError::Silent(patience) = error {
            // A peer that waits for the cable as well gives up after this time.
            let received = self.control.receive::<Numbered<Reply>>(&*self.runtime, patience).await;
            if let Err(CalibrateError::PeerGone) = received {
                return CalibrateError::PeerGone;
            }
        }
        match self.require_port() {
            Err(gone) if error.is_of_stage() => gone,
            _ => error,
        }
    }

    /// Fails if the device is gone, or its port is down
    pub(crate) fn require_port(&self) -> Result<(), CalibrateError> {
        require_active(&self.device).map_err(CalibrateError::Device)
    }

    /// The expectations that do not follow from the rules of the device: those that the caller states, and those of a network adapter
    pub(crate) fn stated_expectations(&self) -> Option<Expectations> {
        let is_adapter = self.device.caps().one_sided;
        self.machine.expectations().or_else(|| is_adapter.then_some(Expectations::ADAPTER))
    }

    pub(crate) fn now(&self) -> Time {
        self.runtime.now()
    }

    pub(crate) async fn rest(&self, duration: Duration) {
        sleep(&*self.runtime, duration).await;
    }

    /// The time that a call takes; for a simulated task the time passes once it waits
    pub(crate) async fn time<T>(&self, call: impl FnOnce() -> T) -> (T, Duration) {
        // What was called before takes its time first.
        self.rest(CLOCK_STEP).await;
        let start = self.now();
        let returned = call();
        let called = self.now();
        self.rest(CLOCK_STEP).await;
        // A real clock has moved during the call, and a virtual one may move only here.
        let took = if called > start { called - start } else { self.now() - start };
        (returned, if took <= CLOCK_STEP { Duration::ZERO } else { took })
    }

    /// Asks the peer, and returns its reply
    pub(crate) async fn ask(&mut self, request: Request) -> Result<Reply, CalibrateError> {
        self.begin(request).await?;
        self.reply().await
    }

    /// Asks the peer for something that goes on while this side does its part
    pub(crate) async fn begin(&mut self, request: Request) -> Result<(), CalibrateError> {
        self.number += 1;
        self.asked = self.now();
        self.control.send(&*self.runtime, &Numbered { number: self.number, body: request }).await
    }

    pub(crate) async fn reply(&mut self) -> Result<Reply, CalibrateError> {
        loop {
            let reply: Numbered<Reply> = self.control.receive(&*self.runtime, REPLY_TIMEOUT).await?;
            match reply.body {
                // Of an experiment that has stopped.
                _ if reply.number < self.number => (),
                _ if reply.number > self.number => return Err(CalibrateError::NotCalibrate),
                Reply::Failed(why) => return Err(CalibrateError::PeerFailed(why)),
                body => return Ok(body),
            }
        }
    }

    /// Says that this side is there, if it has not asked for long: between verbs, of which many may take longer than the peer waits
    pub(crate) async fn keep_alive(&mut self) -> Result<(), CalibrateError> {
        self.rest(CLOCK_STEP).await;
        if self.now() - self.asked >= ALIVE {
            self.ask(Request::Alive).await?;
        }
        Ok(())
    }

    /// Makes objects until one is refused, at most `most`; returns them, and why the next one was refused
    pub(crate) async fn make_most<T>(
        &mut self,
        most: usize,
        make: impl Fn(&Lab<'_>) -> Result<T, Error>,
    ) -> Result<(Vec<T>, Option<Error>), CalibrateError> {
        let mut made = Vec::new();
        while made.len() < most {
            match make(self) {
                Ok(object) => made.push(object),
                Err(error) => return Ok((made, Some(error))),
            }
            self.keep_alive().await?;
        }
        Ok((made, None))
    }

    /// Destroys objects, of which many may take long
    pub(crate) async fn destroy_all<T>(&mut self, mut made: Vec<T>) -> Result<(), CalibrateError> {
        while made.pop().is_some() {
            self.keep_alive().await?;
        }
        Ok(())
    }

    /// Waits for something that takes long: the peer would give up a side that says nothing
    pub(crate) async fn rest_for_long(&mut self, duration: Duration) -> Result<(), CalibrateError> {
        let end = self.now() + duration;
        while end - self.now() > ALIVE {
            self.rest(ALIVE).await;
            self.ask(Request::Alive).await?;
        }
        self.rest(end - self.now()).await;
        Ok(())
    }

    /// A queue pair of the peer, at a cable
    pub(crate) async fn make(
        &mut self,
        cable: usize,
        frames: u32,
        len: usize,
    ) -> Result<QpAddress, CalibrateError> {
        match self.ask(Request::Make { cable, frames, len }).await? {
            Reply::Made { address } => Ok(address),
            _ => Err(CalibrateError::NotCalibrate),
        }
    }

    /// Lets the peer post receives
    pub(crate) async fn recv(&mut self, count: usize, len: usize) -> Result<(), CalibrateError> {
        self.ask(Request::Recv { first: 0, count, len }).await.map(drop)
    }

    /// A queue pair on either side; the peer's is connected, this one is in the state INIT
    pub(crate) async fn half_pair(
        &mut self,
        device: &Arc<AnyDevice>,
        frames: u32,
        len: usize,
    ) -> Result<(Station, QpAddress), CalibrateError> {
        let address = self.make(0, frames, len).await?;
        let station = Station::new(&self.runtime, device, frames, len)?;
        self.ask(Request::Connect { address: station.address() }).await?;
        Ok((station, address))
    }

    /// Fails if new queue pairs do not connect, as on a port that is wedged
    pub(crate) async fn require_connections(&mut self) -> Result<(), CalibrateError> {
        self.ask(Request::Drop).await?;
        self.pair(16, 1 << 14).await?;
        self.ask(Request::Drop).await.map(drop)
    }

    /// Connected queue pairs on both sides
    pub(crate) async fn pair(&mut self, frames: u32, len: usize) -> Result<Station, CalibrateError> {
        let device = Arc::clone(&self.device);
        let (station, peer) = self.half_pair(&device, frames, len).await?;
        station.connect(&peer)?;
        Ok(station)
    }
}

impl Lab<'_> {
    /// Opens the device once more, for transitions with other attributes
    pub(crate) fn open(&self, path: Path) -> Result<Arc<AnyDevice>, Error> {
        open_watched(&self.calls, || self.machine.open(path)).map(Arc::new)
    }

    /// The device of a cable
    pub(crate) fn device_of(&self, cable: usize) -> Result<Arc<AnyDevice>, Error> {
        if cable == 0 {
            return Ok(Arc::clone(&self.device));
        }
        open_watched(&self.calls, || self.machine.open_cable(cable)).map(Arc::new)
    }

    /// Opens the device once more as programs in C see it
    pub(crate) fn open_for_c(&self) -> Option<Result<ViewOfC, Error>> {
        let opened = self.calls.during(Call::Open, || self.machine.open_for_c());
        opened.map(|view| view.map(|view| ViewOfC { device: watch(view.device, &self.calls), ..view }))
    }
}

/// An address that no host has: of a network that is reserved for documentation
pub(crate) fn nowhere(like: &QpAddress) -> QpAddress {
    QpAddress { gid: Gid::from_ipv4(Ipv4Addr::new(203, 0, 113, 77)), ..*like }
}
