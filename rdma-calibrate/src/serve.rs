//! The side that answers

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use rdma_async::time::sleep;
use rdma_core::{AnyDevice, Device as _, Error, PortState};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::calls::Calls;
use crate::conformance::acts::Queues;
use crate::control::{Control, Stream};
use crate::error::CalibrateError;
use crate::machine::{Machine, Path};
use crate::message::{Reply, Request};
use crate::station::Station;
use crate::watched::open_watched;

/// How long the asking side may be busy with itself: it may wait for idle queue pairs.
const IDLE: Duration = Duration::from_hours(2);
/// Between the completion of a relay's send and the post of its receive.
const RELAY_PAUSE: Duration = Duration::from_micros(50);
/// What fails on this side is the experiment of the other one.
const STAGE: &str = "for the other side";

/// Answers one calibration
///
/// Leaves no object, however it ends.
///
/// # Errors
///
/// [`CalibrateError::Device`] if the device cannot be used; [`CalibrateError::Version`] and [`CalibrateError::NotCalibrate`] if the
/// other side is another program, or says nothing; [`CalibrateError::PeerGone`] if it vanishes later.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future destroys what it has created.
pub async fn serve(
    machine: &dyn Machine,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin,
) -> Result<(), CalibrateError> {
    let calls = Arc::new(Calls::new(machine.runtime()));
    serve_watched(machine, stream, &calls).await
}

/// As [`serve`], and notes in `calls` which verb it is in: for a thread that watches whether one hangs
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
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    calls: &Arc<Calls>,
) -> Result<(), CalibrateError> {
    serve_over(machine, &mut stream, calls).await
}

async fn serve_over(
    machine: &dyn Machine,
    stream: &mut dyn Stream,
    calls: &Arc<Calls>,
) -> Result<(), CalibrateError> {
    let runtime = machine.runtime();
    let mut control = Control::handshake(stream, &*runtime).await?;
    let opened = open(machine, calls);
    let mut answers = match opened {
        Ok(device) => Answers {
            machine,
            device,
            calls,
            station: None,
            resting: VecDeque::new(),
            queues: Queues::default(),
        },
        Err(error) => {
            let error = CalibrateError::Device(error);
            let _: Request = control.receive(&*runtime, IDLE).await?;
            control.send(&Reply::Failed(error.to_string())).await?;
            return Err(error);
        }
    };
    loop {
        let request: Request = control.receive(&*runtime, IDLE).await?;
        // These take their time from the reply on.
        if let Request::Echo { .. } | Request::Relay { .. } | Request::Flow(_) | Request::Flows(_) = request {
            let prepared = answers.prepare(request).map_or_else(failed, |()| Reply::Done);
            let is_ready = matches!(prepared, Reply::Done);
            control.send(&prepared).await?;
            if !is_ready {
                continue;
            }
        }
        let reply = answers.answer(request).await.unwrap_or_else(|error| Reply::Failed(error.to_string()));
        control.send(&reply).await?;
        if let Request::Bye = request {
            return Ok(());
        }
    }
}

/// Opens the device of `machine`; its port must be active
pub(crate) fn open(machine: &dyn Machine, calls: &Arc<Calls>) -> Result<Arc<AnyDevice>, Error> {
    let device = open_watched(calls, || machine.open(Path::default()))?;
    if device.port()?.state != PortState::Active {
        return Err(Error::new(rdma_core::Verb::QueryPort, rdma_core::Cause::PortDown));
    }
    Ok(Arc::new(device))
}

fn failed(error: Error) -> Reply {
    Reply::Failed(error.to_string())
}

struct Answers<'a> {
    machine: &'a dyn Machine,
    device: Arc<AnyDevice>,
    calls: &'a Arc<Calls>,
    station: Option<Station>,
    resting: VecDeque<Station>,
    /// Of the conformance body
    queues: Queues,
}

