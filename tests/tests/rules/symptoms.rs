//! Field failures of unknown cause: for each, a test shows that faults and rules of the model reproduce the reported symptom

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::Session;
use rdma_bare::BareQp;
use rdma_core::{
    Access, Device as _, FRAME, MemoryRegion as _, Opcode, PortState, QpInit, QueuePair as _, SendOp, Sge,
    Status,
};
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{DEVICE, Raw, connect, connected, message, nodes, options};

use super::{Bare, bare, errno, happen, on_pair, pair, pair_of, passes, rest, within_a_second};
use crate::counting::Simulate;

/// Sends these messages one after another, and returns which of them arrive as they were sent
async fn arrive(from: &Session<SimDevice>, to: &Session<SimDevice>, lens: &[usize]) -> Vec<bool> {
    let send = join_all(lens.iter().enumerate().map(|(number, &len)| {
        let from = from.clone();
        async move { from.send_bytes(&message(number, len)).await.unwrap() }
    }));
    let receive = async {
        let mut right = Vec::new();
        for (number, &len) in lens.iter().enumerate() {
            let got = to.recv().await.unwrap().unwrap();
            right.push(*got == message(number, len));
        }
        right
    };
    join(send, receive).await.1
}

/// F41: prompts above 2000 tokens gave wrong results, and single tokens right ones (mlx#4342, exo#2270). A damaged frame shows the same to a
/// program that ignores the status: one byte of a long message is wrong, its length is right, and short messages are whole.
#[test]
fn a_long_message_is_wrong_for_a_program_that_ignores_its_status_and_short_ones_are_right() {
    const LONG: usize = 256 * FRAME;
    on_pair(async |net, _| {
        let [mut a, mut b] = pair_of(&net, 1023, LONG);
        a.write(0, &message(0, LONG));
        happen(&net, "a:rdma_en2 corrupt 1").await;
        for (len, wrong) in [(LONG, 1), (FRAME, 0), (8, 0)] {
            b.recv(1, 0..len).unwrap();
            a.send(1, 0..len).unwrap();
            let done = b.received().await.unwrap();
            assert_eq!((done.byte_len as usize, done.status == Status::Success), (len, wrong == 0));
            let differ =
                b.read(0..len).iter().zip(message(0, LONG)).filter(|(got, sent)| *got != sent).count();
            assert_eq!(differ, wrong, "{len}");
        }
    });
    Sim::new().simulate(async |net| {
        let nodes = connected(&net, &options()).await;
        happen(&net, "a:rdma_en2 corrupt 3").await;
        assert_eq!(arrive(&nodes.ab, &nodes.ba, &[LONG, FRAME, 8, LONG]).await, [true; 4]);
    });
}

/// F70: 32 and more requests at once left an all_gather of exo waiting (exo#2108). A program that posts further receives only when its sends
/// have completed shows the same: one request more than both sides have receives for, and no send completes that could lead to another receive.
#[test]
fn one_request_more_than_there_are_receives_leaves_both_sides_waiting() {
    const RECEIVES: u64 = 31;
    /// How many sends of each side complete, and whether the port says that something is wrong
    async fn sends_that_complete(net: &Net, requests: u64) -> [usize; 2] {
        let mut sides = pair_of(net, 127, 1 << 20);
        let at = |number: u64| number as usize * 64..number as usize * 64 + 8;
        for side in &mut sides {
            (0..RECEIVES).for_each(|number| side.recv(number, at(number)).unwrap());
        }
        for side in &mut sides {
            (0..requests).for_each(|number| side.send(number, at(1_000 + number)).unwrap());
        }
        let mut completed = [0; 2];
        for (side, completed) in sides.iter_mut().zip(&mut completed) {
            let done = within_a_second(net, side).await;
            assert!(done.iter().all(|(_, status)| *status == Status::Success), "no error is reported");
            *completed = done.iter().filter(|(opcode, _)| *opcode == Opcode::Send).count();
        }
        rest(net, Duration::from_mins(10)).await;
        for side in &mut sides {
            assert_eq!(within_a_second(net, side).await, [], "nothing moves any more");
            assert_eq!(side.device().port().unwrap().state, PortState::Active);
        }
        if requests > RECEIVES {
            // One receive on either side ends it there.
            let [a, b] = &mut sides;
            b.recv(99, at(99)).unwrap();
            assert_eq!(within_a_second(net, a).await, [(Opcode::Send, Status::Success)]);
        }
        completed
    }
    Sim::new().simulate(async |net| {
        assert_eq!(sends_that_complete(&net, 31).await, [31, 31]);
        assert_eq!(sends_that_complete(&net, 32).await, [31, 31]);
    });
    Sim::new().simulate(async |net| {
        let nodes = connected(&net, &options()).await;
        let both =
            join(arrive(&nodes.ab, &nodes.ba, &[30_000; 100]), arrive(&nodes.ba, &nodes.ab, &[30_000; 100]));
        let (ab, ba) = both.await;
        assert!(
            ab.iter().chain(&ba).all(|right| *right),
            "sessions post receives also while their sends wait"
        );
    });
}

