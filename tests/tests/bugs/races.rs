//! Tasks that race: each mistake is an `await` between two steps that belong together, or an order that nothing guarantees

use std::collections::VecDeque;
use std::sync::Arc;

use futures::channel::oneshot;
use rdma_sim::Net;
use tokio::task::yield_now;

use crate::bug::{Bug, STALL, bug};
use crate::tools::{Post, Shared, join_all, sleep, spawn};

pub(crate) const BUGS: &[Bug] = &[
    bug!(
        last_seat,
        Delay,
        "sold twice",
        "The seat is taken after the payment, for which the task waits, and not before."
    ),
    bug!(
        lost_update,
        Ties,
        "an addition is lost",
        "A worker writes back the sum that it read before it waited."
    ),
    bug!(
        double_initialisation,
        Order,
        "opened twice",
        "The cache is opened by every task that comes before the first has finished."
    ),
    bug!(
        broadcast_by_index,
        Delay,
        "was skipped",
        "Members are numbered by their place in a list from which others are removed while a send is awaited."
    ),
    bug!(audit_between, Order, "money is missing", "The lock is released between the debit and the credit."),
    bug!(lock_order, Delay, STALL, "Two transfers take the same two locks in opposite order."),
    bug!(
        bakery_without_choosing,
        Several,
        "two tasks are inside",
        "Lamport's bakery without its flag: a task has read the highest ticket and not yet drawn its own."
    ),
    bug!(
        aba_on_a_stack,
        Several,
        "the stack is broken",
        "A pop compares the head only: in the meantime it was popped, its next one too, and it was pushed again."
    ),
    bug!(
        last_job_at_shutdown,
        Delay,
        "a job was left",
        "The worker asks whether the queue is closed after it has found it empty."
    ),
    bug!(
        freed_twice,
        Delay,
        "freed twice",
        "The last owner is found by a count that is read again after a wait."
    ),
    bug!(
        sleep_as_join,
        Ties,
        "before it was written",
        "A sleep that is as long as the work stands in for waiting for its end."
    ),
    bug!(
        lease_at_its_end,
        Ties,
        "two owners",
        "The next owner begins at the instant at which the lease of the former one ends."
    ),
];

async fn last_seat(net: Net, is_fixed: bool) {
    let seats = Shared::new(1);
    let sell = |at: u64| {
        let (net, seats) = (net.clone(), seats.clone());
        async move {
            sleep(&net, at).await;
            if seats.get() == 0 {
                return;
            }
            let pay = sleep(&net, 10);
            if is_fixed {
                *seats.lock() -= 1;
                pay.await;
            } else {
                pay.await;
                *seats.lock() -= 1;
            }
        }
    };
    join_all([0, 30].map(|at| spawn(&net, sell(at)))).await;
    assert_eq!(seats.get(), 0, "a seat was sold twice");
}

async fn lost_update(net: Net, is_fixed: bool) {
    let sum = Shared::new(0);
    let add = |at: u64| {
        let (net, sum) = (net.clone(), sum.clone());
        async move {
            sleep(&net, at).await;
            let read = sum.get();
            sleep(&net, 10).await;
            let mut sum = sum.lock();
            *sum = 1 + if is_fixed { *sum } else { read };
        }
    };
    join_all([0, 10].map(|at| spawn(&net, add(at)))).await;
    assert_eq!(sum.get(), 2, "an addition is lost");
}

async fn double_initialisation(net: Net, is_fixed: bool) {
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
    join_all([0, 2].map(|turns| spawn(&net, open(turns)))).await;
    assert_eq!(opened.get(), 1, "the cache was opened twice");
}

async fn broadcast_by_index(net: Net, is_fixed: bool) {
    let members = Shared::new(vec!["a", "b", "c"]);
    let leave = {
        let (net, members) = (net.clone(), members.clone());
        spawn(&net.clone(), async move {
            sleep(&net, 40).await;
            members.lock().remove(0);
        })
    };
    let (mut reached, mut index, known) = (Vec::new(), 0, members.get());
    let at =
        |index: usize| if is_fixed { known.get(index).copied() } else { members.lock().get(index).copied() };
    let sender = net.clone();
    while let Some(member) = at(index) {
        let send = {
            let net = sender.clone();
            async move {
                sleep(&net, 10).await;
                member
            }
        };
        reached.push(spawn(&net, send).join().await);
        index += 1;
    }
    leave.join().await;
    let skipped = members.lock().iter().find(|member| !reached.contains(member)).copied();
    assert_eq!(skipped, None, "a member was skipped");
}

