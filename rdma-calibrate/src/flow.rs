//! Streams of messages, one way or both ways at once

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_core::{Cause, Error, Opcode, Runtime, Time, Verb};

use crate::error::CalibrateError;
use crate::message::Flow;
use crate::station::{PATIENCE, Station, slot};

/// How long a full queue is left alone, where the clock stands still otherwise.
const MOMENT: Duration = Duration::from_micros(1);

impl Flow {
    /// Posts the receives with which the stream begins
    pub(crate) fn prepare(&self, station: &mut Station) -> Result<(), Error> {
        (0..self.window.min(self.count)).try_for_each(|number| station.recv(slot(number, self.len)))
    }

    /// Sends and receives; returns when the first message was received, and when the last
    ///
    /// The side that asks receives only a stream of both ways, and the side that answers sends only then.
    pub(crate) async fn run(
        &self,
        station: &mut Station,
        stage: &'static str,
        is_asking: bool,
    ) -> Result<[Time; 2], CalibrateError> {
        let verb = |error| CalibrateError::Verb { stage, error };
        let runtime = Arc::clone(station.runtime());
        let count_if = |condition| if condition { self.count } else { 0 };
        let (sends, receives) =
            (count_if(is_asking || self.is_both_ways), count_if(!is_asking || self.is_both_ways));
        let (mut posted, mut sent, mut received) = (0, 0, 0);
        let mut first = None::<Time>;
        let mut progress = runtime.now();
        let mut last = progress;
        while sent < sends || received < receives {
            let may_send = is_asking || received > 0;
            let mut is_full = false;
            while may_send && !is_full && posted < sends && posted - sent < self.depth {
                match station.send(self.len) {
                    Ok(_) => posted += 1,
                    Err(error) if error.cause == Cause::QueueFull => is_full = true,
                    Err(error) => return Err(verb(error)),
                }
            }
            // A send that completes before its message has left still takes its place in the queue.
            let completed = if is_full && posted == sent {
                let Some(completed) = station.completed_now(stage)? else {
                    if runtime.now() - progress >= PATIENCE {
                        return Err(verb(Error::new(Verb::PostSend, Cause::QueueFull)));
                    }
                    moment(&*runtime).await;
                    continue;
                };
                completed
            } else {
                station.next_completed(stage).await?
            };
            progress = runtime.now();
            if completed != Opcode::Recv {
                sent += 1;
                continue;
            }
            last = progress;
            first.get_or_insert(last);
            let next = received + self.window;
            if next < receives {
                station.recv(slot(next % self.window, self.len)).map_err(verb)?;
            }
            received += 1;
        }
        Ok([first.unwrap_or(last), last])
    }
}

/// The time from the first message of several streams to the last
pub(crate) fn span(streams: impl IntoIterator<Item = [Time; 2]>) -> Duration {
    let ends = streams.into_iter().reduce(|[first, last], [start, end]| [first.min(start), last.max(end)]);
    ends.map_or(Duration::ZERO, |[first, last]| last - first)
}

/// Waits for a moment: timers of real runtimes are coarser than a cable is fast, so that time passes by other tasks first
async fn moment(runtime: &dyn Runtime) {
    let start = runtime.now();
    yield_now().await;
    if runtime.now() == start {
        sleep(runtime, MOMENT).await;
    }
}

async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
