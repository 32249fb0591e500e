//! Lost wake-ups: a task waits for ever although what it waits for has happened, or it is woken and finds nothing

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use futures::channel::oneshot;
use rdma_sim::Net;
use tokio::task::yield_now;

use crate::bug::{Bug, STALL, bug};
use crate::tools::{Shared, join_all, sleep, spawn, within};
use crate::waiting::{Handoff, Waiters, wait_until};

pub(crate) const BUGS: &[Bug] = &[
    bug!(no_permit, Delay, STALL, "A notification that comes before the wait is not stored."),
    bug!(
        overwritten_waker,
        Delay,
        STALL,
        "The channel keeps one waker, and a second receiver replaces that of the first."
    ),
    bug!(
        wake_before_flag,
        Order,
        STALL,
        "The waiting task is woken before the flag is set for which it waits."
    ),
    bug!(
        permit_of_a_cancelled_waiter,
        Delay,
        STALL,
        "A permit that was handed to a waiter is lost when the waiter is dropped."
    ),
    bug!(
        wrong_waiter,
        Several,
        STALL,
        "Producers and consumers wait in one list of which only the first is woken."
    ),
    bug!(
        cancelled_decode,
        Delay,
        STALL,
        "A message is taken from the queue before it is decoded, and the timeout drops the decoder."
    ),
    bug!(
        first_waker_kept,
        Delay,
        STALL,
        "A future registers its waker once, and is then polled by another task."
    ),
    bug!(
        if_instead_of_while,
        Delay,
        "nothing is there",
        "A woken consumer does not look again whether another one was faster."
    ),
    bug!(
        barrier_without_generation,
        Delay,
        STALL,
        "A task enters the next round of a barrier before all have left this one."
    ),
    bug!(
        signal_cleared_late,
        Delay,
        STALL,
        "The signal is cleared after the queue was emptied: what was pushed in between wakes no task."
    ),
    bug!(
        version_read_late,
        Delay,
        STALL,
        "The version that counts as seen is read after the value has been processed."
    ),
    bug!(
        joined_before_begun,
        Order,
        "before all had begun",
        "Tasks register with the group when they begin and not when they are spawned."
    ),
];

async fn no_permit(net: Net, is_fixed: bool) {
    let (queue, waiters) = (Shared::new(VecDeque::new()), Shared::<Waiters>::default());
    let consume = {
        let (net, queue, waiters) = (net.clone(), queue.clone(), waiters.clone());
        spawn(&net.clone(), async move {
            let mut received = 0;
            while received < 3 {
                if queue.lock().pop_front().is_some() {
                    received += 1;
                } else if is_fixed {
                    wait_until(&waiters, || !queue.lock().is_empty()).await;
                } else {
                    // It counts itself as idle.
                    sleep(&net, 2).await;
                    waiters.wait().await;
                }
            }
        })
    };
    for item in 0..3 {
        sleep(&net, 15).await;
        queue.lock().push_back(item);
        waiters.notify_all();
    }
    consume.join().await;
}

async fn overwritten_waker(net: Net, is_fixed: bool) {
    let (slot, wakers) = (Shared::new(VecDeque::new()), Shared::new(Vec::new()));
    let receive = |at: u64| {
        let (net, slot, wakers) = (net.clone(), slot.clone(), wakers.clone());
        async move {
            sleep(&net, at).await;
            poll_fn(|cx| {
                if let Some(item) = slot.lock().pop_front() {
                    return Poll::Ready(item);
                }
                let mut wakers = wakers.lock();
                if !is_fixed {
                    wakers.clear();
                }
                wakers.push(cx.waker().clone());
                Poll::Pending
            })
            .await
        }
    };
    let receivers = [0, 60].map(|at| spawn(&net, receive(at)));
    let sender = net.clone();
    spawn(&net, async move {
        for (pause, item) in [(20, 1), (70, 2)] {
            sleep(&sender, pause).await;
            slot.lock().push_back(item);
            let woken = std::mem::take(&mut *wakers.lock());
            woken.into_iter().for_each(Waker::wake);
        }
    });
    join_all(receivers).await;
}

