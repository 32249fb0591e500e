//! Random verbs programs under random faults, against an oracle that knows nothing of the fabric
//!
//! Mutants of the fabric that this test has caught: a credit off by one, receives that end in another order, a completion
//! lost, a completion twice, a stalled sender that is not woken by a receive, the byte count of the last piece only, a piece
//! that lands one frame late, a receive queue that leaks frames, a frame mismatch that goes unnoticed, the rest of a split
//! message that passes for whole, a capacity off by one, a doorbell lost while the transmitter is busy, a queue pair that
//! stays in the round.

use rdma_sim::Seeded;
use rdma_tests::oracle::Program;

fn program(seed: u64) -> Program {
    Program::generate(&mut Seeded::new(seed))
}

#[test]
fn ten_thousand_programs_end_as_the_oracle_says() {
    let mut completions = 0;
    for seed in 0..10_000 {
        let outcome = program(seed).run(seed);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}\n{:?}", outcome.violations, program(seed));
        completions += outcome.completions;
    }
    assert!(completions > 100_000, "only {completions} completions: the programs prove little");
}
