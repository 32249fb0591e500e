//! Which random faults the runs of a check get, and when those fire that wait for frames

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use rdma_core::{Access, Completion, CompletionQueue as _, QpInit, QpType, SendOp, Time};
use rdma_sim::{
    Check, FailureKind, FaultKind, Net, RandomFaults, RecordKind, Replay, Scheduler, Sim, Trigger, try_check,
};
use rdma_tests::Raw;

fn pass(check: Check, test: impl AsyncFn(Net) + Sync) {
    try_check(check, test).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Catches runs that all draw from all kinds: with twenty faults of four kinds, one run in eighty would have fewer.
#[test]
fn half_of_the_runs_draw_from_a_subset_of_the_kinds() {
    let kinds = [
        FaultKind::Corrupt { frames: 1 },
        FaultKind::IdleDeath,
        FaultKind::LeakPds { count: 1 },
        FaultKind::Lose { frames: 1 },
    ];
    let seen = Mutex::new(BTreeMap::<BTreeSet<_>, u32>::new());
    pass(Check::new().runs(1000).random_faults(RandomFaults::up_to(40).kinds(kinds)), async |net| {
        let faults = &net.faults().0;
        if faults.len() >= 20 {
            let names = faults.iter().map(|fault| fault.kind.name()).collect();
            *seen.lock().unwrap().entry(names).or_default() += 1;
        }
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 15, "each subset that is not empty: {seen:?}");
    let [all, fewer] = [true, false].map(|is_all| {
        seen.iter().filter(|(names, _)| (names.len() == 4) == is_all).map(|(_, runs)| runs).sum::<u32>()
    });
    let part = f64::from(fewer) / f64::from(all + fewer);
    assert!((0.35..0.55).contains(&part), "{fewer} runs of {} draw from fewer kinds", all + fewer);
}

/// How many messages the test below sends, each of one frame
const MESSAGES: u64 = 10;

/// The numbers of the messages from `a` that do not arrive at `b`
async fn lost(net: &Net) -> Vec<u64> {
    let init = QpInit { qp_type: QpType::Uc, ..QpInit::with_frames(63) };
    let [a, b] = Raw::pair(net, &init, Access::LOCAL_WRITE, 1 << 14);
    for number in 0..MESSAGES {
        let at = number as usize * 64;
        b.recv(number, &[b.sge(at..at + 64)]).unwrap();
    }
    let mut lost = Vec::new();
    for number in 0..MESSAGES {
        a.post(number, SendOp::Send, &[a.sge(0..64)]).unwrap();
        net.sleep(Duration::from_millis(1)).await;
        if b.poll().is_none() {
            lost.push(number);
        }
        a.poll();
    }
    lost
}

/// Catches a fault that fires a frame too early or too late, one that waits for a time instead, and numbers of frames that are not those of
/// the test.
#[test]
fn a_quarter_of_the_faults_wait_for_as_many_frames_as_the_plain_run_has_sent() {
    let faults = RandomFaults::up_to(1).kinds([FaultKind::Lose { frames: 1 }]).at(["a:rdma_en2"]);
    let faults = faults.within(Duration::from_millis(5));
    let check = Check::new().runs(400).scheduler(Scheduler::Fifo).random_faults(faults);
    let drawn = Mutex::new(BTreeMap::<Option<u64>, u32>::new());
    pass(check, async |net: Net| {
        let lost = lost(&net).await;
        let faults = net.faults();
        let Some(fault) = faults.0.first() else {
            assert_eq!(lost, [0; 0], "without a fault");
            return;
        };
        let frames = match fault.trigger {
            Trigger::AfterFrames(frames) => Some(frames),
            _ => None,
        };
        match frames {
            Some(MESSAGES) => assert_eq!(lost, [0; 0], "no message follows: {fault}"),
            Some(frames) => assert_eq!(lost, [frames], "{fault}"),
            None => assert_eq!(lost.len(), 1, "{fault}"),
        }
        *drawn.lock().unwrap().entry(frames).or_default() += 1;
    });
    let drawn = drawn.into_inner().unwrap();
    let frames: Vec<_> = drawn.keys().copied().collect();
    assert_eq!(frames, [None].into_iter().chain((1..=MESSAGES).map(Some)).collect::<Vec<_>>());
    let (all, timed) = (drawn.values().sum::<u32>(), drawn[&None]);
    let part = f64::from(all - timed) / f64::from(all);
    assert!((0.18..0.32).contains(&part), "{} of {all} faults wait for frames", all - timed);
}

/// Catches a number of frames that is lost in the line, or on the way to it.
#[test]
fn a_failure_after_so_many_frames_is_repeated_by_its_line() {
    // The others lose the first messages.
    let faults = RandomFaults::up_to(3).kinds([FaultKind::Lose { frames: 1 }]).within(Duration::ZERO);
    let faults = faults.at(["a:rdma_en2"]);
    let check = || Check::new().name("t").runs(400).scheduler(Scheduler::Fifo).random_faults(faults.clone());
    let test = async |net: Net| assert!(!lost(&net).await.contains(&4), "the fifth message is lost");
    let failure = try_check(check(), test).unwrap_err();
    assert_eq!(failure.replay.faults.to_string(), "after 4 frames a:rdma_en2 lose 1", "{failure}");
    let again = try_check(check().replay(failure.replay.line().parse().unwrap()), test).unwrap_err();
    assert_eq!((again.kind, again.reason), (FailureKind::Panic, failure.reason));
}

/// Two Macs that answer each other a hundred times, with a pause of a millisecond after each time, until one of them fails
async fn exchange(net: Net) {
    let init = QpInit { qp_type: QpType::Uc, ..QpInit::with_frames(63) };
    let [a, b] = Raw::pair(&net, &init, Access::LOCAL_WRITE, 1 << 14);
    let mut completions = [Completion::default()];
    for number in 0..100 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            if to.recv(number, &[to.sge(0..64)]).is_err()
                || from.post(number, SendOp::Send, &[from.sge(64..128)]).is_err()
            {
                return;
            }
            let deadline = net.now() + Duration::from_millis(5);
            while !to.cq.poll(&mut completions).is_ok_and(|count| count == 1) {
                if net.now() > deadline {
                    return;
                }
                net.sleep(Duration::from_micros(5)).await;
            }
            let _ = from.cq.poll(&mut completions);
        }
        net.sleep(Duration::from_millis(1)).await;
    }
}

