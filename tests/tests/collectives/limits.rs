//! Groups over nodes with little memory and few places, and tasks that share a thread with a group

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use rdma_async::{NodeOptions, Time};
use rdma_collectives::{GroupError, GroupOptions, Reduction};

use crate::cluster::{Shape, cabling, connect, joined, joined_with, on_all, sim};

const PAIR: Shape = (2, &[(0, 1)]);
const IRREGULAR_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]);

/// Regression: blocks that waited for others held all memory for what a session receives, and the others did not arrive.
#[test]
fn ranks_with_little_receive_memory_do_not_wait_for_each_other() {
    let (hosts, edges) = IRREGULAR_5;
    let cabling = cabling(hosts, edges);
    // The least memory for blocks of 256 KiB: one message.
    for memory in [256 << 10, 512 << 10, 1 << 20] {
        let options = NodeOptions::new().max_message(memory).receive_memory(memory);
        for late in 0..hosts {
            sim(hosts, edges).sanitize(false).run(async |net| {
                let cluster = connect(&net, &cabling, &options).await;
                let mut groups = joined(&cluster, &cabling).await;
                on_all(&mut groups, async |rank, group| {
                    if rank == late {
                        net.sleep(Duration::from_millis(2)).await;
                    }
                    let mut vector = vec![rank as u8 + 1; 24 << 20];
                    group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
                    assert!(vector.iter().all(|sum| *sum == 15));
                })
                .await;
            });
        }
    }
}

/// Regression: an operation was over for a rank that had not queued its last messages, and the others waited for these.
#[test]
fn an_operation_that_has_ended_needs_its_rank_no_more() {
    let cabling = cabling(PAIR.0, PAIR.1);
    for places in 1..9 {
        let options = NodeOptions::new().max_in_flight_sends(places);
        // Short messages and long ones.
        for block in [8 << 10, 128 << 10] {
            sim(PAIR.0, PAIR.1).run(async |net| {
                let cluster = connect(&net, &cabling, &options).await;
                let group_options = GroupOptions::new().block_bytes(block);
                let mut groups = joined_with(group_options, &cluster, &cabling).await;
                // Nothing polls anything of rank 0 after its end.
                on_all(&mut groups, async |_, group| {
                    group.broadcast(0, &mut vec![7_u8; 7 * block]).await.unwrap();
                })
                .await;
            });
        }
    }
}

/// Regression: with one message in flight, credit that could not be sent kept the last message of a group from being queued.
#[test]
fn the_end_of_a_group_needs_no_place_of_other_messages() {
    let cabling = cabling(PAIR.0, PAIR.1);
    let options = NodeOptions::new().max_in_flight_sends(1);
    let faults = "at 5ms a:rdma_en2 unplug; at 12ms a:rdma_en2 replug".parse().unwrap();
    sim(PAIR.0, PAIR.1).faults(faults).run(async |net| {
        let cluster = connect(&net, &cabling, &options).await;
        let mut groups = joined(&cluster, &cabling).await;
        let errors = on_all(&mut groups, async |rank, group| {
            let mut vector = vec![1_u8; 32 << 20];
            if rank == 0 {
                return group.broadcast(0, &mut vector).await.unwrap_err();
            }
            // All that rank 0 may send without credit has arrived, and the credit for more finds no cable.
            net.sleep_until(Time::from_nanos(8_000_000)).await;
            let operation = Box::pin(group.broadcast(0, &mut vector));
            let pause = Box::pin(net.sleep(Duration::from_millis(1)));
            assert!(matches!(select(operation, pause).await, Either::Right(_)));
            group.end().cloned().unwrap()
        });
        assert_eq!(errors.await, vec![GroupError::Cancelled { rank: 1, sequence: 0 }; 2]);
    });
}

/// Regression: a poll combined all blocks that were there, and copied a rank's own part, while other tasks of its thread waited.
#[test]
fn a_poll_does_a_bounded_part_of_the_work() {
    let cabling = cabling(PAIR.0, PAIR.1);
    let polls = |late: bool, len: usize| {
        sim(PAIR.0, PAIR.1).run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let mut groups = joined(&cluster, &cabling).await;
            let polls = on_all(&mut groups, async |rank, group| {
                let (sent, mut received) = (vec![1_u8; len], vec![0; len]);
                if rank == 1 && late {
                    net.sleep(Duration::from_millis(5)).await;
                }
                let mut operation = pin!(group.all_to_all(&sent, &mut received));
                let (start, mut polls) = (net.now(), 0);
                // At one instant: nothing arrives between these polls.
                poll_fn(|cx| {
                    polls += usize::from(net.now() == start);
                    operation.as_mut().poll(cx)
                })
                .await
                .unwrap();
                polls
            });
            polls.await[1]
        })
    };
    // The parts for both ranks have 8 MiB; a poll copies at most 1 MiB and a block.
    assert!(polls(false, 16 << 20).value >= 8);
    // Besides, blocks for 4 MiB have arrived.
    assert!(polls(true, 16 << 20).value >= 11);
}
