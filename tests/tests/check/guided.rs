//! Checks that vary runs which have reached something new, and their folders

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_core::{Time, state};
use rdma_sim::{Check, FaultKind, FaultPlan, Net, RandomFaults, Replay, Scheduler, Trigger, try_check};

/// Fails only after twelve choices of one in four, one after another: once in 16 million runs, by chance
async fn ladder(net: Net) {
    for step in 0..12_u32 {
        state!("step", step);
        if net.pick(4) != 1 {
            return;
        }
    }
    panic!("the top is reached");
}

#[test]
fn a_guided_check_climbs_where_chance_does_not() {
    let check = || Check::new().name("ladder").runs(5_000).scheduler(Scheduler::Fifo);
    assert!(try_check(check(), ladder).is_ok(), "by chance, the top is out of reach");
    let failure = try_check(check().guided(), ladder).expect_err("step by step, it is not");
    assert_eq!(failure.reason, "the top is reached");
    let again = try_check(check().replay(failure.replay.line().parse().unwrap()), ladder).unwrap_err();
    assert_eq!(again.reason, failure.reason);
}

/// Catches variations that add the faults of two runs, and that begin faults after the time which was given for them.
#[test]
fn variations_have_no_more_and_no_later_faults_than_were_asked_for() {
    let horizon = Duration::from_millis(1);
    let kinds = [FaultKind::Lose { frames: 1 }, FaultKind::LeakPds { count: 1 }];
    let faults = RandomFaults::up_to(3).kinds(kinds).within(horizon);
    let plan: FaultPlan = "at 9ms a:rdma_en2 unplug".parse().unwrap();
    let most = Mutex::new([0; 4]);
    let check = Check::new().runs(2000).random_faults(faults).faults(plan.clone()).guided();
    try_check(check, async |net: Net| {
        let faults = net.faults().clone();
        assert_eq!(faults.0[0], plan.0[0], "the plan is in all runs");
        let count = faults.0.len() - 1;
        most.lock().unwrap()[count] += 1;
        for fault in &faults.0[1..] {
            let is_early = match fault.trigger {
                Trigger::At(time) => time <= Time::ZERO + horizon,
                _ => true,
            };
            assert!(is_early, "{fault}");
        }
        for _ in 0..10 {
            net.sleep(Duration::from_micros(300)).await;
            let _ = net.open("a", "rdma_en2");
            state!("opened", net.pick(3));
        }
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let most = most.into_inner().unwrap();
    assert!(most.iter().all(|runs| *runs > 100), "runs by their number of faults: {most:?}");
}

#[test]
fn the_runs_of_a_corpus_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.replay", "2 seed=77 scheduler=random\n");
    write("b.replay", "RDMA_SIM_REPLAY='2 seed=5 branch=0:99 scheduler=random'\n");
    write("README.md", "not a run");
    let seen = Mutex::new(Vec::new());
    let one = std::num::NonZeroUsize::MIN;
    let check = Check::new().name("corpus").runs(2).threads(one).corpus(folder.path());
    try_check(check, async |net: Net| seen.lock().unwrap().push(net.seed().unwrap())).unwrap();
    assert_eq!(seen.into_inner().unwrap()[..3], [0, 77, 5], "the plain run, and those of the files by name");
}

#[test]
fn a_file_of_a_corpus_that_is_no_replay_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("old.replay"), "1 seed=3").unwrap();
    let check = Check::new().runs(1).corpus(folder.path());
    let panic = std::panic::catch_unwind(|| try_check(check, async |_| ())).unwrap_err();
    let text = *panic.downcast::<String>().unwrap();
    assert!(text.contains("old.replay cannot be replayed: the replay has version \"1\""), "{text}");
    assert!(text.contains("; check once with RDMA_SIM_UPDATE_CORPUS=1 to replace the file"), "{text}");
}

/// Catches faults of a file that are replaced by those of the check, or dropped, and files of other settings that are taken.
#[test]
fn a_run_of_a_corpus_has_its_own_faults_or_is_refused_as_stale() {
    let folder = tempfile::tempdir().unwrap();
    let line = "2 seed=5 faults=at 9ms a:rdma_en2 slow 50%; at 900ms b kill; at 950ms b restart";
    std::fs::write(folder.path().join("a.replay"), line).unwrap();
    let check = |plan: &str, kinds: &[FaultKind]| {
        let random = RandomFaults::up_to(1).kinds(kinds.to_vec()).at(["b"]).within(Duration::from_millis(1));
        let check = Check::new().runs(40).scheduler(Scheduler::Fifo).random_faults(random);
        check.faults(plan.parse().unwrap()).corpus(folder.path())
    };
    let seen = Mutex::new(Vec::new());
    let test = async |net: Net| {
        state!("begun");
        seen.lock().unwrap().push(net.faults().to_string());
    };
    let plan = "at 9ms a:rdma_en2 slow 50%";
    try_check(check(plan, &[FaultKind::Kill]), test).unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(
        seen.iter().any(|faults| line.ends_with(faults)),
        "its own, although they begin later than others"
    );
    assert!(seen.iter().all(|faults| faults.starts_with(plan)), "{seen:?}");
    for (plan, kinds) in [("at 8ms a:rdma_en2 slow 50%", FaultKind::Kill), (plan, FaultKind::Pause)] {
        let panic = std::panic::catch_unwind(|| try_check(check(plan, &[kinds]), async |_| ())).unwrap_err();
        let text = *panic.downcast::<String>().unwrap();
        assert!(text.contains("a.replay is stale") && text.contains("RDMA_SIM_UPDATE_CORPUS=1"), "{text}");
    }
}