/// F71: a broadcast of more than 400 GB stood still unless all Macs had been restarted before. Queue pairs that die after a number of frames, and
/// spoil their ports, show the same: posts are accepted and complete nothing, no new queue pair connects, and after a restart all is well.
#[test]
fn a_broadcast_stands_still_after_some_frames_until_a_restart() {
    const LEN: usize = 64 * FRAME;
    const ROUNDS: usize = 40;
    /// Rounds of a broadcast from `a` to two others that arrive everywhere
    async fn broadcast(net: &Net, links: &mut [[Bare; 2]; 2]) -> usize {
        for round in 0..ROUNDS {
            for [root, leaf] in &mut *links {
                leaf.recv(1, 0..LEN).unwrap();
                root.send(1, 0..LEN).unwrap();
            }
            for [root, leaf] in &mut *links {
                let arrived = within_a_second(net, leaf).await.len();
                if arrived + within_a_second(net, root).await.len() < 2 {
                    return round;
                }
            }
        }
        ROUNDS
    }
    let macs = Topology::new().host("a", 2).host("b", 1).host("c", 1);
    let star = macs.cable(("a", 0), ("b", 0), LineRate::TB5).cable(("a", 1), ("c", 0), LineRate::TB5);
    let connect_all = |net: &Net| {
        [("b", "rdma_en2"), ("c", "rdma_en3")].map(|(leaf, port)| {
            let open = |host, port| net.open(host, port).unwrap();
            BareQp::pair(open("a", port), open(leaf, DEVICE), LEN).map_err(|error| error.errno())
        })
    };
    let mut model = Model::tb5();
    model.rules.idle_death_spoils = true;
    let plan = "after 1000 frames a:rdma_en2 idle-death".parse().unwrap();
    Sim::new().model(model).topology(star).faults(plan).simulate(async |net| {
        let mut links = connect_all(&net).map(Result::unwrap);
        assert_eq!(broadcast(&net, &mut links).await, 15, "a thousand frames are 15 rounds of 64 and a part");
        rest(&net, Duration::from_mins(10)).await;
        for bare in links.iter_mut().flatten() {
            assert_eq!(bare.device().port().unwrap().state, PortState::Active, "no port says why");
        }
        assert_eq!(within_a_second(&net, &mut links[0][0]).await, [], "nor does a completion");
        drop(links);
        let [first, second] = connect_all(&net).map(|link| link.err());
        assert_eq!((first, second), (Some(22), None), "the program that is started again fails");
        for host in ["a", "b", "c"] {
            happen(&net, &format!("{host} reboot 30s")).await;
        }
        rest(&net, Duration::from_mins(1)).await;
        let mut links = connect_all(&net).map(Result::unwrap);
        assert_eq!(broadcast(&net, &mut links).await, ROUNDS, "after a restart it arrives");
    });
}

/// Source: hellas PR 44: after a Linux peer had drained its queues by force, no later session with the Mac moved. How the credits of the Mac are
/// spoilt is not known. A port whose messages are all lost shows the same: queue pairs connect, posts are accepted, and no receive completes.
#[test]
fn no_later_session_moves_after_a_port_has_lost_its_credits() {
    let lose_all = async |net: &Net| {
        for host in ["a", "b"] {
            happen(net, &format!("{host}:rdma_en2 lose {}", u32::MAX)).await;
        }
    };
    on_pair(async |net, [mut a, mut b]| {
        assert!(passes(&net, &mut a, &mut b).await);
        lose_all(&net).await;
        drop((a, b));
        for _ in 0..3 {
            let [mut a, mut b] = pair(&net);
            assert!(!passes(&net, &mut a, &mut b).await && !passes(&net, &mut b, &mut a).await);
            rest(&net, Duration::from_mins(10)).await;
            assert_eq!(
                within_a_second(&net, &mut b).await,
                [(Opcode::Send, Status::Success)],
                "no error is reported"
            );
            assert_eq!(b.device().port().unwrap().state, PortState::Active);
        }
    });
    Sim::new().simulate(async |net| {
        lose_all(&net).await;
        let (a, b) = nodes(&net, &options());
        let start = net.now();
        assert!(connect(&a, &b).await.is_err(), "a session says that no path moves, instead of waiting");
        assert!(net.now().since(start) < Duration::from_mins(1));
    });
}

/// Source: mesh-flow: a receive ended with status 4, unmapping its memory failed, and the next transition to RTR failed with 16. What begins the
/// chain is not known, and no deregistration reports an error here. Its links show in that order: memory that was registered late, regions that
/// stay counted although they were deregistered, and a receive queue that is taken.
#[test]
fn a_protection_error_is_followed_by_mappings_that_stay_and_a_busy_port() {
    Sim::new().simulate(async |net| {
        let [a, mut b] = Raw::pair(&net, &QpInit::with_frames(63), Access::LOCAL_WRITE, 1 << 17);
        let late = b.register_again(Access::LOCAL_WRITE).unwrap();
        b.recv(1, &[Sge { addr: late.base(), len: 4, lkey: late.lkey() }]).unwrap();
        a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
        assert_eq!(b.completion().await.status.code(), 4);

        happen(&net, "b:rdma_en2 leak-mrs 99").await;
        drop(late);
        b.region = None;
        b.region = Some(b.register_again(Access::LOCAL_WRITE).unwrap());
        assert_eq!(errno(b.register_again(Access::LOCAL_WRITE)), 12, "regions that are gone are counted");

        happen(&net, "b:rdma_en2 busy").await;
        drop((a, b));
        let [a, b] = ["a", "b"].map(|host| bare(&net, host));
        assert_eq!(errno(b.qp().connect(&a.qp().address())), 16, "and the next session does not connect");
    });
}
