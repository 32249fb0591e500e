//! Requests and answers

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{join, join_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use rdma_async::{Lease, Message, RequestError, Session, SessionError};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{Pair, begun, message, on_session, options};

/// Memory with `bytes` in it
pub(crate) async fn lease(session: &Session<SimDevice>, bytes: &[u8]) -> Lease {
    let mut lease = session.alloc(bytes.len()).await.unwrap();
    lease.extend_from_slice(bytes);
    lease
}

/// Answers all requests at once, each by `handler`, until the peer closes the session; how many were answered
pub(crate) async fn serve(
    session: &Session<SimDevice>,
    handler: impl AsyncFn(Message) -> Lease,
) -> Result<usize, RequestError> {
    let (mut running, mut answered) = (FuturesUnordered::new(), 0);
    let mut is_open = true;
    while is_open || !running.is_empty() {
        futures::select_biased! {
            done = running.select_next_some() => answered += usize::from(done?),
            stream = futures::FutureExt::fuse(session.accept_stream()) => match stream? {
                Some(stream) => running.push(stream.answer(&handler)),
                None => is_open = false,
            },
        }
    }
    Ok(answered)
}

/// Catches answers that are mixed up, and requests that wait for each other.
#[test]
fn each_request_gets_its_answer() {
    on_session(Sim::new().seed(7), &options().max_streams(8), async |net, Pair { ab, ba, .. }| {
        let ask = async {
            let start = net.now();
            let requests = (0..40).map(async |number| {
                let len = [1, 64, 5_000, 100_000][number % 4];
                let answer = ab.request(lease(&ab, &message(number, len)).await).await.unwrap();
                assert!(answer.iter().rev().eq(&message(number, len)), "request {number}");
            });
            join_all(requests).await;
            // Eight at a time, each of a millisecond.
            let took = net.now() - start;
            assert!((5..7).contains(&took.as_millis()), "{took:?}");
            ab.close().await.unwrap();
        };
        let answer = serve(&ba, async |request: Message| {
            net.sleep(Duration::from_millis(1)).await;
            let reversed = request.iter().rev().copied().collect::<Vec<_>>();
            lease(&ba, &reversed).await
        });
        let ((), answered) = join(ask, answer).await;
        assert_eq!(answered, Ok(40));
    });
}

/// Catches a handler that goes on for nobody, and a cancelled request that takes another one's place for good.
#[test]
fn a_request_that_is_dropped_ends_its_handler() {
    on_session(Sim::new(), &options().max_streams(2), async |net, Pair { ab, ba, .. }| {
        let running = Rc::new(Cell::new(0));
        struct Counted(Rc<Cell<i32>>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let ask = async {
            for after in [0, 1, 5, 10, 20, 50, 1000, 5000] {
                let requests = [
                    begun(ab.request(lease(&ab, b"a").await)).await,
                    begun(ab.request(lease(&ab, &[1; 100_000]).await)).await,
                ];
                net.sleep(Duration::from_micros(after)).await;
                drop(requests);
                net.sleep(Duration::from_millis(1)).await;
                assert_eq!(running.get(), 0, "dropped after {after} µs");
            }
            assert_eq!(ab.snapshot().streams, 1);
            ab.close().await.unwrap();
        };
        let answer = serve(&ba, async |_| {
            running.set(running.get() + 1);
            let _counted = Counted(Rc::clone(&running));
            futures::future::pending().await
        });
        let ((), answered) = join(ask, answer).await;
        assert_eq!(answered, Ok(0));
    });
}

#[test]
fn a_request_that_nobody_answers_says_so() {
    on_session(Sim::new(), &options(), async |_, Pair { ab, ba, .. }| {
        let request = ab.request(lease(&ab, b"anyone?").await);
        let drops = async {
            let stream = ba.accept_stream().await.unwrap().unwrap();
            drop(stream.recv().await.unwrap().unwrap());
        };
        let (answer, ()) = join(request, drops).await;
        assert_eq!(answer.unwrap_err(), RequestError::Unanswered);
        let request = begun(ab.request(lease(&ab, b"anyone?").await)).await;
        ba.reset(3);
        let lost = RequestError::Recv(SessionError::Reset(3).into());
        assert_eq!(request.await.unwrap_err(), lost);
        let refused = ab.request(lease(&ab, b"anyone?").await).await.unwrap_err();
        assert_eq!(refused, RequestError::Open(SessionError::Reset(3).into()));
    });
}
