//! Streams of messages, one way or both ways at once

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_core::{Cause, Error, Runtime, Time, Verb};

use crate::error::CalibrateError;
use crate::message::Flow;
use crate::station::{COMPLETION_TIMEOUT, Station, slot};

/// The time for which a full queue is left alone, where the clock stands still otherwise.
const FULL_QUEUE_PAUSE: Duration = Duration::from_micros(1);

impl Flow {
    /// Posts the receives with which the stream begins; `is_asking` is true on the side that asks
    pub(crate) fn prepare(&self, station: &mut Station, is_asking: bool) -> Result<(), Error> {
        let [_, receives] = self.parts(is_asking);
        (0..self.window.min(receives)).try_for_each(|number| station.recv(slot(number, self.len)))
    }

    /// The numbers of messages that a side sends and receives
    fn parts(&self, is_asking: bool) -> [usize; 2] {
        if is_asking { [self.there, self.back] } else { [self.back, self.there] }
    }

    /// The rates there and back of so many of these streams at once, in GB/s, by the time from the first message to the last
    ///
    /// Without the first message of each: the time begins when one has arrived. A way of one message has a rate of zero.
    pub(crate) fn rates(&self, streams: usize, took: [Duration; 2]) -> [f64; 2] {
        let bytes = |count: usize| (count.saturating_sub(1) * self.len * streams) as f64;
        let [there, back] = took.map(|time| (time.as_nanos() as f64).max(1.0));
        [bytes(self.there) / there, bytes(self.back) / back]
    }

    /// Sends and receives; returns the times of the first message that was received, and of the last
    pub(crate) async fn run(
        &self,
        station: &mut Station,
        is_asking: bool,
    ) -> Result<[Time; 2], CalibrateError> {
        let runtime = Arc::clone(station.runtime());
        let [sends, receives] = self.parts(is_asking);
        let (mut posted, mut sent, mut received) = (0, 0, 0);
        let mut first = None::<Time>;
        let mut progress = runtime.now();
        let mut last = progress;
        while sent < sends || received < receives {
            let may_send = is_asking || received > 0;
            let mut is_full = false;
            while may_send && !is_full && posted < sends && posted < self.depth.saturating_add(sent) {
                match station.send(self.len) {
                    Ok(_) => posted += 1,
                    Err(error) if error.cause == Cause::QueueFull => is_full = true,
                    Err(error) => return Err(error.into()),
                }
            }
            // A send that completes before its message has left still takes its place in the queue.
            let is_receive = if is_full && posted == sent {
                let Some(is_receive) = station.receive_completed_now()? else {
                    if runtime.now() - progress >= COMPLETION_TIMEOUT {
                        return Err(Error::new(Verb::PostSend, Cause::QueueFull).into());
                    }
                    moment(&*runtime).await;
                    continue;
                };
                is_receive
            } else {
                station.next_is_receive().await?
            };
            progress = runtime.now();
            if !is_receive {
                sent += 1;
                continue;
            }
            last = progress;
            first.get_or_insert(last);
            if let Some(next) = received.checked_add(self.window).filter(|next| *next < receives) {
                station.recv(slot(next % self.window, self.len))?;
            }
            received += 1;
        }
        Ok([first.unwrap_or(last), last])
    }
}

/// The times from the first message of several streams to the last one of each, by the times of the first and the last message of each
pub(crate) fn arrivals(streams: &[[Time; 2]]) -> Vec<Duration> {
    let start = streams.iter().map(|[first, _]| *first).min();
    streams.iter().map(|[_, last]| start.map_or(Duration::ZERO, |start| *last - start)).collect()
}

/// Waits for a moment: timers of real runtimes are coarser than a cable is fast, so that time passes by other tasks first
async fn moment(runtime: &dyn Runtime) {
    let start = runtime.now();
    yield_now().await;
    if runtime.now() == start {
        sleep(runtime, FULL_QUEUE_PAUSE).await;
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
