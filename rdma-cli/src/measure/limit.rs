//! The end of a measurement whose peer takes too long

use std::time::Duration;

use anyhow::Result;
use rdma_async::time::sleep;
use rdma_async::{Device, Session};

use crate::machines::{Declined, MAX_MEASUREMENT, MAX_SILENCE};

/// Interval between counts of the messages of the session.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `work` to its end, unless no message of `session` passes for [`MAX_SILENCE`], or `work` takes [`MAX_MEASUREMENT`]
///
/// A server has a place for few peers: a peer that is idle or slow must not keep it for ever.
pub(super) async fn limited<D: Device, T>(
    session: &Session<D>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        // The simulator runs the same schedule for the same seed: no branch is chosen at random.
        biased;
        done = work => done,
        declined = overdue(session) => Err(declined.into()),
    }
}

/// Waits until the peer has taken too long
async fn overdue<D: Device>(session: &Session<D>) -> Declined {
    let runtime = &**session.runtime();
    let count = || {
        let counts = session.snapshot();
        counts.messages_received + counts.messages_delivered
    };
    let start = runtime.now();
    let (mut last, mut silence) = (count(), Duration::ZERO);
    while runtime.now() - start < MAX_MEASUREMENT {
        sleep(runtime, COUNT_INTERVAL).await;
        // Intervals are added, and not read from the clock: this task may not have run for long itself.
        silence += COUNT_INTERVAL;
        let now = count();
        if now != last {
            (last, silence) = (now, Duration::ZERO);
        }
        if silence >= MAX_SILENCE {
            return Declined::Silence;
        }
    }
    Declined::Duration
}

#[cfg(test)]
mod tests {
    use futures::future::{Either, select};
    use rdma_async::NodeOptions;
    use rdma_core::AnyDevice;
    use rdma_sim::Sim;

    use super::*;
    use crate::mac;
    use crate::measure::{MAX_MESSAGE, Measurement};

    /// End of an answer to a peer that does `ask`, and the time until then
    fn end_of(
        measurement: Measurement,
        ask: impl AsyncFn(&Session<AnyDevice>) -> Result<()>,
    ) -> (Declined, Duration) {
        let run = Sim::new().topology(mac::topology(1)).run(async |net| {
            let [a, b] = mac::connect(&net, &NodeOptions::new().max_message(MAX_MESSAGE), 1).await.unwrap();
            let asking = async {
                ask(&a).await.unwrap();
                // The session stays open.
                std::future::pending::<()>().await
            };
            let start = net.now();
            let (answer, asking) = (std::pin::pin!(measurement.answer(&b)), std::pin::pin!(asking));
            let Either::Left((answered, _)) = select(answer, asking).await else { unreachable!() };
            let declined = *answered.unwrap_err().downcast_ref::<Declined>().unwrap();
            (declined, net.now() - start)
        });
        run.value
    }

    /// Catches a peer that keeps a place of the server although it sends nothing more.
    #[test]
    fn a_measurement_without_messages_is_ended() {
        let nothing = async |_: &Session<AnyDevice>| Ok(());
        for measurement in [Measurement::Ping, Measurement::Bw, Measurement::AllReduce] {
            let (declined, took) = end_of(measurement, nothing);
            assert_eq!(declined, Declined::Silence, "{measurement:?}");
            assert!((MAX_SILENCE..2 * MAX_SILENCE).contains(&took), "{measurement:?}: {took:?}");
        }
        // The first of two messages that are announced.
        let (declined, took) = end_of(Measurement::Bw, async |session| {
            session.send_bytes(&[64_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat()).await?;
            session.send_bytes(&[7; 64]).await?;
            Ok(())
        });
        assert_eq!(declined, Declined::Silence);
        assert!((MAX_SILENCE..2 * MAX_SILENCE).contains(&took), "{took:?}");
    }

    /// Catches a peer that keeps a place of the server with a message from time to time.
    #[test]
    fn a_measurement_that_takes_too_long_is_ended() {
        let (declined, took) = end_of(Measurement::Ping, async |session| {
            loop {
                session.send_bytes(&[7; 64]).await?;
                session.recv().await?;
                sleep(&**session.runtime(), MAX_SILENCE / 2).await;
            }
        });
        assert_eq!(declined, Declined::Duration);
        assert!((MAX_MEASUREMENT..MAX_MEASUREMENT + MAX_SILENCE).contains(&took), "{took:?}");
    }
}
