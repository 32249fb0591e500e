//! Operations where processors take time

use std::time::Duration;

use rdma_collectives::Reduction;
use rdma_sim::{Model, Timing};
use rdma_tests::options;

use crate::cluster::{cabling, connect, joined, on_all, sim};

const BYTES: usize = 4 << 20;

/// How long two ranks sum a vector, or one sends it to the other, with processors of which all but this is free
fn time_of(sums: bool, change: impl FnOnce(&mut Timing)) -> Duration {
    let mut model = Model::tb5();
    let Timing { doorbell_ns, per_message_ns, propagation_ns, delivery_ns, send_completion_ns, .. } =
        model.timing;
    model.timing = Timing::INSTANT;
    let timing = &mut model.timing;
    (timing.doorbell_ns, timing.per_message_ns, timing.propagation_ns) =
        (doorbell_ns, per_message_ns, propagation_ns);
    (timing.delivery_ns, timing.send_completion_ns, timing.line_rate) =
        (delivery_ns, send_completion_ns, true);
    timing.cpu = true;
    change(timing);
    time_under(model, sums)
}

fn time_under(model: Model, sums: bool) -> Duration {
    let edges = &[(0, 1)];
    let cabling = cabling(2, edges);
    let run = sim(2, edges).sanitize(false).model(model).run(async |net| {
        let cluster = connect(&net, &cabling, &options()).await;
        let mut groups = joined(&cluster, &cabling).await;
        on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
        net.sleep(Duration::from_millis(1)).await;
        let start = net.now();
        on_all(&mut groups, async |_, group| {
            let mut vector = vec![1_f32; BYTES / 4];
            match sums {
                true => group.all_reduce(&mut vector, Reduction::Sum).await.unwrap(),
                false => group.broadcast(0, &mut vector).await.unwrap(),
            }
        })
        .await;
        net.now().since(start)
    });
    run.value
}

/// Catches a copy or a reduction that a group does not state, or states as the other.
#[test]
fn a_sum_takes_as_long_as_its_additions_and_copies() {
    let free = time_of(true, |_| ());
    // One byte in a nanosecond: slower than the cable. Both ranks run on the task of the test, one after the other.
    let adding = time_of(true, |timing| timing.reduce_bytes_per_us = 1_000);
    let copying = time_of(true, |timing| timing.copy_bytes_per_us = 1_000);
    let once = Duration::from_nanos(BYTES as u64).as_secs_f64();
    // Each byte is added once, by one of the two.
    let added = adding.as_secs_f64() / once;
    assert!((1.0..1.1).contains(&added), "{added} of {adding:?}, {free:?} without");
    let copied = copying.as_secs_f64() / once;
    // Out to the rank that adds it, and from there out and into the vector.
    assert!((3.0..3.1).contains(&copied), "{copied} of {copying:?}, {free:?} without");
    let broadcast = |adds_per_us| time_of(false, |timing| timing.reduce_bytes_per_us = adds_per_us);
    assert_eq!(broadcast(0), broadcast(1), "nothing is added");
}

/// Catches a profile under which sessions do not work, or whose costs they do not have.
#[test]
fn groups_run_on_the_profile_with_processors() {
    let [wire, all] = [Model::tb5(), Model::tb5_cpu()].map(|model| time_under(model, true));
    // Both ranks on one core: one addition and three copies of each byte, at 25 bytes in a nanosecond, beside the wire.
    let work = Duration::from_nanos(4 * BYTES as u64 / 25);
    assert!(
        all > wire.max(work) && all < wire + work * 3 / 2,
        "{all:?}; the wire {wire:?}, the work {work:?}"
    );
}
