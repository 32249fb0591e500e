//! Ranks behind a relay that changes their messages: a rank of another version, or one with a defect

use std::cell::RefCell;
use std::time::Duration;

use futures::future::{Either, join, join_all, select};
use rdma_async::{NodeOptions, Priority, Session, Stream};
use rdma_collectives::{Cabling, Group, GroupError, Reduction};
use rdma_sim::SimDevice;

use crate::cluster::{RATE, Shape, cabling, connect, on_all, sim};

/// The host in the middle is the relay.
const RELAYED: Shape = (3, &[(0, 1), (1, 2)]);
/// The number of a stream of a link, in the order in which they are opened
const DATA: usize = 0;
const CREDIT: usize = 1;
const RELAY: usize = 3;
/// Where the sequence number of an operation stands in its messages
const SEQUENCE: usize = 20;
/// Where its number stands in a message of an operation
const NUMBER: std::ops::Range<usize> = 28..32;

/// A message on its way
struct Passing {
    /// The rank that sent it
    from: usize,
    stream: usize,
    /// Its number in the stream and direction; the first two of the data are the greeting, and that of the meeting of all ranks
    number: usize,
    bytes: Vec<u8>,
}

/// Becomes these messages
type Change<'a> = &'a dyn Fn(Passing) -> Vec<Vec<u8>>;

/// Passes messages on; `packets` are what rank 0 receives first on its stream of what is relayed
async fn relay(left: Session<SimDevice>, right: Session<SimDevice>, packets: &[Vec<u8>], change: Change<'_>) {
    let mut streams = Vec::new();
    for stream in 0..4 {
        let opened = left.accept_stream().await.unwrap().expect("rank 0 opens four streams");
        streams.push((stream, opened, right.open_stream(Priority::Normal).await.unwrap()));
    }
    for packet in packets {
        let (_, to_rank_0, _) = &streams[RELAY];
        to_rank_0.send_bytes(packet).await.unwrap();
    }
    let pass = async |from: usize, stream: usize, source: &Stream<SimDevice>, target: &Stream<SimDevice>| {
        let mut number = 0;
        while let Ok(Some(message)) = source.recv().await {
            for message in change(Passing { from, stream, number, bytes: message.to_vec() }) {
                // Fails when the rank has its error.
                let _ = target.send_bytes(&message).await;
            }
            number += 1;
        }
        target.finish();
    };
    let pass = &pass;
    let both = streams.iter().map(async |(stream, left, right)| {
        join(pass(0, *stream, left, right), pass(1, *stream, right, left)).await;
    });
    join_all(both).await;
}

/// The errors of two ranks that carry out operations while messages between them are changed
fn errors(change: Change<'_>) -> Vec<GroupError> {
    errors_after(&[], change)
}

/// As [`errors`], where rank 0 receives these packets first
fn errors_after(packets: &[Vec<u8>], change: Change<'_>) -> Vec<GroupError> {
    let pair = Cabling::line(2, RATE);
    let relayed = cabling(RELAYED.0, RELAYED.1);
    sim(RELAYED.0, RELAYED.1)
        .run(async |net| {
            let mut cluster = connect(&net, &relayed, &NodeOptions::new()).await;
            let [(_, left), (_, right)] = cluster.sessions[1].clone().try_into().expect("two sessions");
            let (_, a) = cluster.sessions[0].remove(0);
            let (_, b) = cluster.sessions[2].remove(0);
            let work = async {
                let joins = join(Group::join(0, &pair, [(1, a)]), Group::join(1, &pair, [(0, b)]));
                let (a, b) = joins.await;
                on_all(&mut [a.unwrap(), b.unwrap()], async |_, group| {
                    loop {
                        let mut vector = vec![1_u8; 6 << 20];
                        if let Err(error) = group.reduce(1, &mut vector, Reduction::Sum).await {
                            return error;
                        }
                    }
                })
                .await
            };
            let relays = async {
                relay(left, right, packets, change).await;
                net.sleep(Duration::from_secs(1)).await;
            };
            match select(Box::pin(work), Box::pin(relays)).await {
                Either::Left((errors, _)) => errors,
                Either::Right(_) => panic!("the ranks wait for ever"),
            }
        })
        .value
}

