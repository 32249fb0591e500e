//! How long things take

use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join;
use rdma_core::{CompletionQueue, Device, FRAME, Opcode, QpInit, Time, Work};
use rdma_sim::{LineRate, Model, Net, Scheduler, Sim, Timing, Topology};

use super::{Bare, device, pair};
use crate::counting::value_of;

/// The model with other times
fn timed(change: impl FnOnce(&mut Timing)) -> Model {
    let mut model = Model::tb5();
    change(&mut model.timing);
    model
}

/// When a message of two frames has arrived, and when its send has completed
fn arrival(model: Model) -> [u64; 2] {
    value_of(Sim::new().model(model), async |net| {
        let [mut a, mut b] = pair(&net);
        b.recv(1, 0..2 * FRAME).unwrap();
        super::rest(&net, Duration::from_micros(10)).await;
        a.send(1, 0..2 * FRAME).unwrap();
        let at = async |qp: &mut Bare| {
            qp.completion().await.unwrap();
            net.now().as_nanos() - 10_000
        };
        join(at(&mut b), at(&mut a)).await.into()
    })
}

type Change = fn(&mut Timing);

/// Catches a part of the way that is charged twice, or not at all.
#[test]
fn each_part_of_the_way_takes_its_time() {
    let plain = arrival(timed(|timing| timing.jitter_ns = 0));
    let Timing { doorbell_ns, per_message_ns, propagation_ns, delivery_ns, send_completion_ns, .. } =
        Model::tb5().timing;
    let left = doorbell_ns + per_message_ns + 2 * LineRate::TB5.frame_ns(FRAME);
    assert_eq!(plain, [left + propagation_ns + delivery_ns, left + send_completion_ns]);
    let table: [(Change, [u64; 2]); 6] = [
        (|timing| timing.doorbell_ns += 7, [7, 7]),
        (|timing| timing.per_message_ns += 7, [7, 7]),
        (|timing| timing.propagation_ns += 7, [7, 0]),
        (|timing| timing.delivery_ns += 7, [7, 0]),
        (|timing| timing.send_completion_ns += 7, [0, 7]),
        (|timing| timing.frame_ns += 7, [14, 14]),
    ];
    for (change, more) in table {
        let model = timed(|timing| {
            timing.jitter_ns = 0;
            change(timing);
        });
        assert_eq!(arrival(model), [plain[0] + more[0], plain[1] + more[1]], "{more:?}");
    }
    let without_rate = arrival(timed(|timing| (timing.jitter_ns, timing.line_rate) = (0, false)));
    assert_eq!(plain[0] - without_rate[0], 2 * LineRate::TB5.frame_ns(FRAME));
    assert!(arrival(Model::tb5())[0] - plain[0] <= 200, "the jitter");
}

/// How much of the clock of the task passes while `work` runs
fn spent<T>(net: &Net, work: impl FnOnce() -> T) -> (u64, T) {
    let start = net.now();
    let value = work();
    (net.now().since(start).as_nanos() as u64, value)
}

/// Catches a verb that costs nothing, and one whose cost is that of another.
#[test]
fn each_verb_takes_its_time() {
    let model = |is_on| {
        timed(|timing| {
            timing.cpu = is_on;
            (timing.open_ns, timing.create_ns, timing.modify_ns) = (1, 10, 100);
            (timing.register_ns, timing.register_page_ns, timing.teardown_ns) = (1_000, 10_000, 100_000);
            (timing.post_ns, timing.poll_ns) = (1_000_000, 10_000_000);
            (timing.wake_ns, timing.wake_tail_one_in) = (0, 0);
        })
    };
    let costs = |is_on| {
        value_of(Sim::new().model(model(is_on)), async |net| {
            let (open, a) = spent(&net, || device(&net, "a"));
            let (create, cq) = spent(&net, || a.create_cq(16).unwrap());
            // A queue pair is created and set to INIT.
            let (pair, qp) = spent(&net, || cq.create_qp(&QpInit::default()).unwrap());
            let (teardown, ()) = spent(&net, || drop(qp));
            // Two pages; with a completion queue and a queue pair.
            let (arena, mut bare) = spent(&net, || Bare::new(a, &QpInit::with_frames(255), 20_000).unwrap());
            let b = Bare::new(device(&net, "b"), &QpInit::with_frames(255), 20_000).unwrap();
            // Both sides to RTR and to RTS.
            let (connect, ()) = spent(&net, || bare.connect(&b).unwrap());
            let (post, ()) = spent(&net, || bare.recv(1, 0..8).unwrap());
            let (send, ()) = spent(&net, || bare.send(1, 8..16).unwrap());
            let (poll, _) = spent(&net, || bare.poll().unwrap());
            // The queue pair, the region, its completion queue, and the protection domain with the last object of the device.
            drop(cq);
            let (end, ()) = spent(&net, || drop(bare));
            [open, create, pair, teardown, arena, connect, post, send, poll, end]
        })
    };
    assert_eq!(costs(true), [1, 10, 110, 100_000, 21_120, 400, 1_000_000, 1_000_000, 10_000_000, 400_000]);
    assert_eq!(costs(false), [0; 10]);
    // One switch for those who want the wire alone.
    let mut timing = model(true).timing;
    timing.verbs_take_time = true;
    assert_eq!(timing.wire_alone(), model(false).timing);
}