async fn wake_before_flag(net: Net, is_fixed: bool) {
    let (is_ready, waker) = (Shared::new(false), Shared::new(None));
    let wait = {
        let (is_ready, waker) = (is_ready.clone(), waker.clone());
        spawn(&net, async move {
            // Each time that it is woken, it first writes into a log.
            while !is_ready.get() {
                let mut is_woken = false;
                poll_fn(|cx| {
                    if std::mem::replace(&mut is_woken, true) || is_ready.get() {
                        return Poll::Ready(());
                    }
                    waker.set(Some(cx.waker().clone()));
                    Poll::Pending
                })
                .await;
                yield_now().await;
            }
        })
    };
    let setter = net.clone();
    spawn(&net, async move {
        sleep(&setter, 10).await;
        if is_fixed {
            is_ready.set(true);
        }
        let woken: Option<Waker> = waker.lock().take();
        woken.into_iter().for_each(Waker::wake);
        yield_now().await;
        is_ready.set(true);
    });
    wait.join().await;
}

async fn permit_of_a_cancelled_waiter(net: Net, is_fixed: bool) {
    let semaphore = Shared::<Handoff>::default();
    let work = |at: u64, patience: u64| {
        let (net, semaphore) = (net.clone(), semaphore.clone());
        async move {
            sleep(&net, at).await;
            if within(&net, patience, semaphore.acquire(is_fixed)).await.is_some() {
                sleep(&net, 20).await;
                semaphore.release();
            }
        }
    };
    let workers = [(0, 1_000_000), (5, 40), (10, u64::from(u32::MAX))];
    let workers = workers.map(|(at, patience)| spawn(&net, work(at, patience)));
    let all = join_all(workers);
    assert!(within(&net, 500_000_000, all).await.is_some(), "the work stalled: the permit is lost");
}

async fn wrong_waiter(net: Net, is_fixed: bool) {
    let (slot, waiters) = (Shared::new(None), Shared::<Waiters>::default());
    let wake = move |waiters: &Shared<Waiters>| {
        if is_fixed {
            return waiters.notify_all();
        }
        let first = waiters.lock().wakers.pop_front();
        first.into_iter().for_each(Waker::wake);
    };
    let produce = |at: u64| {
        let (net, slot, waiters) = (net.clone(), slot.clone(), waiters.clone());
        async move {
            sleep(&net, at).await;
            for item in 0..2 {
                wait_until(&waiters, || slot.lock().is_none()).await;
                slot.set(Some(item));
                wake(&waiters);
                sleep(&net, 20).await;
            }
        }
    };
    let consume = |at: u64| {
        let (net, slot, waiters) = (net.clone(), slot.clone(), waiters.clone());
        async move {
            sleep(&net, at).await;
            for _ in 0..2 {
                wait_until(&waiters, || slot.lock().is_some()).await;
                slot.set(None);
                wake(&waiters);
                sleep(&net, 20).await;
            }
        }
    };
    let producers = [0, 10].map(|at| spawn(&net, produce(at)));
    let consumers = [5, 15].map(|at| spawn(&net, consume(at)));
    join_all(producers.into_iter().chain(consumers)).await;
}

async fn cancelled_decode(net: Net, is_fixed: bool) {
    let (queue, waiters) = (Shared::new(VecDeque::new()), Shared::<Waiters>::default());
    let receive = {
        let (net, queue, waiters) = (net.clone(), queue.clone(), waiters.clone());
        spawn(&net.clone(), async move {
            let mut received = 0;
            while received < 3 {
                let next = async {
                    wait_until(&waiters, || !queue.lock().is_empty()).await;
                    let taken = if is_fixed { None } else { queue.lock().pop_front() };
                    sleep(&net, 5).await;
                    taken.or_else(|| queue.lock().pop_front())
                };
                // At each timeout it would send a keep-alive message.
                received += u32::from(within(&net, 100, next).await.is_some());
            }
        })
    };
    for item in 0..3 {
        sleep(&net, 30).await;
        queue.lock().push_back(item);
        waiters.notify_all();
    }
    let received = within(&net, 1_000_000, receive.join()).await;
    assert!(received.is_some(), "the receiver stalled: a message is lost");
}