impl Answers<'_> {
    fn station(&mut self) -> Result<&mut Station, CalibrateError> {
        self.station.as_mut().ok_or(CalibrateError::NotCalibrate)
    }

    /// Does what has to be done before the asking side begins
    fn prepare(&mut self, request: Request) -> Result<(), Error> {
        if let Request::Flows(flow) = request {
            return self.resting.iter_mut().try_for_each(|station| flow.prepare(station));
        }
        let Some(station) = &mut self.station else { return Ok(()) };
        match request {
            // Two receives stay posted, so that neither side waits for the other to post one.
            Request::Echo { len, .. } => {
                station.recv(slot(0, len))?;
                station.recv(slot(1, len))
            }
            Request::Relay { len } => station.send(len).map(drop),
            Request::Flow(flow) => flow.prepare(station),
            _ => Ok(()),
        }
    }

    /// Posts receives of `len` bytes into the memory of these numbers
    fn receive(&mut self, mut numbers: Range<usize>, len: usize) -> Result<(), Error> {
        let Some(station) = &mut self.station else { return Ok(()) };
        numbers.try_for_each(|number| station.recv(slot(number, len)))
    }

    async fn answer(&mut self, request: Request) -> Result<Reply, CalibrateError> {
        let verb = |error| CalibrateError::Verb { stage: STAGE, error };
        match request {
            Request::MakeAt { cable, .. } if cable >= self.machine.cables() => {
                return Ok(Reply::Failed(format!("this side has {} cables", self.machine.cables())));
            }
            Request::Make { frames, len } | Request::MakeAt { frames, len, .. } => {
                self.station = None;
                let device = match request {
                    Request::MakeAt { cable, .. } => {
                        Arc::new(open_watched(self.calls, || self.machine.open_cable(cable)).map_err(verb)?)
                    }
                    _ => Arc::clone(&self.device),
                };
                // The peer asks for no more than this.
                let len = len.min(64 << 20);
                let station = Station::new(self.calls.runtime(), &device, frames, len).map_err(verb)?;
                let address = station.address();
                self.station = Some(station);
                return Ok(Reply::Made { address });
            }
            Request::Connect { address } => self.station()?.connect(&address).map_err(verb)?,
            Request::Recv { count, len } => self.receive(0..count, len).map_err(verb)?,
            Request::RecvFrom { first, count, len } => {
                self.receive(first..first.saturating_add(count), len).map_err(verb)?;
            }
            Request::Send { len } => drop(self.station()?.send(len).map_err(verb)?),
            Request::RecvLate { len } => self.station()?.recv_late(len).map_err(verb)?,
            Request::Received { count } => {
                let station = self.station()?;
                let mut statuses = Vec::new();
                for _ in 0..count.min(4096) {
                    statuses.push(station.receive_status(STAGE).await?);
                }
                return Ok(Reply::Received { statuses });
            }
            Request::Echo { rounds, len } => {
                let station = self.station()?;
                for round in 0..rounds {
                    station.received(STAGE).await?;
                    station.recv(slot(round % 2, len)).map_err(verb)?;
                    station.send(len).map_err(verb)?;
                    station.sent(STAGE).await?;
                }
            }
            Request::Credits { rounds, len } => {
                let runtime = Arc::clone(self.calls.runtime());
                let station = self.station()?;
                let mut nanoseconds = Vec::new();
                for _ in 0..rounds.min(1024) {
                    let start = runtime.now();
                    station.recv(slot(0, len)).map_err(verb)?;
                    station.received(STAGE).await?;
                    nanoseconds.push((runtime.now() - start).as_nanos() as u64);
                }
                return Ok(Reply::Took { nanoseconds });
            }
            Request::Relay { len } => {
                let runtime = Arc::clone(self.calls.runtime());
                let station = self.station()?;
                station.sent(STAGE).await?;
                let completed = runtime.now();
                // By then, nothing else completes on the asking side, which would be busy with it.
                sleep(&*runtime, RELAY_PAUSE).await;
                let nanoseconds = vec![(runtime.now() - completed).as_nanos() as u64];
                station.recv(slot(0, len)).map_err(verb)?;
                station.received(STAGE).await?;
                return Ok(Reply::Took { nanoseconds });
            }
            Request::Flow(flow) => {
                let took = flow.run(self.station()?, STAGE, false).await?;
                return Ok(Reply::Took { nanoseconds: vec![took.as_nanos() as u64] });
            }
            Request::Flows(flow) => {
                let flows = self.resting.iter_mut().map(|station| flow.run(station, STAGE, false));
                let took = try_join_all(flows).await?;
                return Ok(Reply::Took {
                    nanoseconds: took.iter().map(|took| took.as_nanos() as u64).collect(),
                });
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
            Request::Act { qp, act } => {
                let runtime = &**self.calls.runtime();
                return Ok(Reply::Acted(self.queues.act(&self.device, runtime, qp, act).await));
            }
            Request::Bye => (),
        }
        Ok(Reply::Done)
    }
}

/// The memory of receive `number` of `len` bytes; the first frames are for sends
pub(crate) fn slot(number: usize, len: usize) -> std::ops::Range<usize> {
    let size = len.next_multiple_of(rdma_core::FRAME).max(rdma_core::FRAME);
    let start = (number + 1) * size;
    start..start + len
}