/// As [`spent`], for verbs that take time only once their task waits
async fn waited<T>(net: &Net, work: impl FnOnce() -> T) -> (u64, T) {
    let start = net.now();
    let value = work();
    super::rest(net, Duration::from_nanos(1)).await;
    (net.now().since(start).as_nanos() as u64, value)
}

/// The task that calls them waits; posts and polls are costs of the processor.
#[test]
fn verbs_take_their_time_without_processors() {
    let model = |takes_time| {
        timed(|timing| {
            timing.verbs_take_time = takes_time;
            (timing.open_ns, timing.create_ns, timing.modify_ns) = (10, 100, 1_000);
            (timing.register_ns, timing.register_page_ns, timing.teardown_ns) = (10_000, 100_000, 1_000_000);
        })
    };
    let costs = |takes_time| {
        value_of(Sim::new().model(model(takes_time)), async |net| {
            let (open, a) = waited(&net, || device(&net, "a")).await;
            let b = Bare::new(device(&net, "b"), &QpInit::with_frames(255), 20_000).unwrap();
            super::rest(&net, Duration::from_nanos(1)).await;
            // A region of two pages, a completion queue, and a queue pair that is set to INIT.
            let make = || Bare::new(a, &QpInit::with_frames(255), 20_000).unwrap();
            let (create, mut bare) = waited(&net, make).await;
            let (connect, ()) = waited(&net, || bare.connect(&b).unwrap()).await;
            let (work, _) = waited(&net, || {
                bare.recv(1, 0..8).unwrap();
                bare.poll().unwrap()
            })
            .await;
            let (end, ()) = waited(&net, || drop(bare)).await;
            [open, create, connect, work, end]
        })
    };
    assert_eq!(costs(true), [10, 211_200, 4_000, 1, 4_000_000]);
    assert_eq!(costs(false), [1; 5]);
}

/// The time at which the peer of a task has the message that the task sends after `work`
fn sent_after(model: Model, work: Work) -> Time {
    value_of(Sim::new().model(model), async |net| {
        let [mut a, mut b] = pair(&net);
        b.recv(1, 0..8).unwrap();
        super::rest(&net, Duration::from_millis(1)).await;
        let runtime = net.host("a").runtime();
        net.host("a").spawn(async move {
            runtime.spend(work);
            a.send(1, 0..8).unwrap();
            a.completion().await.unwrap();
        });
        b.completion().await.unwrap();
        net.now()
    })
}

/// Catches work that delays nothing, and a post that leaves before the work that comes first.
#[test]
fn processors_take_time_or_none() {
    let model = |is_on| {
        timed(|timing| {
            (timing.cpu, timing.jitter_ns, timing.wake_tail_one_in) = (is_on, 0, 0);
            (timing.copy_bytes_per_us, timing.reduce_bytes_per_us) = (50_000, 25_000);
        })
    };
    let took = |is_on, work| sent_after(model(is_on), work).since(Time::ZERO);
    let [nothing, copy, reduce] =
        [Work::Copy { bytes: 0 }, Work::Copy { bytes: 1_000_000 }, Work::Reduce { bytes: 1_000_000 }];
    assert_eq!(took(true, copy) - took(true, nothing), Duration::from_micros(20));
    assert_eq!(took(true, reduce) - took(true, nothing), Duration::from_micros(40));
    assert!(took(true, nothing) > took(false, nothing), "a post and a wake-up take time");
    assert_eq!(took(false, reduce), took(false, nothing));
    assert!(Model::profile("tb5-cpu").unwrap().timing.cpu && !Model::tb5().timing.cpu);
}

/// How long tasks wait for a timer of 1 µs, one after another, beyond it
fn wake_ups(seed: u64, tail: [u32; 2], scheduler: Scheduler) -> Vec<u64> {
    let model = timed(|timing| {
        (timing.cpu, timing.wake_ns) = (true, 300);
        [timing.wake_tail_one_in, timing.wake_tail_ns] = tail;
    });
    value_of(Sim::new().model(model).seed(seed).scheduler(scheduler), async |net| {
        let mut late = Vec::new();
        for _ in 0..1_000 {
            let start = net.now();
            super::rest(&net, Duration::from_micros(1)).await;
            late.push(net.now().since(start).as_nanos() as u64 - 1_000);
        }
        late
    })
}