/// A service whose process writes down that it takes over, and that it has: each death in between is one more that was not orderly
async fn take_over(net: Net, slots: u32) {
    let world = (net.clone(), Arc::new(AtomicU32::new(0)));
    net.host("b").start(move |_| {
        let (net, deaths) = world.clone();
        async move {
            loop {
                let before = deaths.fetch_add(1, Ordering::Relaxed);
                state!("taking over, after deaths", before.min(4));
                assert!(before < slots, "no slot is left");
                net.sleep(Duration::from_micros(30)).await;
                deaths.store(before, Ordering::Relaxed);
                net.sleep(Duration::from_micros(400)).await;
            }
        }
    });
    net.sleep(Duration::from_millis(4)).await;
}

/// `RDMA_SIM_UPDATE_CORPUS=1 RDMA_SIM_RUNS=5000 cargo test -p rdma-tests --test check committed` writes its folder anew.
fn take_overs() -> Check {
    let faults = RandomFaults::up_to(5).kinds([FaultKind::Kill]).at(["b"]).within(Duration::from_millis(3));
    Check::new().name("take_over").scheduler(Scheduler::Fifo).random_faults(faults)
}

/// Catches a folder that is not read.
#[test]
fn the_runs_of_a_committed_corpus_reach_what_they_were_kept_for() {
    let folder = "corpora/take_over";
    let last = "state taking over, after deaths = 4";
    let runs = |check: Check| {
        let report = try_check(check.runs(1), async |net| take_over(net, u32::MAX).await);
        report.unwrap_or_else(|failure| panic!("{failure}"))
    };
    let report = runs(take_overs().corpus(folder));
    let files = std::fs::read_dir(folder).unwrap().count() as u64;
    assert!((1..=8).contains(&files), "small enough to be looked at");
    assert!(report.covered.contains_key(last), "{report:#}");
    if std::env::var_os("RDMA_SIM_RUNS").is_none() {
        assert_eq!(report.runs, 2 + files, "the plain run, those of the files, and one seed");
        assert!(!runs(take_overs()).covered.contains_key(last), "the files make the difference");
    }
    // A mistake that comes later is found at once.
    let failure = try_check(take_overs().runs(1).corpus(folder), async |net| take_over(net, 4).await);
    let failure = failure.expect_err("the files lead to it");
    assert_eq!(failure.reason, "no slot is left");
    assert!(failure.tried <= 1 + files, "{failure}");
}

/// Where the test below writes
const FOLDER: &str = "RDMA_TEST_CORPUS";

#[test]
#[ignore = "another test starts it, with a folder"]
fn writes_a_corpus() {
    let folder = std::env::var_os(FOLDER).expect("another test starts this one");
    let check = Check::new().name("written").runs(300).scheduler(Scheduler::Fifo).corpus(Path::new(&folder));
    try_check(check, async |net: Net| {
        for step in 0..4_u32 {
            state!("step", step);
            if net.pick(4) != 1 {
                return;
            }
        }
    })
    .unwrap();
}

#[test]
fn a_corpus_is_written_when_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs");
    let run = |updates: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["guided::writes_a_corpus", "--exact", "--ignored"]);
        let status =
            command.env(FOLDER, &path).env("RDMA_SIM_UPDATE_CORPUS", updates).output().unwrap().status;
        assert!(status.success());
        std::fs::read_dir(&path).map_or(0, Iterator::count)
    };
    assert_eq!(run("0"), 0, "nothing is written unasked");
    let count = run("1");
    assert!(
        (1..=2).contains(&count),
        "{count} runs suffice for four states, each of which follows another one"
    );
    for entry in std::fs::read_dir(&path).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(text.parse::<Replay>().unwrap().test, "written");
    }
    assert_eq!(run("1"), count, "what is known is not written again");
    let stale = path.join("stale.replay");
    std::fs::write(&stale, "2 test=written seed=1 faults=at 1ms b kill").unwrap();
    assert_eq!(run("1"), count, "a stale file is removed");
    assert!(!stale.exists());
}
