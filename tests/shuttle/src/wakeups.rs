//! Lost wake-ups, as in `tests/tests/bugs/wakeups.rs`, under the same names

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use futures::channel::oneshot;
use shuttle::future::{spawn, yield_now};

use crate::tools::{Shared, Waiters, join, join_all, sleep, wait_until};

pub(crate) async fn no_permit(is_fixed: bool) {
    let (queue, waiters) = (Shared::new(VecDeque::new()), Shared::new(Waiters::default()));
    let consume = {
        let (queue, waiters) = (queue.clone(), waiters.clone());
        spawn(async move {
            let mut received = 0;
            while received < 3 {
                let item: Option<u32> = queue.lock().pop_front();
                if item.is_some() {
                    received += 1;
                } else if is_fixed {
                    wait_until(&waiters, || !queue.lock().is_empty()).await;
                } else {
                    sleep(2).await;
                    waiters.wait().await;
                }
            }
        })
    };
    for item in 0..3 {
        sleep(15).await;
        queue.lock().push_back(item);
        waiters.notify_all();
    }
    join(consume).await;
}

pub(crate) async fn overwritten_waker(is_fixed: bool) {
    let (slot, wakers) = (Shared::new(VecDeque::new()), Shared::new(Vec::new()));
    let receive = |at: u64| {
        let (slot, wakers) = (slot.clone(), wakers.clone());
        async move {
            sleep(at).await;
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
    let receivers = [0, 60].map(|at| spawn(receive(at)));
    spawn(async move {
        for (pause, item) in [(20, 1), (70, 2)] {
            sleep(pause).await;
            slot.lock().push_back(item);
            let woken = std::mem::take(&mut *wakers.lock());
            woken.into_iter().for_each(Waker::wake);
        }
    });
    join_all(receivers).await;
}

pub(crate) async fn wake_before_flag(is_fixed: bool) {
    let (is_ready, waker) = (Shared::new(false), Shared::new(None));
    let wait = {
        let (is_ready, waker) = (is_ready.clone(), waker.clone());
        spawn(async move {
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
    spawn(async move {
        sleep(10).await;
        if is_fixed {
            is_ready.set(true);
        }
        let woken: Option<Waker> = waker.lock().take();
        woken.into_iter().for_each(Waker::wake);
        yield_now().await;
        is_ready.set(true);
    });
    join(wait).await;
}

pub(crate) async fn wrong_waiter(is_fixed: bool) {
    let (slot, waiters) = (Shared::new(None), Shared::new(Waiters::default()));
    let wake = move |waiters: &Shared<Waiters>| {
        if is_fixed {
            return waiters.notify_all();
        }
        let first = waiters.lock().wakers.pop_front();
        first.into_iter().for_each(Waker::wake);
    };
    let produce = |at: u64| {
        let (slot, waiters) = (slot.clone(), waiters.clone());
        async move {
            sleep(at).await;
            for item in 0..2 {
                wait_until(&waiters, || slot.lock().is_none()).await;
                slot.set(Some(item));
                wake(&waiters);
                sleep(20).await;
            }
        }
    };
    let consume = |at: u64| {
        let (slot, waiters) = (slot.clone(), waiters.clone());
        async move {
            sleep(at).await;
            for _ in 0..2 {
                wait_until(&waiters, || slot.lock().is_some()).await;
                slot.set(None);
                wake(&waiters);
                sleep(20).await;
            }
        }
    };
    let producers = [0, 10].map(|at| spawn(produce(at)));
    let consumers = [5, 15].map(|at| spawn(consume(at)));
    join_all(producers.into_iter().chain(consumers)).await;
}

pub(crate) async fn first_waker_kept(is_fixed: bool) {
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
    spawn(async move {
        sleep(5).await;
        item.set(Some(7));
        let woken: Option<Waker> = waker.lock().take();
        woken.into_iter().for_each(Waker::wake);
    });
    // It looks first whether the item is there already, and leaves the wait to a task.
    assert!(futures::poll!(receive.as_mut()).is_pending());
    sleep(30).await;
    assert_eq!(join(spawn(receive)).await, 7);
}

pub(crate) async fn if_instead_of_while(is_fixed: bool) {
    let (queue, waiters) = (Shared::new(VecDeque::new()), Shared::new(Waiters::default()));
    let consume = |at: u64| {
        let (queue, waiters) = (queue.clone(), waiters.clone());
        async move {
            sleep(at).await;
            if is_fixed {
                wait_until(&waiters, || !queue.lock().is_empty()).await;
            } else if queue.lock().is_empty() {
                waiters.wait().await;
            }
            let item: Option<u32> = queue.lock().pop_front();
            item.expect("nothing is there for a consumer that was woken")
        }
    };
    let consumers = [0, 60].map(|at| spawn(consume(at)));
    for (pause, item) in [(20, 1), (80, 2)] {
        sleep(pause).await;
        queue.lock().push_back(item);
        waiters.notify_all();
    }
    join_all(consumers).await;
}

pub(crate) async fn barrier_without_generation(is_fixed: bool) {
    let (state, waiters) = (Shared::new((0, 0)), Shared::new(Waiters::default()));
    let take_part = || {
        let (state, waiters) = (state.clone(), waiters.clone());
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
                sleep(10).await;
            }
        }
    };
    join_all([(); 3].map(|()| spawn(take_part()))).await;
}

pub(crate) async fn signal_cleared_late(is_fixed: bool) {
    let (queue, signal, waiters) =
        (Shared::new(VecDeque::new()), Shared::new(false), Shared::new(Waiters::default()));
    let consume = {
        let (queue, signal, waiters) = (queue.clone(), signal.clone(), waiters.clone());
        spawn(async move {
            let mut received = 0;
            while received < 4 {
                wait_until(&waiters, || signal.get()).await;
                if is_fixed {
                    signal.set(false);
                }
                let taken = std::mem::take(&mut *queue.lock());
                sleep(3).await;
                received += taken.len();
                if !is_fixed {
                    signal.set(false);
                }
            }
        })
    };
    for item in 0..4 {
        sleep(20).await;
        queue.lock().push_back(item);
        // A signal that is set already will be seen.
        let was_set = std::mem::replace(&mut *signal.lock(), true);
        if !was_set {
            waiters.notify_all();
        }
    }
    join(consume).await;
}

pub(crate) async fn version_read_late(is_fixed: bool) {
    let (watched, waiters) = (Shared::new((0, "starting")), Shared::new(Waiters::default()));
    let watch = {
        let (watched, waiters) = (watched.clone(), waiters.clone());
        spawn(async move {
            loop {
                let (version, value) = watched.get();
                sleep(5).await;
                if value == "stopped" {
                    break;
                }
                let seen = if is_fixed { version } else { watched.get().0 };
                wait_until(&waiters, || watched.get().0 != seen).await;
            }
        })
    };
    for (version, value) in [(1, "running"), (2, "stopping"), (3, "stopped")] {
        sleep(30).await;
        watched.set((version, value));
        waiters.notify_all();
    }
    join(watch).await;
}

pub(crate) async fn joined_before_begun(is_fixed: bool) {
    let (running, done, waiters) = (Shared::new(0), Shared::new(0), Shared::new(Waiters::default()));
    let (begun, work) = oneshot::channel::<()>();
    for _ in 0..3 {
        let (running, done, waiters) = (running.clone(), done.clone(), waiters.clone());
        if is_fixed {
            *running.lock() += 1;
        }
        spawn(async move {
            if !is_fixed {
                *running.lock() += 1;
            }
            sleep(5).await;
            *done.lock() += 1;
            *running.lock() -= 1;
            waiters.notify_all();
        });
    }
    let wait = spawn(async move {
        let _ = work.await;
        wait_until(&waiters, || running.get() == 0).await;
        done.get()
    });
    let _ = begun.send(());
    assert_eq!(join(wait).await, 3, "joined before all had begun");
}