/// Catches wake-ups that take no time, or always as long, and a tail that depends on nothing but the seed of the process.
#[test]
fn wake_ups_are_late_and_some_are_later() {
    // Without interruptions; the scheduler by chance makes tasks late for other reasons, too.
    for scheduler in [Scheduler::Fifo, Scheduler::Pct { depth: 1, steps: 0 }] {
        assert!(wake_ups(1, [0, 5_000], scheduler).iter().all(|late| *late == 300), "{scheduler}");
        let late = wake_ups(1, [10, 5_000], scheduler);
        let tail = late.iter().filter(|late| **late > 300).count();
        assert!((50..200).contains(&tail), "{scheduler}: {tail}");
        assert!(late.iter().all(|late| (300..=5_300).contains(late)), "{:?}", late.iter().max());
        assert_eq!(late, wake_ups(1, [10, 5_000], scheduler));
        assert_ne!(late, wake_ups(2, [10, 5_000], scheduler));
    }
    let by_chance = wake_ups(1, [0, 5_000], Scheduler::Random);
    assert!(by_chance.iter().all(|late| *late >= 300), "{:?}", by_chance.iter().min());
    assert!(
        wake_ups(1, [10, 5_000], Scheduler::Every).iter().all(|late| *late == 0),
        "no processor takes time"
    );
}

/// Catches a core that runs two tasks at once, and one that tasks of another host have to wait for.
#[test]
fn tasks_of_a_host_share_its_cores() {
    let ends = |cores, hosts: [&str; 3]| {
        let model = timed(|timing| {
            (timing.cpu, timing.cores, timing.wake_ns, timing.wake_tail_one_in) = (true, cores, 0, 0);
            timing.copy_bytes_per_us = 1_000;
        });
        value_of(Sim::new().model(model), async |net| {
            let mut tasks = Vec::new();
            for host in hosts {
                let (sender, receiver) = oneshot::channel();
                let (runtime, of_task) = (net.host(host).runtime(), net.clone());
                net.host(host).spawn(async move {
                    runtime.spend(Work::Copy { bytes: 1_000_000 });
                    let _ = sender.send(of_task.now().as_nanos() / 1_000);
                });
                tasks.push(receiver);
            }
            let mut ends = [0; 3];
            for (end, task) in ends.iter_mut().zip(tasks) {
                *end = task.await.unwrap();
            }
            ends
        })
    };
    assert_eq!(ends(0, ["a", "a", "a"]), [1_000, 1_000, 1_000]);
    assert_eq!(ends(1, ["a", "a", "a"]), [1_000, 2_000, 3_000]);
    assert_eq!(ends(2, ["a", "a", "a"]), [1_000, 1_000, 2_000]);
    assert_eq!(ends(1, ["a", "b", "a"]), [1_000, 1_000, 2_000]);
}

/// Catches tasks that wait for completions and leave their core to others, tasks that occupy one while they wait for something else, and a post
/// that leaves before the work that took longer.
#[test]
fn tasks_that_poll_have_their_share_of_the_cores() {
    // When a task of `host` has copied a megabyte beside these tasks of `a`, and when the message has left that it posts then.
    let took = |cpu, cores, [pollers, sleepers]: [usize; 2], host: &'static str| {
        let model = timed(|timing| {
            (timing.cpu, timing.cores, timing.wake_ns, timing.wake_tail_one_in) = (cpu, cores, 0, 0);
            (timing.copy_bytes_per_us, timing.poll_ns, timing.post_ns) = (1_000, 0, 0);
        });
        value_of(Sim::new().model(model), async |net| {
            for _ in 0..pollers {
                let [mut a, b] = pair(&net);
                net.host("a").spawn(async move {
                    let _ = a.completion().await;
                    drop(b);
                });
            }
            for _ in 0..sleepers {
                net.host("a").spawn(std::future::pending());
            }
            let [mut own, mut peer] =
                [host, if host == "a" { "b" } else { "a" }].map(|host| super::bare(&net, host));
            own.connect(&peer).unwrap();
            peer.recv(1, 0..8).unwrap();
            super::rest(&net, Duration::from_millis(1)).await;
            let start = net.now();
            let (sender, receiver) = oneshot::channel();
            let (runtime, of_task) = (net.host(host).runtime(), net.clone());
            net.host(host).spawn(async move {
                runtime.spend(Work::Copy { bytes: 1_000_000 });
                own.send(1, 0..8).unwrap();
                let _ = sender.send((of_task.now(), own));
            });
            peer.received().await.unwrap();
            let (copied, _own) = receiver.await.unwrap();
            let micros = |time: Time| time.since(start).as_nanos() as u64 / 1_000;
            [micros(copied), micros(net.now()) - micros(copied)]
        })
    };
    let [alone, way] = took(true, 1, [0, 0], "a");
    assert_eq!((alone, way < 10), (1_000, true), "{way}");
    assert_eq!(
        took(true, 1, [0, 3], "a")[0],
        1_000,
        "a task that waits for nothing of a device does not poll"
    );
    assert_eq!(took(true, 1, [1, 0], "a"), [2_000, way], "two pollers have one core");
    assert_eq!(took(true, 2, [1, 0], "a"), [1_000, way], "two pollers have two cores");
    assert_eq!(took(true, 2, [3, 0], "a"), [2_000, way], "four have two");
    assert_eq!(took(true, 0, [3, 0], "a"), [1_000, way], "each has a core of its own");
    assert_eq!(took(true, 1, [3, 0], "b"), [1_000, way], "another Mac has its own cores");
    assert_eq!(took(false, 1, [3, 0], "a")[0], 0, "processors take no time");
}

