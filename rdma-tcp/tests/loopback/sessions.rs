//! Sessions over the device

use futures::future::join_all;

use super::{connected, run, transfer};

const LENS: [usize; 20] = [
    0,
    1,
    8,
    64,
    4031,
    4032,
    4033,
    4095,
    4096,
    4097,
    8064,
    8065,
    65_536,
    68_544,
    68_545,
    300_000,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    4 << 20,
];

/// Catches messages that are cut, joined, lost, doubled or out of order at any boundary of either lane.
#[test]
fn messages_of_all_lengths_arrive_once_and_in_order() {
    run(async {
        let pair = connected().await;
        let lens: Vec<_> = LENS.into_iter().chain(LENS.into_iter().rev()).collect();
        transfer(&pair.ab, &pair.ba, &lens).await;
        pair.end().await;
    });
}

/// Catches two peers that block each other because neither reads while it writes.
#[test]
fn both_directions_carry_long_messages_at_once() {
    run(async {
        let pair = connected().await;
        let lens = [4 << 20; 12];
        futures::future::join(transfer(&pair.ab, &pair.ba, &lens), transfer(&pair.ba, &pair.ab, &lens)).await;
        pair.end().await;
    });
}

/// Catches queue pairs whose bytes mix, and a stream that stops another.
#[test]
fn streams_and_sessions_do_not_mix() {
    run(async {
        let pair = connected().await;
        let mut others = Vec::new();
        for _ in 0..4 {
            let ab = pair.ab.open().unwrap();
            let ba = pair.b.accept().await.unwrap();
            others.push((ab, ba));
        }
        let lens = [64, 100_000, 4096, 1 << 20, 0, 30_000];
        let transfers = others.iter().map(|(ab, ba)| transfer(ab, ba, &lens));
        join_all(transfers).await;
        let back = others.iter().map(|(ab, ba)| transfer(ba, ab, &lens));
        join_all(back).await;
        drop(others);
        pair.end().await;
    });
}

/// 1 GiB in release, 64 MiB otherwise. Catches a transfer that stalls once buffers of the system are full.
#[test]
fn a_long_transfer_ends() {
    let count = if cfg!(debug_assertions) { 16 } else { 256 };
    run(async {
        let pair = connected().await;
        transfer(&pair.ab, &pair.ba, &vec![4 << 20; count]).await;
        let counts = pair.ba.snapshot().paths[0].counts;
        assert_eq!((counts.made, counts.retransmitted_bytes()), (1, 0), "nothing was sent again");
        pair.end().await;
    });
}

/// Catches frames that are dropped because they overtake the receives for them: each message would wait for a timeout.
#[test]
fn short_messages_are_not_sent_again() {
    run(async {
        let pair = connected().await;
        transfer(&pair.ab, &pair.ba, &[64; 5000]).await;
        transfer(&pair.ba, &pair.ab, &[64; 5000]).await;
        for session in [&pair.ab, &pair.ba] {
            let counts = session.snapshot().paths[0].counts;
            assert_eq!((counts.made, counts.eager.lost), (1, 0));
        }
        pair.end().await;
    });
}
