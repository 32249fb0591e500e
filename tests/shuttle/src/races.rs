//! Tasks that race, as in `tests/tests/bugs/races.rs`, under the same names

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::future::{spawn, yield_now};

use crate::tools::{Shared, join, join_all, sleep};

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

pub(crate) async fn double_initialisation(is_fixed: bool) {
    let (cache, opened) = (Arc::new(futures::lock::Mutex::new(None)), Shared::new(0));
    let open = |turns: u32| {
        let (cache, opened) = (cache.clone(), opened.clone());
        async move {
            for _ in 0..turns {
                yield_now().await;
            }
            let mut held = cache.lock().await;
            if held.is_some() {
                return;
            }
            if !is_fixed {
                drop(held);
                yield_now().await;
                held = cache.lock().await;
            } else {
                yield_now().await;
            }
            *opened.lock() += 1;
            *held = Some(());
        }
    };
    join_all([0, 2].map(|turns| spawn(open(turns)))).await;
    assert_eq!(opened.get(), 1, "the cache was opened twice");
}

pub(crate) async fn broadcast_by_index(is_fixed: bool) {
    let members = Shared::new(vec!["a", "b", "c"]);
    let leave = {
        let members = members.clone();
        spawn(async move {
            sleep(40).await;
            members.lock().remove(0);
        })
    };
    let (mut reached, mut index, known) = (Vec::new(), 0, members.get());
    let at =
        |index: usize| if is_fixed { known.get(index).copied() } else { members.lock().get(index).copied() };
    while let Some(member) = at(index) {
        let send = async move {
            sleep(10).await;
            member
        };
        reached.push(join(spawn(send)).await);
        index += 1;
    }
    join(leave).await;
    let skipped = members.lock().iter().find(|member| !reached.contains(member)).copied();
    assert_eq!(skipped, None, "a member was skipped");
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
    assert_eq!(join(audit).await, 10, "money is missing");
    join(transfer).await;
}

pub(crate) async fn lock_order(is_fixed: bool) {
    let accounts = Arc::new([10, 10].map(futures::lock::Mutex::new));
    let transfer = |at: u64, from: usize, to: usize| {
        let accounts = accounts.clone();
        spawn(async move {
            sleep(at).await;
            let order = if is_fixed { [from.min(to), from.max(to)] } else { [from, to] };
            let first = accounts[order[0]].lock().await;
            sleep(5).await;
            let second = accounts[order[1]].lock().await;
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
    join(late).await;
    let (kept, (mut at, _)) = (join(holder).await, head.get());
    while let Some(node) = at {
        assert_ne!(Some(node), kept, "the stack is broken: it has a node that was popped");
        at = next.get()[node];
    }
}

pub(crate) async fn last_job_at_shutdown(is_fixed: bool) {
    let (jobs, is_closed, done) = (Shared::new(VecDeque::new()), Shared::new(false), Shared::new(0));
    let worker = {
        let (jobs, is_closed, done) = (jobs.clone(), is_closed.clone(), done.clone());
        spawn(async move {
            loop {
                let was_closed = is_closed.get();
                let job: Option<u32> = jobs.lock().pop_front();
                if job.is_some() {
                    *done.lock() += 1;
                    continue;
                }
                sleep(7).await;
                if if is_fixed { was_closed } else { is_closed.get() } {
                    break;
                }
            }
        })
    };
    jobs.lock().push_back(1);
    sleep(5).await;
    jobs.lock().push_back(2);
    sleep(50).await;
    is_closed.set(true);
    join(worker).await;
    assert_eq!(done.get(), 2, "a job was left behind");
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
