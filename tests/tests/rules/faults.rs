//! What faults do that no rule's test has shown

use std::time::Duration;

use rdma_core::{Device as _, FRAME, Opcode, Status};
use rdma_sim::fault::FaultReason;
use rdma_sim::{Fault, FaultPlan, LineRate, Net, Sim, Topology};
use rdma_tests::DEVICE;

use super::{Bare, errno, happen, on_pair, pair, pair_of, passes, rest, shallow, within_a_second};
use crate::counting::Simulate;

/// How long a megabyte takes, in nanoseconds
async fn a_megabyte(net: &Net, a: &mut Bare, b: &mut Bare) -> u64 {
    let start = net.now();
    b.recv(1, 0..1 << 20).unwrap();
    a.send(1, 0..1 << 20).unwrap();
    b.received().await.unwrap();
    (net.now() - start).as_nanos() as u64
}

#[test]
fn a_slow_cable_carries_less() {
    for fault in ["slow 50%", "storm 50%"] {
        on_pair(async |net, [mut a, mut b]| {
            let fast = a_megabyte(&net, &mut a, &mut b).await;
            happen(&net, &format!("b:rdma_en2 {fault}")).await;
            let slow = a_megabyte(&net, &mut a, &mut b).await;
            let extra = 256 * LineRate::TB5.frame_ns(FRAME);
            assert!(slow.abs_diff(fast + extra) <= 200, "{fast} {slow}");
            happen(&net, "a:rdma_en2 slow 100%").await;
            assert!(a_megabyte(&net, &mut a, &mut b).await.abs_diff(fast) <= 200);
        });
    }
}

/// Catches a verb that hangs and has an effect all the same, and one that stops other tasks or other ports.
#[test]
fn a_verb_that_hangs_stops_its_task_alone() {
    let macs = Topology::new().host("a", 2).host("b", 2);
    let two = macs.cable(("a", 0), ("b", 0), LineRate::TB5).cable(("a", 1), ("b", 1), LineRate::TB5);
    Sim::new().topology(two).run(async |net| {
        happen(&net, "a:rdma_en2 hang create_cq").await;
        let of_task = net.clone();
        let (sender, receiver) = futures::channel::oneshot::channel::<()>();
        net.spawn(async move {
            let device = of_task.open("a", DEVICE).unwrap();
            let _ = device.create_cq(16);
            // A thread that stands still calls nothing more.
            let _ = device.create_cq(16);
            rest(&of_task, Duration::from_nanos(1)).await;
            drop(sender);
        });
        rest(&net, Duration::from_hours(1)).await;
        assert_eq!(net.objects().completion_queues, 0);
        let other = net.open("a", "rdma_en3").unwrap().create_cq(16).unwrap();
        assert!(futures::FutureExt::now_or_never(receiver).is_none(), "the task is in the verb");
        happen(&net, "a:rdma_en2 slow-verb create_cq=0ns").await;
        let again = net.open("a", DEVICE).unwrap().create_cq(16).unwrap();
        assert_eq!(net.objects().protection_domains, 3, "the task keeps its own");
        drop((other, again));
    });
}

/// The report of a run that is stuck names the verb's task, without polling it again.
#[test]
fn a_program_that_hangs_in_a_verb_is_stalled() {
    let error = Sim::new()
        .try_run(async |net| {
            happen(&net, "a:rdma_en2 hang alloc_pd").await;
            let _ = net.open("a", DEVICE);
            rest(&net, Duration::from_nanos(1)).await;
        })
        .unwrap_err();
    assert!(error.to_string().contains("a verb that does not return"), "{error}");
}

/// Catches a time that another thread's call is charged with: one counter for the simulation was.
#[test]
fn a_slow_verb_takes_its_time() {
    let driver = rdma_sim::Driver::new(Sim::new(), drop).unwrap();
    let device = driver.net().open("a", DEVICE).unwrap();
    driver.net().inject("at 0s a:rdma_en2 slow-verb create_cq=3s".parse().unwrap());
    driver.advance_to(rdma_core::Time::from_nanos(1));
    let (has_called, may_take) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let cq = std::thread::scope(|scope| {
        let created = scope.spawn(|| {
            let cq = device.create_cq(16).unwrap();
            has_called.wait();
            may_take.wait();
            (cq, driver.take_blocked())
        });
        has_called.wait();
        let of_this_thread = driver.take_blocked();
        may_take.wait();
        let (cq, took) = created.join().unwrap();
        assert_eq!(of_this_thread, Some(Duration::ZERO), "this thread has called nothing");
        assert_eq!(took, Some(Duration::from_secs(3)));
        cq
    });
    driver.net().inject("at 0s a:rdma_en2 hang destroy_cq".parse().unwrap());
    driver.advance_to(rdma_core::Time::from_nanos(2));
    drop(cq);
    assert_eq!(driver.take_blocked(), None, "it never returns");
    assert_eq!(driver.net().objects().completion_queues, 1);
}