async fn audit_between(net: Net, is_fixed: bool) {
    let accounts = Shared::new([10, 0]);
    let transfer = {
        let accounts = accounts.clone();
        spawn(&net, async move {
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
    let audit = spawn(&net, async move {
        yield_now().await;
        yield_now().await;
        accounts.lock().iter().sum::<i32>()
    });
    assert_eq!(audit.join().await, 10, "money is missing");
    transfer.join().await;
}

async fn lock_order(net: Net, is_fixed: bool) {
    let accounts = Arc::new([10, 10].map(futures::lock::Mutex::new));
    let transfer = |at: u64, from: usize, to: usize| {
        let (net, accounts) = (net.clone(), accounts.clone());
        spawn(&net.clone(), async move {
            sleep(&net, at).await;
            let order = if is_fixed { [from.min(to), from.max(to)] } else { [from, to] };
            let first = accounts[order[0]].lock().await;
            sleep(&net, 5).await;
            let second = accounts[order[1]].lock().await;
            drop((first, second));
        })
    };
    join_all([transfer(0, 0, 1), transfer(40, 1, 0)]).await;
}

async fn bakery_without_choosing(net: Net, is_fixed: bool) {
    let (tickets, choosing, inside) = (Shared::new([0; 2]), Shared::new([false; 2]), Shared::new(0));
    let enter = |me: usize, at: u64| {
        let (net, tickets, choosing, inside) =
            (net.clone(), tickets.clone(), choosing.clone(), inside.clone());
        async move {
            sleep(&net, at).await;
            choosing.lock()[me] = true;
            let highest = tickets.get().into_iter().max().unwrap_or(0);
            sleep(&net, 1).await;
            tickets.lock()[me] = highest + 1;
            choosing.lock()[me] = false;
            let other = 1 - me;
            while is_fixed && choosing.get()[other] {
                sleep(&net, 1).await;
            }
            let is_first =
                |tickets: [u32; 2]| tickets[other] != 0 && (tickets[other], other) < (tickets[me], me);
            while is_first(tickets.get()) {
                sleep(&net, 1).await;
            }
            *inside.lock() += 1;
            assert_eq!(inside.get(), 1, "two tasks are inside");
            sleep(&net, 2).await;
            *inside.lock() -= 1;
            tickets.lock()[me] = 0;
        }
    };
    join_all([(0, 0), (1, 100)].map(|(me, at)| spawn(&net, enter(me, at)))).await;
}

async fn aba_on_a_stack(net: Net, is_fixed: bool) {
    // The head with the number of its changes, and the next of each node
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
    let holder = spawn(&net, async move {
        let (Some(node), Some(kept)) = (reuse.await, second.await) else { return None };
        yield_now().await;
        yield_now().await;
        let (first, changes) = push_head.get();
        push_next.lock()[node] = first;
        push_head.set((Some(node), changes + 1));
        Some(kept)
    });
    let late = pop();
    spawn(&net, async move {
        for _ in 0..6 {
            yield_now().await;
        }
        late.await
    })
    .join()
    .await;
    let (kept, (mut at, _)) = (holder.join().await, head.get());
    while let Some(node) = at {
        assert_ne!(Some(node), kept, "the stack is broken: it has a node that was popped");
        at = next.get()[node];
    }
}

async fn last_job_at_shutdown(net: Net, is_fixed: bool) {
    let (jobs, is_closed, done) = (Shared::new(VecDeque::new()), Shared::new(false), Shared::new(0));
    let worker = {
        let (net, jobs, is_closed, done) = (net.clone(), jobs.clone(), is_closed.clone(), done.clone());
        spawn(&net.clone(), async move {
            loop {
                let was_closed = is_closed.get();
                let job: Option<u32> = jobs.lock().pop_front();
                if job.is_some() {
                    *done.lock() += 1;
                    continue;
                }
                sleep(&net, 7).await;
                if if is_fixed { was_closed } else { is_closed.get() } {
                    break;
                }
            }
        })
    };
    jobs.lock().push_back(1);
    sleep(&net, 5).await;
    jobs.lock().push_back(2);
    sleep(&net, 50).await;
    is_closed.set(true);
    worker.join().await;
    assert_eq!(done.get(), 2, "a job was left behind");
}

async fn freed_twice(net: Net, is_fixed: bool) {
    let (owners, freed) = (Shared::new(2), Shared::new(0));
    let release = |at: u64| {
        let (net, owners, freed) = (net.clone(), owners.clone(), freed.clone());
        async move {
            sleep(&net, at).await;
            let left = {
                let mut owners = owners.lock();
                *owners -= 1;
                *owners
            };
            sleep(&net, 5).await;
            if if is_fixed { left } else { owners.get() } == 0 {
                *freed.lock() += 1;
            }
        }
    };
    join_all([0, 30].map(|at| spawn(&net, release(at)))).await;
    assert_eq!(freed.get(), 1, "the memory was freed twice");
}

async fn sleep_as_join(net: Net, is_fixed: bool) {
    let file = Shared::new(None);
    let write = {
        let (net, file) = (net.clone(), file.clone());
        spawn(&net.clone(), async move {
            sleep(&net, 100).await;
            file.set(Some("data"));
        })
    };
    let reader = net.clone();
    let (ready, written) = oneshot::channel();
    spawn(&net, async move {
        write.join().await;
        let _ = ready.send(());
    });
    let read = spawn(&net, async move {
        if is_fixed {
            written.await.expect("the writer ends");
        } else {
            sleep(&reader, 100).await;
        }
        file.get()
    });
    assert!(read.join().await.is_some(), "the file was read before it was written");
}

async fn lease_at_its_end(net: Net, is_fixed: bool) {
    let (post, owners) = (Post::new(&net, 2), Shared::new(0));
    let own = |net: Net, owners: Shared<i32>| async move {
        *owners.lock() += 1;
        assert_eq!(owners.get(), 1, "two owners at once");
        sleep(&net, 100).await;
        *owners.lock() -= 1;
    };
    let (at_a, at_b) = (net.host("a"), net.host("b"));
    let (inbox, send) = (post.bind(1), post.clone());
    let (host, held) = (net.clone(), owners.clone());
    at_a.spawn(async move {
        own(host, held).await;
        send.send(1, "released");
    });
    let (host, held) = (net.clone(), owners.clone());
    let (done, ended) = oneshot::channel();
    at_b.spawn(async move {
        if is_fixed {
            inbox.recv().await;
        } else {
            sleep(&host, 100).await;
        }
        own(host, held).await;
        let _ = done.send(());
    });
    ended.await.expect("b was the owner");
}