/// Regression: a message of the next operation before the end of this one was kept, and the operation waited for ever; one of the
/// operation before was an error that blamed the caller; credit that is not needed and unknown messages were ignored.
#[test]
fn messages_that_do_not_belong_to_the_operation_are_errors() {
    type Edit = fn(&mut Vec<u8>);
    let next: Edit = |message| message[SEQUENCE] += 1;
    let next_credit: Edit = |message| message[0] += 1;
    let other_channel: Edit = |message| message[4] ^= 2;
    let short: Edit = |message| message.truncate(message.len() / 2);
    let more: Edit = |message| message[7] = 100;
    for (from, stream, number, edit, name) in [
        (0, DATA, 2, next, "the first message has the number of the next operation"),
        (0, DATA, 4, next, "a later message has the number of the next operation"),
        (0, DATA, 3, short, "a short block"),
        (1, CREDIT, 0, next_credit, "credit for the next operation"),
        (1, CREDIT, 0, other_channel, "credit for a channel that does not exist"),
        (1, CREDIT, 0, short, "half of a credit"),
        (1, CREDIT, 0, more, "more credit than there are blocks"),
    ] {
        let found = errors(&|mut passing| {
            if (passing.from, passing.stream, passing.number) == (from, stream, number) {
                edit(&mut passing.bytes);
            }
            vec![passing.bytes]
        });
        assert_eq!(found, vec![GroupError::Protocol { rank: from, sequence: 0 }; 2], "{name}");
    }

    // The last block of the first operation comes again in the place of the first one of the second operation.
    let last = RefCell::new(Some(Vec::new()));
    let again = errors(&|Passing { from, stream, number, bytes }| {
        let is_block = (from, stream) == (0, DATA) && number > 1;
        let is_first = is_block && bytes[SEQUENCE] == 1;
        let last = &mut *last.borrow_mut();
        match last {
            Some(last) if is_block && !is_first => last.clone_from(&bytes),
            _ => (),
        }
        match last.take_if(|_| is_first) {
            Some(mut again) => {
                again[NUMBER].copy_from_slice(&bytes[NUMBER]);
                vec![again]
            }
            None => vec![bytes],
        }
    });
    assert_eq!(again, vec![GroupError::Protocol { rank: 0, sequence: 1 }; 2]);
}

/// Regression: a rank had no memory for a packet that it passed on as it came, and its task panicked.
#[test]
fn packets_that_no_rank_makes_are_dropped() {
    // Its header: kind, purpose, from, to, and numbers.
    let packet = |kind: u8, [from, to]: [u8; 2], tail: &[u8]| {
        let mut bytes = vec![0; 20];
        (bytes[0], bytes[2], bytes[4]) = (kind, from, to);
        bytes[6] = 1;
        [&bytes, tail].concat()
    };
    let long = vec![0; 100_000];
    // Rank 0 would pass them on to rank 1. The sets of the last ones have a rank twice, and one that is no neighbour.
    let packets = [
        packet(1, [0, 1], &long),
        packet(2, [0, 1], &long),
        packet(0, [1, 0], &long),
        packet(0, [1, 0], &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        packet(0, [1, 0], &[2, 0, 0, 0, 9, 0, 0, 0, 0, 0]),
    ];
    let found = errors_after(&packets, &|mut passing| {
        let is_late = (passing.from, passing.stream, passing.number) == (0, DATA, 100);
        if is_late {
            passing.bytes[SEQUENCE] += 1;
        }
        vec![passing.bytes]
    });
    assert!(
        matches!(found[..], [GroupError::Protocol { rank: 0, .. }, GroupError::Protocol { rank: 0, .. }]),
        "{found:?}"
    );
}