/// What `verb` of posting and polling does at `bare`; whether it is refused is of no interest
fn post_or_poll(verb: &str, bare: &mut Bare) {
    match verb {
        "post_send" => bare.send(5, 0..8).unwrap(),
        "post_recv" => bare.recv(5, 0..8).unwrap(),
        _ => assert_eq!(bare.poll().unwrap().map(|completion| completion.id.0), None),
    }
}

/// Catches a post or poll that hangs and has an effect all the same, one that lets its task go on, and one that stops other tasks, other
/// ports or the clock.
#[test]
fn a_post_or_poll_that_hangs_stops_its_task_alone() {
    let macs = Topology::new().host("a", 2).host("b", 2);
    let two = macs.cable(("a", 0), ("b", 0), LineRate::TB5).cable(("a", 1), ("b", 1), LineRate::TB5);
    for verb in ["post_send", "post_recv", "poll_cq"] {
        Sim::new().topology(two.clone()).run(async |net| {
            let pair_over = |device: &str| {
                let [a, b] = ["a", "b"].map(|host| net.open(host, device).unwrap());
                Bare::pair(a, b, 1 << 16).unwrap()
            };
            let ([mut a, mut b], mut other) = (pair_over(DEVICE), pair_over("rdma_en3"));
            // The receive that the send finds, and the message that the receive finds: either would complete.
            b.recv(1, 0..8).unwrap();
            if verb == "poll_cq" {
                a.recv(1, 0..8).unwrap();
                b.send(1, 8..16).unwrap();
            }
            rest(&net, Duration::from_millis(1)).await;
            happen(&net, &format!("a:rdma_en2 hang {verb}")).await;
            let of_task = net.clone();
            let (sender, mut receiver) = futures::channel::oneshot::channel::<()>();
            net.spawn(async move {
                post_or_poll(verb, &mut a);
                // A thread that stands still calls nothing more.
                a.send(6, 64..72).unwrap();
                rest(&of_task, Duration::from_nanos(1)).await;
                drop((a, sender));
            });
            rest(&net, Duration::from_secs(1)).await;
            assert_eq!(receiver.try_recv(), Ok(None), "{verb}: the task is in the verb");
            let sent_back = u64::from(verb == "poll_cq");
            let frames = [net.cable_stats("a", DEVICE), net.cable_stats("b", DEVICE)]
                .map(|cable| cable.unwrap()[0].frames);
            assert_eq!(frames, [0, sent_back], "{verb}");
            let [from, to] = &mut other;
            assert!(passes(&net, from, to).await && passes(&net, to, from).await, "{verb}");
            drop((b, other));
        });
    }
}

/// The report of a run that is stuck in a post or poll names it, without polling the task again.
#[test]
fn a_program_that_hangs_in_a_post_or_poll_is_stalled() {
    for verb in ["post_send", "post_recv", "poll_cq"] {
        let error = Sim::new()
            .try_run(async |net| {
                let [mut a, _b] = pair(&net);
                happen(&net, &format!("a:rdma_en2 hang {verb}")).await;
                post_or_poll(verb, &mut a);
                let _ = a.completion().await;
            })
            .unwrap_err();
        assert!(error.to_string().contains("a verb that does not return"), "{verb}: {error}");
    }
}

/// Catches a time that is charged for each request of a list in one session, one that other ports or verbs are charged with, and a
/// `slow-verb …=0ns` that ends nothing.
#[test]
fn a_slow_post_or_poll_takes_its_time_once_for_each_call() {
    for verb in ["post_send", "post_recv", "poll_cq"] {
        let driver = rdma_sim::Driver::new(Sim::new(), drop).unwrap();
        let inject = |fault: &str| {
            driver.net().inject(format!("at 0s a:rdma_en2 {fault}").parse::<Fault>().unwrap());
            driver.advance_to(driver.now() + Duration::from_nanos(1));
        };
        let [mut a, mut b] = pair(driver.net());
        inject(&format!("slow-verb {verb}=3s"));
        assert_eq!(driver.take_blocked(), Some(Duration::ZERO));
        post_or_poll(verb, &mut b);
        assert_eq!(driver.take_blocked(), Some(Duration::ZERO), "{verb}: of another port");
        post_or_poll(verb, &mut a);
        assert_eq!(driver.take_blocked(), Some(Duration::from_secs(3)), "{verb}");
        let queue = a.device().create_cq(4).unwrap();
        let mut session = driver.session();
        for _ in 0..3 {
            let polled = session.poll(&queue, &mut [rdma_core::Completion::default()]);
            assert_eq!(polled, Ok(0));
        }
        assert_eq!(session.takes_time(), verb == "poll_cq");
        session.end();
        let expected = if verb == "poll_cq" { Duration::from_secs(3) } else { Duration::ZERO };
        assert_eq!(driver.take_blocked(), Some(expected), "{verb}: a session is one call");
        inject(&format!("slow-verb {verb}=0ns"));
        a.recv(9, 64..72).unwrap();
        a.send(9, 128..136).unwrap();
        a.poll().unwrap();
        assert_eq!(driver.take_blocked(), Some(Duration::ZERO), "{verb}: it is as fast as ever");
    }
}

