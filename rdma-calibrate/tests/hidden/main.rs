//! Calibration of devices with rules and timings that it has to find out

mod alone;
mod behaviours;
mod deviant;
mod devices;
mod endings;
mod figures;
mod hostile;
mod judge;
mod mac;
mod over_abi;
mod sessions;
mod stepped;
mod transmitter;

use std::panic::{RefUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rdma_calibrate::{Findings, Options};
use rdma_sim::profile::{Decided, Profile};
use rdma_sim::rules::SourceGid;
use rdma_sim::{LineRate, Model};

use self::behaviours::assert_behaves;
use self::devices::{Cables, cables, secret};
use self::figures::{assert_figures, assert_same_figures};
use self::judge::{assert_cables, assert_found, assert_rules_hold};
use self::mac::{MOST, calibrated, calibrated_over};
use self::sessions::assert_predicts;

/// Fields that only programs in C see
const OF_C: [&str; 2] = ["rules.completion_events", "rules.large_gid_table"];

/// Streams last longer where the processor of a device is late at times
fn options(model: &Model) -> Options {
    let time = if model.timing.cpu { Duration::from_millis(2) } else { Duration::ZERO };
    Options::default().with_stream_time(time).with_risk_reboot(true)
}

/// Fails unless all of these devices are recovered; with the experiments of `--risk-reboot` if `risks`
fn assert_recovers(seeds: std::ops::Range<u64>, risks: bool) {
    assert_for_all(seeds, |seed| assert_recovered(seed, risks));
}

/// Runs `judge` for all of these devices, and names each for which it fails
fn assert_for_all(seeds: std::ops::Range<u64>, judge: impl Fn(u64) + Sync + RefUnwindSafe) {
    let (rest, failed) = (Mutex::new(seeds), Mutex::new(Vec::new()));
    let judge_all = || {
        loop {
            let Some(seed) = rest.lock().unwrap().next() else { break };
            if catch_unwind(|| judge(seed)).is_err() {
                failed.lock().unwrap().push(seed);
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(judge_all))));
    let mut failed = failed.into_inner().unwrap();
    failed.sort_unstable();
    assert!(failed.is_empty(), "not recovered: seeds {failed:?}");
}

fn assert_recovered(seed: u64, risks: bool) {
    assert_model_recovered(seed, secret(seed), risks);
}

/// As [`assert_recovered`], for the same devices, if they lose sends which find no receive
///
/// Where a processor is slow, streams lose messages, and their experiments stop.
fn assert_recovered_without_credit(seed: u64) {
    let mut model = secret(seed);
    model.caps.send_waits_for_receive = false;
    model.timing.cpu = false;
    assert_model_recovered(seed, model, true);
}

fn assert_model_recovered(seed: u64, model: Model, risks: bool) {
    let options = if risks { options(&model) } else { options(&model).with_risk_reboot(false) };
    let ended = calibrated_over(cables(seed), model.clone(), seed, options);
    let found = ended.asked.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{:?}", model));
    ended.served.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(ended.leaks.is_empty(), "seed {seed}: {}", ended.leaks);
    assert!(ended.time.as_nanos() <= MOST.as_nanos() as u64, "seed {seed}: {:?}", ended.time);
    assert_found(seed, &model, &found.profile, &OF_C, risks);
    assert_cables(seed, &model, &found);
    assert_rules_hold(&found);
    assert_behaves(seed, &model, &found, risks);
    assert_figures(seed, &model, &found);
    assert_predicts(seed, &model, &found);
    let read = Profile::parse("found.toml", &found.profile.to_toml()).unwrap();
    assert_eq!(read.model, found.profile.model, "seed {seed}");
}

/// Catches a rule that is decided wrongly or not at all, a constant that is off by more than 5 %, an object that is left, and a field that is said to be
/// measured and is not visible.
#[test]
fn two_hundred_devices_are_recovered() {
    assert_recovers(0..200, true);
}

/// Regression: on such a device no time was measured, and the profile had those of the simulator without saying that they may be wrong.
///
/// Catches a time that is not found where nothing waits for a receive.
#[test]
fn devices_that_lose_sends_are_recovered() {
    assert_for_all(0..24, assert_recovered_without_credit);
}

/// The command that users run first, without options: it decides everything but what may need a reboot.
///
/// Catches a disputed rule that could be decided without a risk and is not, and more than one transition that fails.
#[test]
fn a_hundred_devices_are_recovered_without_a_risk() {
    assert_recovers(100..200, false);
}

/// Catches a transition that fails although nothing asked for the risk, beside the one that most sources expect to succeed.
#[test]
fn without_a_risk_one_transition_fails_at_most() {
    for (large_mtu, why) in
        [(true, "no transition to RTR has failed; "), (false, "after 1 failed transition ")]
    {
        let mut model = Model::tb5();
        (model.rules.large_mtu, model.rules.source_gid) = (large_mtu, SourceGid::Ipv4);
        // A second one would show.
        model.rules.failed_rtr_wedges = Some(2);
        let found = calibrated(model, 1, Options::default()).asked.unwrap();
        assert_eq!(found.wedged, None);
        assert_eq!(found.profile.decided("rules.large_mtu"), Some(Decided::Measured));
        assert_eq!(found.profile.model.rules.large_mtu, large_mtu);
        let left = found.profile.why("rules.failed_rtr_wedges").unwrap();
        assert!(left.starts_with(why) && left.ends_with("not asked for: --risk-reboot"), "{left}");
        for field in ["rules.source_gid", "rules.unresolved", "timing.unresolved_rtr_ns"] {
            assert_eq!(found.profile.why(field), Some("not asked for: --risk-reboot"), "{field}");
        }
    }
}

/// Catches a constant that is entered under the name of another one, and a profile that predicts other figures than were measured: each device is
/// calibrated, simulated with its profile, and calibrated again.
#[test]
fn the_profile_predicts_round_trips_and_goodput() {
    for seed in 0..20 {
        let (model, options) = (secret(seed), options(&secret(seed)));
        let cables = Cables { count: 1, ..cables(seed) };
        let found = calibrated_over(cables, model, seed, options).asked.unwrap();
        let simulated = found.profile.model.clone();
        let simulated = calibrated_over(cables, simulated, seed, options).asked.unwrap();
        assert_same_figures(seed, &found, &simulated);
    }
}

/// Catches a rate that no link has and that is entered as measured, and a reason that does not name the port.
#[test]
fn a_frame_that_exceeds_the_rate_of_its_port_is_left() {
    let mut model = Model::tb5();
    model.rules.tb4_devices = true;
    // Without a time of messages, the bound of the payload hides nothing, and looks like the rate of a cable.
    let timing = &mut model.timing;
    (timing.line_rate, timing.mac_bytes_per_us, timing.per_message_ns) = (false, 12_000, 1);
    let cables = Cables { count: 1, rate: LineRate::TB4 };
    let found = calibrated_over(cables, model, 1, Options::default()).asked.unwrap().profile;
    assert_eq!(found.decided("timing.frame_ns"), Some(Decided::Undecided));
    let why = found.why("timing.frame_ns").unwrap();
    assert!(why.contains("by the rate that the port states"), "{why}");
}

#[test]
#[ignore = "takes minutes"]
fn five_thousand_devices_are_recovered() {
    assert_recovers(0..5000, true);
}

/// The page names what contradicts the simulator, and only that.
#[test]
fn the_page_says_what_contradicts_the_simulator() {
    let mut model = Model::tb5();
    model.rules.late_registration = true;
    let found = calibrated(model, 1, Options::default()).asked.unwrap();
    assert_eq!(found.contradictions(), ["rules.late_registration"]);
    let page = found.page();
    assert!(page.contains("Please report these") && !page.contains("simulated, under"), "{page}");
    let contradicted = page.split("## What it confirms").next().unwrap();
    assert!(contradicted.contains("| `rules.late_registration` | true | false |"), "{page}");
    assert!(contradicted.contains("measured: mesh-flow field notes"), "{page}");
    assert!(!contradicted.contains("rules.frame_match"), "{page}");
    assert!(page.contains("| `rules.crashes` | false | to decide it ends the process |"), "{page}");
    // A cable carries 9.2 GB/s; the answer takes its part of a short stream.
    assert!(page.contains("| payload rate of full frames, GB/s | 9.20 |"), "{page}");
    assert!(page.contains("\n| 1048576 | 4 | 9.20 | 9.20 | 9.20 |\n"), "{page}");
    assert!(page.contains("| There alone | Back alone | Each way, both at once |"), "{page}");
    assert!(
        page.contains("\n| Bytes | Min | p50 | p90 | p99 | Max |\n|---|---|---|---|---|---|\n| 8 | 11."),
        "{page}"
    );

    let found = calibrated(Model::tb5(), 1, Options::default()).asked.unwrap();
    assert_eq!(found.contradictions(), Vec::<&str>::new(), "{}", found.profile.to_toml());
}

/// Regression: a calibration that had wedged the port ended without a word of it.
///
/// Catches more failed transitions than the runbook of Macs promises, a port that is wedged and not named, and fields that are decided on a
/// wedged port.
#[test]
fn a_port_that_is_wedged_is_named_with_the_remedy() {
    let runbook = include_str!("../../../rdma-tb5/MACS.md");
    assert!(runbook.contains("At most three transitions to RTR fail; after each"), "{runbook}");
    let undecided_on_a_wedged_port =
        ["rules.large_mtu", "rules.source_gid", "rules.unresolved", "timing.unresolved_rtr_ns"];
    for limit in 1..=4 {
        let mut model = Model::tb5();
        // Each of the three transitions that may fail does.
        (model.rules.large_mtu, model.rules.source_gid) = (false, SourceGid::Ipv4);
        model.rules.failed_rtr_wedges = Some(limit);
        // The last experiments do not need the port.
        let ended = calibrated(model, 1, Options::default().with_idle_death(true).with_risk_reboot(true));
        let found = ended.asked.unwrap();
        let (decided, page) = (|field| found.profile.decided(field), found.page());
        assert_eq!(decided("rules.error_keeps_mappings"), Some(Decided::Measured), "{limit}");
        if limit > 3 {
            assert_eq!(found.wedged, None);
            assert_eq!(decided("rules.failed_rtr_wedges"), Some(Decided::Undecided));
            let why = found.profile.why("rules.failed_rtr_wedges").unwrap();
            assert!(why.starts_with("after 3 failed transitions to RTR the port connects"), "{why}");
            continue;
        }
        let wedged = found.wedged.as_deref().unwrap();
        assert!(wedged.contains(&format!("wedged after {limit} failed transition")), "{wedged}");
        assert!(wedged.contains("reboot this Mac"), "{wedged}");
        assert!(page.contains(&wedged[1..]), "{page}");
        assert_eq!(found.profile.model.rules.failed_rtr_wedges, Some(limit));
        assert!(found.contradictions().contains(&"rules.failed_rtr_wedges"), "{:?}", found.contradictions());
        let left = &undecided_on_a_wedged_port[limit as usize..];
        let left = if limit == 3 { &[] } else { left };
        for field in left.iter().chain(&["rules.idle_death"]) {
            assert_eq!(decided(field), Some(Decided::Undecided), "{limit}: {field}");
            assert!(found.profile.why(field).unwrap().contains("the port was wedged"), "{limit}: {field}");
        }
    }
}

/// The figures of the page on verbs, and the constants of the profile
fn verb_times(found: &Findings) -> (Vec<&(&'static str, String)>, [u64; 6]) {
    let verbs =
        ["opening", "closing", "creation", "destruction", "transition", "registration", "deregistration"];
    let is_verb = |what: &str| verbs.iter().any(|verb| what.starts_with(verb));
    let t = &found.profile.model.timing;
    let constants = [t.open_ns, t.create_ns, t.register_ns, t.register_page_ns, t.modify_ns, t.teardown_ns];
    (found.figures.iter().filter(|(what, _)| is_verb(what)).collect(), constants)
}

/// Regression: the time of a message was left at its default where a post takes longer, and the profile predicted half the time of 64 KiB.
///
/// Catches posts that are not hidden behind a long message, and a longer post that counts as a message.
#[test]
fn a_message_is_measured_where_a_post_takes_longer() {
    for (post, message) in [(499, 464), (1236, 1036), (901, 420), (1125, 344), (3_000, 200), (6_000, 100)] {
        let mut model = Model::tb5();
        let t = &mut model.timing;
        (t.cpu, t.post_ns, t.per_message_ns) = (true, post, message);
        let found = calibrated(model.clone(), 1, Options::default()).asked.unwrap();
        let t = &found.profile.model.timing;
        assert_eq!((t.post_ns, t.per_message_ns), (post, message), "{}", found.profile.to_toml());
        assert_predicts(post, &model, &found);
    }
}

/// A device whose messages have one frame at most sends them as fast as the program posts them, if a post takes longer than a message: the time
/// of the message does not show.
///
/// Catches a bound that is left out, a value beyond it, and bytes that are said to take no time.
#[test]
fn a_message_that_no_stream_shows_has_an_upper_bound() {
    for (post, message, value) in [(2_000, 300, 60), (520, 40, 60), (490, 20, 43), (400, 300, 300)] {
        let mut model = Model::tb5();
        model.caps.max_message = 4096;
        let t = &mut model.timing;
        (t.cpu, t.post_ns, t.per_message_ns) = (true, post, message);
        let found = calibrated(model.clone(), 1, Options::default()).asked.unwrap();
        let t = &found.profile.model.timing;
        assert!(t.line_rate && t.frame_ns.abs_diff(447) <= 3, "{post}: {}", found.profile.to_toml());
        assert!(t.per_message_ns.abs_diff(value) <= 3, "{post}: {}", found.profile.to_toml());
        let why = found.profile.why("timing.per_message_ns");
        assert_eq!(why.is_some_and(|why| why.starts_with("at most ")), value != message, "{post}: {why:?}");
        assert_predicts(post, &model, &found);
    }
}

/// Regression: nine frames in a row counted as eight, and five as six or seven, where jitter or wake-ups take long.
///
/// Catches streams that are too short for the jitter of their ends, and a rate of another stream that stands for that of these.
#[test]
fn turns_are_exact_beside_jitter_and_late_programs() {
    for seed in 1..4 {
        for (turns, wake) in [(1, 0), (9, 0), (10, 0), (5, 16_028), (9, 16_028)] {
            let mut model = Model::tb5();
            let t = &mut model.timing;
            (t.turns, t.jitter_ns, t.cpu) = (turns, 5_000, wake > 0);
            (t.wake_ns, t.poll_ns) = (wake, 182);
            let found = calibrated(model, seed, Options::default()).asked.unwrap();
            let (decided, why) = (found.profile.decided("timing.turns"), found.profile.why("timing.turns"));
            assert_eq!(decided, Some(Decided::Measured), "{turns}, {wake}: {why:?}");
            assert_eq!(found.profile.model.timing.turns, turns, "{wake}");
        }
    }
}

/// The loop is closed: what is simulated with the profile takes as long as what was measured, whichever way its verbs take their time.
#[test]
fn verbs_take_as_long_with_the_profile_as_they_did() {
    let mut model = Model::tb5();
    model.timing.verbs_take_time = true;
    for mut model in [model, Model::tb5_cpu()] {
        let t = &mut model.timing;
        (t.open_ns, t.create_ns, t.register_ns) = (310_000, 47_000, 23_000);
        (t.register_page_ns, t.modify_ns, t.teardown_ns) = (730, 19_000, 11_000);
        let device = calibrated(model, 1, Options::default()).asked.unwrap();
        let (figures, constants) = verb_times(&device);
        assert_eq!(figures.len(), 12, "{:?}", device.figures);
        assert_eq!(constants, [310_000, 47_000, 23_000, 730, 19_000, 11_000]);
        assert_eq!(device.profile.decided("timing.register_page_ns"), Some(Decided::Measured));
        let simulated = calibrated(device.profile.model.clone(), 2, Options::default()).asked.unwrap();
        assert_eq!(verb_times(&simulated), (figures, constants));
    }
}

/// Catches a stage of the error state that decides one side of the switch only.
#[test]
fn the_error_state_is_looked_at_if_asked_for() {
    for keeps in [true, false] {
        let mut model = Model::tb5();
        model.rules.error_keeps_mappings = keeps;
        let ended = calibrated(model, 1, Options::default().with_risk_reboot(true));
        let found = ended.asked.unwrap();
        assert_eq!(found.profile.value("rules.error_keeps_mappings"), Some(keeps.to_string()));
        assert_eq!(found.profile.decided("rules.error_keeps_mappings"), Some(Decided::Measured));
    }
}

/// Catches a stage that decides one side of the switch only, or needs a certain state for receives.
#[test]
fn flushes_of_the_error_state_are_looked_for_if_asked_for() {
    use rdma_sim::rules::EarlyReceives::{FromInit, FromReadyToReceive};

    for (flushes, early) in [(true, FromInit), (false, FromInit), (true, FromReadyToReceive)] {
        let mut model = Model::tb5();
        (model.caps.flush_on_error, model.rules.early_receives) = (flushes, early);
        let found = calibrated(model.clone(), 1, Options::default().with_risk_reboot(true)).asked.unwrap();
        assert_eq!(found.profile.decided("caps.flush_on_error"), Some(Decided::Measured));
        assert_eq!(found.profile.model.caps.flush_on_error, flushes);
        let found = calibrated(model, 1, Options::default()).asked.unwrap();
        assert_eq!(found.profile.decided("caps.flush_on_error"), Some(Decided::Undecided));
        let why = found.profile.why("caps.flush_on_error").unwrap();
        assert!(why.contains("--risk-reboot"), "{why}");
    }
}

/// Takes an hour or two of the device's time. Catches a bound that is not refined.
#[test]
fn idle_death_is_found_if_asked_for() {
    use rdma_sim::rules::SpoiledRtr::{GidTableEmpty, NoUsableGid};

    let spoiling = [(1380, Some(NoUsableGid)), (1380, Some(GidTableEmpty))];
    for (seconds, spoiled) in [(1380, None), (600, None), (200, None)].into_iter().chain(spoiling) {
        let spoils = spoiled.is_some();
        let mut model = Model::tb5();
        model.rules.idle_death = Some(std::time::Duration::from_secs(seconds));
        model.rules.idle_death_spoils = spoils;
        model.rules.spoiled_rtr = spoiled.unwrap_or(NoUsableGid);
        let ended = calibrated(model, 1, Options::default().with_idle_death(true));
        let found = ended.asked.unwrap();
        assert_eq!(found.profile.model.rules.idle_death_spoils, spoils, "{seconds}");
        assert_eq!(found.profile.model.rules.spoiled_rtr, spoiled.unwrap_or(NoUsableGid));
        let decided = found.profile.decided("rules.spoiled_rtr");
        assert_eq!(decided == Some(Decided::Measured), spoils, "{seconds}: {decided:?}");
        let idle = found.profile.model.rules.idle_death.unwrap().as_secs_f64();
        // A spoiled port connects no queue pair: only the first round counts.
        let most = if spoils { 0.2 } else { 0.05 };
        assert!((idle / seconds as f64 - 1.0).abs() <= most, "{seconds}: {idle}");
        assert!(found.profile.why("rules.idle_death").unwrap().starts_with("between "));
        assert!(ended.leaks.is_empty() && ended.time.as_nanos() < 7_200_000_000_000, "{:?}", ended.time);
    }
    let mut model = Model::tb5();
    model.rules.idle_death = None;
    let found = calibrated(model, 1, Options::default().with_idle_death(true)).asked.unwrap();
    assert_eq!(found.profile.decided("rules.idle_death"), Some(Decided::Undecided));
    assert!(found.profile.why("rules.idle_death").unwrap().contains("64 minutes"));
}
