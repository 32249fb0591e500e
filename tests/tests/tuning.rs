//! Goodput by size of the messages and by sends in flight, in virtual time: the table of the guide
//!
//! A change of the model or of the protocol may change it; then run the test with `UPDATE_GOLDEN=1` and commit the page.

use std::fmt::Write as _;
use std::fs;

use futures::future::join;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use rdma_sim::Sim;
use rdma_tests::files::{assert_golden, root};
use rdma_tests::{connected, options};

/// The modelled ceiling for the payload of one cable, in bytes per second
const CEILING: f64 = 9.2e9;
const SIZES: [(&str, usize); 6] = [
    ("4,032", 4032),
    ("65,536", 64 << 10),
    ("262,144", 256 << 10),
    ("1 MiB", 1 << 20),
    ("4 MiB", 4 << 20),
    ("16 MiB", 16 << 20),
];
const IN_FLIGHT: [usize; 3] = [1, 2, 8];
const PAGE: &str = "docs/guide/src/tuning.md";
const MARKS: [&str; 2] = ["<!-- goodput -->\n", "<!-- end of goodput -->\n"];

/// The part of the ceiling that messages of `len` reach with so many sends in flight
fn goodput(len: usize, in_flight: usize) -> f64 {
    // Long enough that the first message and the last one count for little.
    let count = (64_usize << 20).div_ceil(len).clamp(8 * in_flight, 4000);
    let run = Sim::new().sanitize(false).run(async |net| {
        let memory = 256 << 20;
        let options = options().max_message(16 << 20).send_memory(memory).receive_memory(memory);
        let pair = connected(&net, &options).await;
        let start = net.now();
        let sends = stream::iter(0..count).map(|_| async {
            let mut lease = pair.ab.alloc(len).await.unwrap();
            lease.resize(len, 7);
            pair.ab.send(lease).await
        });
        let send = async {
            sends.buffered(in_flight).try_for_each(async |_| Ok(())).await.unwrap();
            pair.ab.close().await.unwrap();
        };
        let receive = async {
            let mut received = 0;
            while let Some(message) = pair.ba.recv().await.unwrap() {
                received += message.len();
            }
            assert_eq!(received, count * len);
            net.now() - start
        };
        let ((), took) = join(send, receive).await;
        (count * len) as f64 / took.as_secs_f64()
    });
    run.value / CEILING
}

/// Catches goodput that no longer grows with the sends in flight, and a page with other figures than the model has.
#[test]
fn the_guide_has_the_goodput_by_size_and_sends_in_flight() {
    let mut table = String::from("| bytes of a message |");
    IN_FLIGHT.iter().for_each(|number| write!(table, " {number} in flight |").unwrap());
    table += "\n|---|";
    IN_FLIGHT.iter().for_each(|_| table += "---|");
    table += "\n";
    for (name, len) in SIZES {
        let row = IN_FLIGHT.map(|in_flight| goodput(len, in_flight));
        assert!(row[2] >= row[0] && row[2] < 1.0, "{name}: {row:?}");
        write!(table, "| {name} |").unwrap();
        row.iter().for_each(|part| write!(table, " {part:.2} |").unwrap());
        table += "\n";
    }
    let page = fs::read_to_string(root().join(PAGE)).expect("the page of the guide");
    let (before, rest) = page.split_once(MARKS[0]).expect("the page marks the table");
    let (_, after) = rest.split_once(MARKS[1]).expect("the table has an end");
    assert_golden(PAGE, &[before, MARKS[0], &table, MARKS[1], after].concat());
}
