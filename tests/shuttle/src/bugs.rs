//! The programs of `tests/tests/bugs` that are races of tasks alone, under the same names

use std::collections::VecDeque;

use shuttle::future::{spawn, yield_now};
use shuttle::sync::Mutex;

use crate::tools::{Shared, Waiters, join_all, sleep, wait_until};

pub(crate) async fn last_seat(is_fixed: bool) {
    let seats = Shared::new(1);
    let sell = |at: u64| {
        let seats = seats.clone();
        async move {
            sleep(at).await;
            if seats.get() == 0 {
                return;
            }
            if is_fixed {
                *seats.lock() -= 1;
                sleep(10).await;
            } else {
                sleep(10).await;
                *seats.lock() -= 1;
            }
        }
    };
    join_all([0, 30].map(|at| spawn(sell(at)))).await;
    assert_eq!(seats.get(), 0, "a seat was sold twice");
}

pub(crate) async fn lost_update(is_fixed: bool) {
    let sum = Shared::new(0);
    let add = |at: u64| {
        let sum = sum.clone();
        async move {
            sleep(at).await;
            let read = sum.get();
            sleep(10).await;
            let mut sum = sum.lock();
            *sum = 1 + if is_fixed { *sum } else { read };
        }
    };
    join_all([0, 10].map(|at| spawn(add(at)))).await;
    assert_eq!(sum.get(), 2, "an addition is lost");
}

pub(crate) async fn audit_between(is_fixed: bool) {
    let accounts = Shared::new([10, 0]);
    let transfer = {
        let accounts = accounts.clone();
        spawn(async move {
            if is_fixed {
                let mut accounts = accounts.lock();
                accounts[0] -= 5;
                accounts[1] += 5;
            } else {
                accounts.lock()[0] -= 5;
                yield_now().await;
                accounts.lock()[1] += 5;
            }
        })
    };
    let audit = spawn(async move {
        yield_now().await;
        yield_now().await;
        accounts.lock().iter().sum::<i32>()
    });
    assert_eq!(join_all([audit]).await, [10], "money is missing");
    join_all([transfer]).await;
}

pub(crate) async fn lock_order(is_fixed: bool) {
    let accounts = std::sync::Arc::new([10, 10].map(Mutex::new));
    let transfer = |at: u64, from: usize, to: usize| {
        let accounts = accounts.clone();
        spawn(async move {
            sleep(at).await;
            let order = if is_fixed { [from.min(to), from.max(to)] } else { [from, to] };
            // The locks of shuttle are scheduling points by themselves.
            let first = accounts[order[0]].lock().expect("no task panics");
            let second = accounts[order[1]].lock().expect("no task panics");
            drop((first, second));
        })
    };
    join_all([transfer(0, 0, 1), transfer(40, 1, 0)]).await;
}

pub(crate) async fn bakery_without_choosing(is_fixed: bool) {
    let (tickets, choosing, inside) = (Shared::new([0; 2]), Shared::new([false; 2]), Shared::new(0));
    let enter = |me: usize, at: u64| {
        let (tickets, choosing, inside) = (tickets.clone(), choosing.clone(), inside.clone());
        async move {
            sleep(at).await;
            choosing.lock()[me] = true;
            let highest = tickets.get().into_iter().max().unwrap_or(0);
            sleep(1).await;
            tickets.lock()[me] = highest + 1;
            choosing.lock()[me] = false;
            let other = 1 - me;
            while is_fixed && choosing.get()[other] {
                sleep(1).await;
            }
            let is_first =
                |tickets: [u32; 2]| tickets[other] != 0 && (tickets[other], other) < (tickets[me], me);
            while is_first(tickets.get()) {
                sleep(1).await;
            }
            *inside.lock() += 1;
            assert_eq!(inside.get(), 1, "two tasks are inside");
            sleep(2).await;
            *inside.lock() -= 1;
            tickets.lock()[me] = 0;
        }
    };
    join_all([(0, 0), (1, 100)].map(|(me, at)| spawn(enter(me, at)))).await;
}

pub(crate) async fn aba_on_a_stack(is_fixed: bool) {
    let (head, next) = (Shared::new((Some(0_usize), 0)), Shared::new([Some(1), Some(2), None]));
    let pop = || {
        let (head, next) = (head.clone(), next.clone());
        async move {
            loop {
                let before = head.get();
                let first = before.0?;
                let second = next.get()[first];
                yield_now().await;
                let mut head = head.lock();
                if if is_fixed { *head == before } else { head.0 == before.0 } {
                    *head = (second, before.1 + 1);
                    return Some(first);
                }
            }
        }
    };
    let (push_head, push_next) = (head.clone(), next.clone());
    let (reuse, second) = (pop(), pop());
    let holder = spawn(async move {
        let (Some(node), Some(kept)) = (reuse.await, second.await) else { return None };
        yield_now().await;
        yield_now().await;
        let (first, changes) = push_head.get();
        push_next.lock()[node] = first;
        push_head.set((Some(node), changes + 1));
        Some(kept)
    });
    let late = pop();
    let late = spawn(async move {
        for _ in 0..6 {
            yield_now().await;
        }
        late.await
    });
    join_all([late]).await;
    let (kept, (mut at, _)) = (join_all([holder]).await[0], head.get());
    while let Some(node) = at {
        assert_ne!(Some(node), kept, "the stack is broken: it has a node that was popped");
        at = next.get()[node];
    }
}

pub(crate) async fn freed_twice(is_fixed: bool) {
    let (owners, freed) = (Shared::new(2), Shared::new(0));
    let release = |at: u64| {
        let (owners, freed) = (owners.clone(), freed.clone());
        async move {
            sleep(at).await;
            let left = {
                let mut owners = owners.lock();
                *owners -= 1;
                *owners
            };
            sleep(5).await;
            if if is_fixed { left } else { owners.get() } == 0 {
                *freed.lock() += 1;
            }
        }
    };
    join_all([0, 30].map(|at| spawn(release(at)))).await;
    assert_eq!(freed.get(), 1, "the memory was freed twice");
}

pub(crate) async fn one_credit_for_two(is_fixed: bool) {
    let (credits, used) = (Shared::new(1_i32), Shared::new(0));
    let send = |turns: u32| {
        let (credits, used) = (credits.clone(), used.clone());
        async move {
            for _ in 0..turns {
                yield_now().await;
            }
            if credits.get() == 0 {
                return;
            }
            if is_fixed {
                *credits.lock() -= 1;
                yield_now().await;
            } else {
                yield_now().await;
                *credits.lock() -= 1;
            }
            *used.lock() += 1;
            assert_eq!(used.get(), 1, "a message was sent without a credit");
        }
    };
    join_all([0, 3].map(|turns| spawn(send(turns)))).await;
}

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
    join_all([consume]).await;
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

pub(crate) async fn joined_before_begun(is_fixed: bool) {
    let (running, done, waiters) = (Shared::new(0), Shared::new(0), Shared::new(Waiters::default()));
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
    yield_now().await;
    wait_until(&waiters, || running.get() == 0).await;
    assert_eq!(done.get(), 3, "joined before all had begun");
}