/// How long a message of a megabyte takes over each of these cables between `a` and `b`, all at once
fn over_cables(model: Model, cables: usize) -> Vec<u64> {
    const LEN: usize = 256 * FRAME;
    let macs = Topology::new().host("a", 3).host("b", 3);
    let topology = (0..cables).fold(macs, |macs, port| macs.cable(("a", port), ("b", port), LineRate::TB5));
    value_of(Sim::new().model(model).topology(topology), async |net| {
        let open = |host, port| net.open(host, &format!("rdma_en{}", port + 2)).unwrap();
        let pairs: Vec<_> =
            (0..cables).map(|port| Bare::pair(open("a", port), open("b", port), LEN).unwrap()).collect();
        let start = net.now();
        let transfers = pairs.into_iter().map(async |[mut a, mut b]| {
            b.recv(1, 0..LEN).unwrap();
            a.send(1, 0..LEN).unwrap();
            while b.completion().await.unwrap().opcode != Opcode::Recv {}
            net.now().since(start).as_nanos() as u64
        });
        futures::future::join_all(transfers).await
    })
}

/// Catches a bound that each port has for itself, and one that lets the ports wait for each other's whole messages.
#[test]
fn the_ports_of_a_mac_share_a_bound_or_none() {
    let [one, all] = [1, 3].map(|cables| over_cables(Model::tb5(), cables));
    assert!(all.iter().all(|took| took.abs_diff(one[0]) <= 200), "{all:?}");
    // As much as one cable carries, and half as much again.
    let bounded = over_cables(timed(|timing| timing.mac_bytes_per_us = 13_800), 3);
    let bytes = (3 * 256 * FRAME) as f64;
    for took in bounded {
        // Without the latency of the last message.
        let rate = bytes / (took - 5_800) as f64;
        assert!((13.6..13.8).contains(&rate), "{rate}");
    }
    let alone = over_cables(timed(|timing| timing.mac_bytes_per_us = 13_800), 1);
    assert!(alone[0].abs_diff(one[0]) <= 200, "{alone:?}");
}

#[test]
fn networking_takes_its_part_of_the_cable() {
    let [full, left] = [0, 20].map(|part| over_cables(timed(|timing| timing.ip_percent = part), 1)[0]);
    let ratio = left as f64 / full as f64;
    assert!((1.23..1.26).contains(&ratio), "{ratio}");
}

/// Catches turns that favour the queue pair which came last, and those that leave nothing to the others.
#[test]
fn the_first_queue_pair_takes_more_turns_if_they_are_unequal() {
    const LEN: usize = 256 * FRAME;
    let arrivals = |turns| {
        value_of(Sim::new().model(timed(|timing| timing.turns = turns)), async |net| {
            let mut pairs = [(); 2].map(|()| Bare::pair(device(&net, "a"), device(&net, "b"), LEN).unwrap());
            for [a, b] in &mut pairs {
                b.recv(1, 0..LEN).unwrap();
                a.send(1, 0..LEN).unwrap();
            }
            let start = net.now();
            let transfers = pairs.into_iter().map(async |[_a, mut b]| {
                b.completion().await.unwrap();
                net.now().since(start).as_nanos() as f64 / (256 * LineRate::TB5.frame_ns(FRAME)) as f64
            });
            futures::future::join_all(transfers).await
        })
    };
    let fair = arrivals(1);
    assert!(fair.iter().all(|took| (2.0..2.1).contains(took)), "{fair:?}");
    // Three frames for one of the other, which has the cable to itself afterwards.
    let unequal = arrivals(3);
    assert!((1.33..1.4).contains(&unequal[0]) && (2.0..2.1).contains(&unequal[1]), "{unequal:?}");
}
