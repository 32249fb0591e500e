//! Random verbs programs under random faults, against an oracle that knows nothing of the fabric

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
