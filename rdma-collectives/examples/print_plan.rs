//! Prints the plan of an all_reduce over a ring of four hosts with one cable across, and what the verifier finds

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::error::Error;

use rdma_collectives::{AllReducePlans, Cabling, Costs, Operation, all_reduce, unplugs, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)];
    let cabling = Cabling::of_pairs(4, pairs, 9_200_000_000).with_latency(7_000);
    let plan = all_reduce(&cabling)?;
    print!("{plan}");
    println!("above the bound by a factor of at most {}", verify(&cabling, &plan)?);
    for unplug in unplugs(&cabling, &Operation::AllReduce)? {
        let unplug = unplug?;
        let [left, right] = cabling.cables()[unplug.cable].ends.map(|end| &cabling.hosts()[end]);
        let time = unplug.without.map_or_else(|| "hosts are apart".to_owned(), |time| time.to_string());
        println!("without {left}-{right}: {time}");
    }
    let plans = AllReducePlans::new(&cabling)?;
    for bytes in [1 << 10, 64 << 10, 1 << 20, 16 << 20, 1 << 30] {
        let (algorithm, prediction) = plans.choose(&cabling, bytes, Costs { block_ns: 500 })?;
        let share = prediction.lower_bound / prediction.seconds * 100.0;
        println!(
            "{bytes:>10} bytes: {algorithm:?}, {:.1} us, {share:.0} % of the bound",
            prediction.seconds * 1e6
        );
    }
    Ok(())
}