#[test]
fn a_late_port_reports_later() {
    on_pair(async |net, [mut a, mut b]| {
        let usual = a_megabyte(&net, &mut a, &mut b).await;
        happen(&net, "b:rdma_en2 delay 3ms").await;
        let late = a_megabyte(&net, &mut a, &mut b).await;
        assert!(late.abs_diff(usual + 3_000_000) <= 200);
        assert_eq!(within_a_second(&net, &mut a).await.len(), 2, "the other port does not");
    });
}

#[test]
fn a_slow_receiver_looks_once_a_second() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "b:rdma_en2 slow-receive").await;
        for id in 0..3 {
            b.recv(id, id as usize * 8..id as usize * 8 + 8).unwrap();
            a.send(id, 0..8).unwrap();
        }
        b.received().await.unwrap();
        assert_eq!(net.now().as_nanos(), 1_000_000_000);
        assert!(b.poll().unwrap().is_some() && b.poll().unwrap().is_some(), "a whole batch at once");
    });
}

#[test]
fn lost_messages_take_no_receive() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "a:rdma_en2 lose 1").await;
        b.recv(1, 0..8).unwrap();
        a.write(0, b"one two ");
        a.send(1, 0..4).unwrap();
        a.send(2, 4..8).unwrap();
        assert_eq!(within_a_second(&net, &mut a).await, [(Opcode::Send, Status::Success); 2]);
        assert_eq!(within_a_second(&net, &mut b).await.len(), 1);
        let bytes = b.read(0..4);
        assert_eq!(bytes, *b"two ");
    });
}

#[test]
fn an_overflowing_ring_damages_the_excess() {
    shallow().simulate(async |net| {
        let [mut a, mut b] = pair_of(&net, 1, 4 * FRAME);
        b.recv(1, 0..8).unwrap();
        assert_eq!(errno(b.recv(2, 8..16)), 12);
        happen(&net, "b:rdma_en2 overflow").await;
        b.recv(2, 8..16).unwrap();
        for id in 0..2 {
            a.send(id, 16..24).unwrap();
            assert_eq!(b.received().await.unwrap().status, Status::Success);
            rest(&net, Duration::from_millis(1)).await;
        }
        let bytes = b.read(0..16);
        assert_eq!((&bytes[..8], bytes[8]), (&[0; 8][..], 0xff));
    });
}

#[test]
fn a_wedged_driver_creates_nothing() {
    on_pair(async |net, [mut a, mut b]| {
        let spare = net.open("a", DEVICE).unwrap();
        happen(&net, "a:rdma_en2 wedge").await;
        assert_eq!(errno(net.open("a", DEVICE).map_err(rdma_core::Error::from)), 16);
        assert_eq!(errno(rdma_core::Device::create_cq(&spare, 8)), 16);
        assert!(passes(&net, &mut a, &mut b).await, "existing connections continue");
    });
}

#[test]
fn faults_wait_for_their_frame() {
    let plan = "after 3 frames a:rdma_en2 corrupt 1; after 5 frames a unplug";
    let refused = plan.parse::<FaultPlan>().unwrap_err();
    let needs_port = FaultReason::NeedsPort { kind: "unplug", host: "a".to_owned() };
    assert_eq!((refused.text.as_str(), refused.reason), ("after 5 frames a unplug", needs_port));
    let plan = "after 3 frames a:rdma_en2 corrupt 1; after 5 frames a:rdma_en2 unplug";
    Sim::new().faults(plan.parse().unwrap()).simulate(async |net| {
        let [mut a, mut b] = pair(&net);
        for id in 0..6 {
            b.recv(id, id as usize * 8..id as usize * 8 + 8).unwrap();
            a.send(id, 100..108).unwrap();
        }
        let done = within_a_second(&net, &mut b).await;
        assert_eq!(
            done.iter().map(|(_, status)| *status).collect::<Vec<_>>(),
            [Status::Success; 0],
            "{done:?}"
        );
        assert_eq!(net.cable_stats("a", DEVICE).unwrap()[0].frames, 5);
    });
}

/// Regression: a fault for a number of frames that had passed already made the simulator panic.
#[test]
fn a_fault_for_frames_that_have_passed_is_due_now() {
    on_pair(async |net, [mut a, mut b]| {
        for _ in 0..3 {
            assert!(passes(&net, &mut a, &mut b).await);
        }
        net.inject("after 2 frames a:rdma_en2 corrupt 1".parse().unwrap());
        b.recv(1, 0..8).unwrap();
        a.send(1, 8..16).unwrap();
        assert_eq!(within_a_second(&net, &mut b).await, [(Opcode::Recv, Status::BadResponse)]);
        assert!(passes(&net, &mut a, &mut b).await);
    });
}
