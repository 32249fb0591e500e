//! The side that answers

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use rdma_async::time::sleep;
use rdma_core::{AnyDevice, Cause, Device as _, Error, PortState, Runtime, Transition, Verb};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::calls::Calls;
use crate::conformance::acts::{Act, Acted, End, MAX_MEMORY, Queues, Refusal};
use crate::control::Control;
use crate::error::CalibrateError;
use crate::flow::arrivals;
use crate::machine::{Machine, Path};
use crate::message::{Numbered, Reply, Request};
use crate::station::{Station, completions, slot};
use crate::transitions::Transitions;
use crate::watched::open_watched;

/// The time for which the asking side may be busy with itself; while it waits for longer, it sends [`Request::Alive`].
const IDLE: Duration = Duration::from_mins(2);
/// Between the completion of a relay's send and the post of its receive.
const RELAY_PAUSE: Duration = Duration::from_micros(50);

/// The other side of a calibration, which has said that it is one and speaks the same version
///
/// A program that listens greets several connections at once, so that a stranger that says nothing keeps no side out.
pub struct Greeted<'a>(Control<'a>);

impl fmt::Debug for Greeted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Greeted").finish_non_exhaustive()
    }
}

impl<'a> Greeted<'a> {
    /// Exchanges greetings with the other end of `stream`, for 30 seconds at most
    ///
    /// # Errors
    ///
    /// [`CalibrateError::NotAsking`] if it is another program, says nothing, takes nothing, or ends the connection;
    /// [`CalibrateError::Version`] if it speaks another version.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    pub async fn greet(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'a,
        runtime: &dyn Runtime,
    ) -> Result<Self, CalibrateError> {
        Control::handshake(stream, runtime).await.map(Self).map_err(CalibrateError::of_answering_side)
    }
}

/// Answers one calibration
///
/// Leaves no object, however it ends.
///
/// # Errors
///
/// As [`Greeted::greet`]; [`CalibrateError::Device`] if the device cannot be used; [`CalibrateError::PeerGone`] if the other side ends, and
/// [`CalibrateError::PeerSilent`] if it says nothing for two minutes.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future destroys what it has created.
pub async fn serve(
    machine: &dyn Machine,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin,
) -> Result<(), CalibrateError> {
    let runtime = machine.runtime();
    let greeted = Greeted::greet(stream, &*runtime).await?;
    serve_watched(machine, greeted, &Arc::new(Calls::new(runtime))).await
}

/// As [`serve`] after the greeting, and notes in `calls` which verb it is in: for a thread that watches whether one hangs
///
/// # Errors
///
/// As [`serve`]: [`CalibrateError`].
///
/// # Cancel safety
///
/// As [`serve`].
pub async fn serve_watched(
    machine: &dyn Machine,
    Greeted(mut control): Greeted<'_>,
    calls: &Arc<Calls>,
) -> Result<(), CalibrateError> {
    let runtime = machine.runtime();
    let runtime = &*runtime;
    let opened = open(machine, calls);
    let mut answers = match opened {
        Ok(device) => Answers {
            machine,
            device,
            calls,
            station: None,
            resting: VecDeque::new(),
            queues: Queues::default(),
            transitions: Transitions::default(),
        },
        Err(error) => {
            let error = CalibrateError::Device(error);
            let Numbered { number, body: _ } = next(&mut control, runtime).await?;
            control.send(runtime, &Numbered { number, body: Reply::Failed((&error).into()) }).await?;
            return Err(error);
        }
    };
    loop {
        let Numbered { number, body: request } = next(&mut control, runtime).await?;
        // These take their time from the reply on.
        if let Request::Echo { .. } | Request::Relay { .. } | Request::Flow(_) = request {
            let prepared = answers.prepare(request);
            let is_ready = prepared.is_ok();
            let body = prepared.map_or_else(|error| Reply::Failed((&error).into()), |()| Reply::Done);
            control.send(runtime, &Numbered { number, body }).await?;
            if !is_ready {
                continue;
            }
        }
        let body = answers.answer(request).await.unwrap_or_else(|error| Reply::Failed((&error).into()));
        control.send(runtime, &Numbered { number, body }).await?;
        if let Request::Bye = request {
            return Ok(());
        }
    }
}

/// The next request of the other side
async fn next(control: &mut Control<'_>, runtime: &dyn Runtime) -> Result<Numbered<Request>, CalibrateError> {
    control.receive(runtime, IDLE).await.map_err(CalibrateError::of_answering_side)
}

/// Opens the device of `machine`; its port must be active
pub(crate) fn open(machine: &dyn Machine, calls: &Arc<Calls>) -> Result<Arc<AnyDevice>, Error> {
    let device = open_watched(calls, || machine.open(Path::default()))?;
    require_active(&device)?;
    Ok(Arc::new(device))
}

/// Fails if the device is gone, or its port is not active
pub(crate) fn require_active(device: &AnyDevice) -> Result<(), Error> {
    match device.port()?.state {
        PortState::Active => Ok(()),
        _ => Err(Error::new(Verb::QueryPort, Cause::PortDown)),
    }
}

struct Answers<'a> {
    machine: &'a dyn Machine,
    device: Arc<AnyDevice>,
    calls: &'a Arc<Calls>,
    station: Option<Station>,
    resting: VecDeque<Station>,
    /// Of the conformance body
    queues: Queues,
    transitions: Transitions,
}