/// Regression: faults of hosts began by time alone, which a schedule by chance moves away from the traffic.
#[test]
fn many_kills_fire_amid_the_frames_of_their_host_under_any_schedule() {
    let faults = RandomFaults::up_to(1).kinds([FaultKind::Kill]);
    let check = Check::new().runs(600).scheduler(Scheduler::Random).random_faults(faults);
    let cases = Mutex::new(Vec::new());
    pass(check.liveness(Duration::from_secs(5)), async |net: Net| {
        let case = net.seed().map(|seed| format!("2 seed={seed} scheduler=random faults={}", net.faults()));
        cases.lock().unwrap().extend(case.filter(|_| !net.faults().is_empty()));
        exchange(net).await;
    });
    let [mut amid, mut all] = [0, 0];
    for case in cases.into_inner().unwrap() {
        let case: Replay = case.parse().unwrap();
        let host = case.faults.0[0].target.host().to_owned();
        let run = Sim::new().replay(&case).keep_records().run(exchange);
        let subjects: Vec<_> = run.history.subjects().collect();
        let records = || run.history.records.iter().zip(&subjects);
        let Some((kill, _)) = records().find(|(record, _)| record.kind == RecordKind::Fault) else {
            continue;
        };
        let of_host = records().filter(|(record, subject)| {
            record.kind == RecordKind::Frame && subject.starts_with(&format!("{host}:"))
        });
        let near = |time: Time| time.as_nanos().abs_diff(kill.time.as_nanos()) <= 20_000;
        all += 1;
        amid += u32::from(of_host.clone().any(|(frame, _)| near(frame.time)));
    }
    assert!(all > 150, "{all} kills fire");
    // By time alone, they are one in ten.
    assert!(amid * 100 > 20 * all, "{amid} of {all} kills fire within 20 µs of a frame of their host");
}