async fn first_waker_kept(net: Net, is_fixed: bool) {
    let (item, waker) = (Shared::new(None), Shared::new(None));
    let mut receive = Box::pin({
        let (item, waker) = (item.clone(), waker.clone());
        poll_fn(move |cx| {
            if let Some(item) = item.lock().take() {
                return Poll::Ready(item);
            }
            let mut waker = waker.lock();
            if is_fixed || waker.is_none() {
                *waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
    });
    let sender = net.clone();
    spawn(&net, async move {
        sleep(&sender, 5).await;
        item.set(Some(7));
        let woken: Option<Waker> = waker.lock().take();
        woken.into_iter().for_each(Waker::wake);
    });
    // It looks first whether the item is there already, and leaves the wait to a task.
    assert!(futures::poll!(receive.as_mut()).is_pending());
    sleep(&net, 30).await;
    assert_eq!(spawn(&net, receive).join().await, 7);
}

async fn if_instead_of_while(net: Net, is_fixed: bool) {
    let (queue, waiters) = (Shared::new(VecDeque::new()), Shared::<Waiters>::default());
    let consume = |at: u64| {
        let (net, queue, waiters) = (net.clone(), queue.clone(), waiters.clone());
        async move {
            sleep(&net, at).await;
            if is_fixed {
                wait_until(&waiters, || !queue.lock().is_empty()).await;
            } else if queue.lock().is_empty() {
                waiters.wait().await;
            }
            // Nothing else runs between the look and this.
            let item = queue.lock().pop_front();
            item.expect("nothing is there for a consumer that was woken")
        }
    };
    let consumers = [0, 60].map(|at| spawn(&net, consume(at)));
    for (pause, item) in [(20, 1), (80, 2)] {
        sleep(&net, pause).await;
        queue.lock().push_back(item);
        waiters.notify_all();
    }
    join_all(consumers).await;
}

async fn barrier_without_generation(net: Net, is_fixed: bool) {
    let (state, waiters) = (Shared::new((0, 0)), Shared::<Waiters>::default());
    let take_part = || {
        let (net, state, waiters) = (net.clone(), state.clone(), waiters.clone());
        async move {
            for _ in 0..3 {
                let generation = {
                    let mut state = state.lock();
                    state.0 += 1;
                    state.1
                };
                if state.lock().0 == 3 {
                    state.set((0, generation + 1));
                    waiters.notify_all();
                }
                wait_until(&waiters, || {
                    let (entered, now) = state.get();
                    if is_fixed { now > generation } else { entered == 0 }
                })
                .await;
                sleep(&net, 10).await;
            }
        }
    };
    join_all([(); 3].map(|()| spawn(&net, take_part()))).await;
}

async fn signal_cleared_late(net: Net, is_fixed: bool) {
    let (queue, signal, waiters) =
        (Shared::new(VecDeque::new()), Shared::new(false), Shared::<Waiters>::default());
    let consume = {
        let (net, queue, signal, waiters) = (net.clone(), queue.clone(), signal.clone(), waiters.clone());
        spawn(&net.clone(), async move {
            let mut received = 0;
            while received < 4 {
                wait_until(&waiters, || signal.get()).await;
                if is_fixed {
                    signal.set(false);
                }
                let taken = std::mem::take(&mut *queue.lock());
                sleep(&net, 3).await;
                received += taken.len();
                if !is_fixed {
                    signal.set(false);
                }
            }
        })
    };
    for item in 0..4 {
        sleep(&net, 20).await;
        queue.lock().push_back(item);
        // A signal that is set already will be seen.
        let was_set = std::mem::replace(&mut *signal.lock(), true);
        if !was_set {
            waiters.notify_all();
        }
    }
    consume.join().await;
}

async fn version_read_late(net: Net, is_fixed: bool) {
    let (watched, waiters) = (Shared::new((0, "starting")), Shared::<Waiters>::default());
    let watch = {
        let (net, watched, waiters) = (net.clone(), watched.clone(), waiters.clone());
        spawn(&net.clone(), async move {
            loop {
                let (version, value) = watched.get();
                sleep(&net, 5).await;
                if value == "stopped" {
                    break;
                }
                let seen = if is_fixed { version } else { watched.get().0 };
                wait_until(&waiters, || watched.get().0 != seen).await;
            }
        })
    };
    for (version, value) in [(1, "running"), (2, "stopping"), (3, "stopped")] {
        sleep(&net, 30).await;
        watched.set((version, value));
        waiters.notify_all();
    }
    watch.join().await;
}

async fn joined_before_begun(net: Net, is_fixed: bool) {
    let (running, done, waiters) = (Shared::new(0), Shared::new(0), Shared::<Waiters>::default());
    let (begun, work) = oneshot::channel::<()>();
    for _ in 0..3 {
        let (net, running, done, waiters) = (net.clone(), running.clone(), done.clone(), waiters.clone());
        if is_fixed {
            *running.lock() += 1;
        }
        spawn(&net.clone(), async move {
            if !is_fixed {
                *running.lock() += 1;
            }
            sleep(&net, 5).await;
            *done.lock() += 1;
            *running.lock() -= 1;
            waiters.notify_all();
        });
    }
    let join = spawn(&net, async move {
        let _ = work.await;
        wait_until(&waiters, || running.get() == 0).await;
        done.get()
    });
    let _ = begun.send(());
    assert_eq!(join.join().await, 3, "joined before all had begun");
}