impl Answers<'_> {
    fn station(&mut self) -> Result<&mut Station, CalibrateError> {
        self.station.as_mut().ok_or(CalibrateError::NotAsking)
    }

    /// The bytes that stations leave of the memory of all queue pairs
    fn memory_left(&self) -> usize {
        let used: usize = self.resting.iter().chain(&self.station).map(Station::memory_len).sum();
        MAX_MEMORY.saturating_sub(used)
    }

    /// The bytes that stations and the queue pairs of the body leave of it
    fn memory_for_station(&self) -> usize {
        self.memory_left().saturating_sub(self.queues.memory_len())
    }

    /// Does what has to be done before the asking side begins
    fn prepare(&mut self, request: Request) -> Result<(), CalibrateError> {
        match request {
            // Two receives stay posted, so that neither side waits for the other to post one.
            Request::Echo { len, .. } => self.receive(0..2, len),
            Request::Relay { len } => Ok(self.station()?.send(len).map(drop)?),
            Request::Flow(flow) if flow.is_possible() => {
                Ok(self.resting.iter_mut().try_for_each(|station| flow.prepare(station, false))?)
            }
            _ => Err(CalibrateError::NotAsking),
        }
    }

    /// Posts receives of `len` bytes into the memory of these numbers
    fn receive(&mut self, mut numbers: Range<usize>, len: usize) -> Result<(), CalibrateError> {
        let station = self.station()?;
        Ok(numbers.try_for_each(|number| station.recv(slot(number, len)))?)
    }

    /// The device of a cable
    fn device(&self, cable: usize) -> Result<Arc<AnyDevice>, CalibrateError> {
        if cable == 0 {
            return Ok(Arc::clone(&self.device));
        }
        let count = self.machine.cables();
        if cable >= count {
            return Err(CalibrateError::NoCable { number: cable.saturating_add(1), count });
        }
        Ok(Arc::new(open_watched(self.calls, || self.machine.open_cable(cable))?))
    }

    async fn answer(&mut self, request: Request) -> Result<Reply, CalibrateError> {
        match request {
            Request::Make { cable, frames, len } => {
                self.station = None;
                let device = self.device(cable)?;
                let len = len.min(self.memory_for_station());
                let station = Station::bounded(self.calls.runtime(), &device, frames, len)?;
                let address = station.address();
                self.station = Some(station);
                return Ok(Reply::Made { address });
            }
            Request::Connect { address } => {
                let station = self.station.as_ref().ok_or(CalibrateError::NotAsking)?;
                self.transitions.attempt(|| station.connect(&address).map_err(CalibrateError::from))?;
            }
            Request::Recv { first, count, len } => {
                let end = first.checked_add(count).ok_or(CalibrateError::NotAsking)?;
                self.receive(first..end, len)?;
            }
            Request::RecvLate { len } => {
                let most = self.memory_for_station();
                self.station()?.recv_late(len, most)?;
            }
            Request::Received { count } => {
                let station = self.station()?;
                let mut statuses = Vec::new();
                for _ in 0..count.min(4096) {
                    statuses.push(station.receive_status().await?);
                }
                return Ok(Reply::Received { statuses });
            }
            Request::Echo { rounds, len } => {
                let station = self.station()?;
                for round in 0..rounds {
                    station.received().await?;
                    station.recv(slot(round % 2, len))?;
                    station.send(len)?;
                    station.sent().await?;
                }
            }
            Request::Credits { rounds, len } => {
                let runtime = Arc::clone(self.calls.runtime());
                let station = self.station()?;
                let mut nanoseconds = Vec::new();
                for _ in 0..rounds.min(1024) {
                    let start = runtime.now();
                    station.recv(slot(0, len))?;
                    station.received().await?;
                    nanoseconds.push((runtime.now() - start).as_nanos() as u64);
                }
                return Ok(Reply::Took { nanoseconds });
            }
            Request::Relay { len } => {
                let runtime = Arc::clone(self.calls.runtime());
                let station = self.station()?;
                station.sent().await?;
                let completed = runtime.now();
                // By then, nothing else completes on the asking side, which would be busy with it.
                sleep(&*runtime, RELAY_PAUSE).await;
                let nanoseconds = vec![(runtime.now() - completed).as_nanos() as u64];
                station.recv(slot(0, len))?;
                station.received().await?;
                return Ok(Reply::Took { nanoseconds });
            }
            Request::Flow(flow) => {
                let flows = self.resting.iter_mut().map(|station| flow.run(station, false));
                let ends = arrivals(&try_join_all(flows).await?);
                let nanoseconds = ends.into_iter().map(|time| time.as_nanos() as u64).collect();
                return Ok(Reply::Took { nanoseconds });
            }
            Request::Keep => {
                // As many as the asking side uses; another one asks for no more either.
                if self.resting.len() < 64 {
                    self.resting.extend(self.station.take());
                }
            }
            Request::Take => self.station = self.resting.pop_front(),
            Request::Drop => {
                self.station = None;
                self.resting.clear();
            }
            Request::Act { qp, act } => return Ok(Reply::Acted(self.act(qp, act).await)),
            Request::Alive | Request::Bye => (),
        }
        Ok(Reply::Done)
    }

    /// Does something for the conformance body, unless it may spoil the port of this side, or an object of this process
    async fn act(&mut self, qp: u32, act: Act) -> Result<Acted, Refusal> {
        if let Act::Modify { to: Transition::Error } = act {
            return Err(Refusal::Unexpected("this side sets no queue pair to the error state".to_owned()));
        }
        let memory = self.memory_left();
        let end = End {
            memory,
            // The device may accept more than its completion queue holds.
            requests: Some(completions(&self.device).into()),
            device: &self.device,
            runtime: &**self.calls.runtime(),
            transitions: &mut self.transitions,
        };
        self.queues.act(end, qp, act).await
    }
}
