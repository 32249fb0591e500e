//! Calibration of devices with rules and timings that it has to find out

mod devices;
mod endings;
mod mac;

use rdma_calibrate::{Findings, Options, PLAN};
use rdma_sim::Model;
use rdma_sim::profile::{Decided, Profile};

use self::devices::secret;
use self::mac::{MOST, calibrated};

/// Which value of a field programs see on a device, if they see it; of several that they cannot tell apart, the one that is reported
fn visible(field: &str, model: &Model) -> Option<String> {
    let truth = of(model);
    let is = |field: &str, word: &str| truth.value(field).as_deref() == Some(word);
    let own = truth.value(field).unwrap();
    let (short, overflows) = (is("caps.max_message", "4096"), is("rules.ring_overflow", "corrupts"));
    let is_timed = is("timing.line_rate", "true");
    match field {
        // Not visible to programs at all, or not without harm.
        "rules.boundary"
        | "rules.completion_events"
        | "rules.crashes"
        | "rules.failed_rtr_wedges"
        | "rules.gids_move"
        | "rules.process_end_leaks_pds"
        | "rules.reboot_readdresses"
        | "rules.replug_leaks_pds"
        | "rules.tb4_devices"
        | "rules.idle_death"
        | "rules.idle_death_spoils"
        | "rules.error_keeps_mappings"
        | "timing.verbs_block_tasks" => None,
        "rules.frame_match" => (!short).then_some(own),
        "rules.send_completion" => is_timed.then_some(own),
        "rules.queue_unit" if overflows => shows_capacity(&truth).then_some(own),
        "rules.queue_unit" => (!short).then_some(own),
        "rules.queue_grant" if overflows && !shows_capacity(&truth) => None,
        "rules.queue_read_back" if is("rules.queue_grant", "exact") && own == "asked" => {
            // What was asked for is what is accepted; where that does not show, the report is all there is.
            Some(if overflows && !shows_capacity(&truth) { "asked" } else { "accepted" }.to_owned())
        }
        "rules.queue_read_back"
            if own == "accepted"
                && is("rules.queue_grant", "exact")
                && overflows
                && !shows_capacity(&truth) =>
        {
            Some("asked".to_owned())
        }
        _ => Some(own),
    }
}

/// Whether the capacity of a queue that refuses nothing shows in the longest receive
fn shows_capacity(truth: &Profile) -> bool {
    let is = |field: &str, word: &str| truth.value(field).as_deref() == Some(word);
    is("rules.queue_unit", "frames") && is("caps.max_message", "16773120")
}

fn of(model: &Model) -> Profile {
    let mut profile = Profile::named("tb5").unwrap();
    profile.model = model.clone();
    profile
}

/// The sums of constants that programs see on a device
fn sums(model: &Model, hands_off: bool) -> Vec<(&'static str, u64)> {
    let t = &model.timing;
    let way = t.doorbell_ns + t.propagation_ns + t.delivery_ns;
    let mut sums = vec![
        ("per message", t.per_message_ns),
        ("jitter", u64::from(t.jitter_ns)),
        ("one way", way),
        ("unresolved RTR", t.unresolved_rtr_ns),
    ];
    if t.verbs_take_time {
        sums.extend([
            ("opening", t.open_ns),
            ("creation", t.create_ns),
            ("registration", t.register_ns),
            ("registration of a page", t.register_page_ns),
            ("transition", t.modify_ns),
            ("teardown", t.teardown_ns),
        ]);
    }
    if hands_off {
        sums.extend([
            ("doorbell", t.doorbell_ns),
            ("propagation", t.propagation_ns),
            ("delivery", t.delivery_ns),
        ]);
    } else {
        sums.extend([
            ("send", t.doorbell_ns + t.send_completion_ns),
            ("credit and send", t.propagation_ns + t.send_completion_ns),
            ("credit and message", 2 * t.propagation_ns + t.delivery_ns),
        ]);
    }
    sums
}

#[track_caller]
fn assert_found(seed: u64, secret: &Model, found: &Findings) {
    let text = found.profile.to_toml();
    for plan in
        PLAN.iter().filter(|plan| !plan.field.starts_with("timing.") && !plan.field.starts_with("caps."))
    {
        let decided = found.profile.decided(plan.field);
        match visible(plan.field, secret) {
            Some(value) => {
                assert_eq!(decided, Some(Decided::Measured), "seed {seed}: {}\n{text}", plan.field);
                assert_eq!(
                    found.profile.value(plan.field),
                    Some(value),
                    "seed {seed}: {}\n{text}",
                    plan.field
                );
            }
            None => {
                assert_eq!(decided, Some(Decided::Undecided), "seed {seed}: {}\n{text}", plan.field);
                assert!(found.profile.why(plan.field).is_some_and(|why| !why.is_empty()), "{}", plan.field);
            }
        }
    }
    assert_eq!(found.profile.model.caps.max_qp, secret.caps.max_qp, "seed {seed}");
    assert_eq!(found.profile.model.timing.line_rate, secret.timing.line_rate, "seed {seed}");
    assert_eq!(found.profile.model.timing.verbs_take_time, secret.timing.verbs_take_time, "seed {seed}");
    let hands_off =
        secret.timing.line_rate && of(secret).value("rules.send_completion").as_deref() == Some("hand-off");
    if !secret.timing.line_rate && of(secret).value("rules.send_completion").as_deref() == Some("hand-off") {
        // Nothing tells then that sends complete early: only the way of a message is what it seems.
        return;
    }
    for ((what, truth), (_, found)) in
        sums(secret, hands_off).into_iter().zip(sums(&found.profile.model, hands_off))
    {
        let error = (found as f64 - truth as f64).abs();
        // A nanosecond is the resolution of the clock.
        assert!(
            error <= (truth as f64 * 0.05).max(1.0),
            "seed {seed}: {what} is {truth}, found {found}\n{text}"
        );
    }
}

fn assert_recovers(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let model = secret(seed);
        let ended = calibrated(model.clone(), seed, Options::default());
        let found = ended.asked.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{:?}", model));
        ended.served.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(ended.leaks.is_empty(), "seed {seed}: {}", ended.leaks);
        assert!(ended.time.as_nanos() <= MOST.as_nanos() as u64, "seed {seed}: {:?}", ended.time);
        assert_found(seed, &model, &found);
        let read = Profile::parse("found.toml", &found.profile.to_toml()).unwrap();
        assert_eq!(read.model, found.profile.model, "seed {seed}");
    }
}

#[test]
fn two_hundred_devices_are_recovered() {
    assert_recovers(0..200);
}

#[test]
#[ignore = "takes minutes"]
fn five_thousand_devices_are_recovered() {
    assert_recovers(0..5000);
}

/// The page names what contradicts the simulator, and only that.
#[test]
fn the_page_says_what_contradicts_the_simulator() {
    let mut model = Model::tb5();
    model.rules.late_registration = true;
    let found = calibrated(model, 1, Options::default()).asked.unwrap();
    assert_eq!(found.contradictions(), ["rules.late_registration"]);
    let page = found.page();
    let contradicted = page.split("## What it confirms").next().unwrap();
    assert!(contradicted.contains("| `rules.late_registration` | true | false |"), "{page}");
    assert!(contradicted.contains("measured: mesh-flow field notes"), "{page}");
    assert!(!contradicted.contains("rules.frame_match"), "{page}");
    assert!(page.contains("| `rules.crashes` | false | to decide it ends the process |"), "{page}");
    // A cable carries 9.2 GB/s; the answer takes its part of a short stream.
    assert!(page.contains("| payload rate of full frames, GB/s | 9.20 |"), "{page}");
    assert!(page.contains("| 2 messages of 512 KiB, GB/s | 8."), "{page}");

    let found = calibrated(Model::tb5(), 1, Options::default()).asked.unwrap();
    assert_eq!(found.contradictions(), Vec::<&str>::new(), "{}", found.profile.to_toml());
}

/// What the page says of each verb, and of what the profile holds
fn verb_times(found: &Findings) -> (Vec<&(&'static str, String)>, [u64; 6]) {
    let verbs =
        ["opening", "closing", "creation", "destruction", "transition", "registration", "deregistration"];
    let is_verb = |what: &str| verbs.iter().any(|verb| what.starts_with(verb));
    let t = &found.profile.model.timing;
    let constants = [t.open_ns, t.create_ns, t.register_ns, t.register_page_ns, t.modify_ns, t.teardown_ns];
    (found.figures.iter().filter(|(what, _)| is_verb(what)).collect(), constants)
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

/// Both sides of the switch, by the option alone: the experiment leaves regions counted.
#[test]
fn the_error_state_is_looked_at_if_asked_for() {
    for keeps in [true, false] {
        let mut model = Model::tb5();
        model.rules.error_keeps_mappings = keeps;
        let ended = calibrated(model, 1, Options::default().with(false, true));
        let found = ended.asked.unwrap();
        assert_eq!(found.profile.value("rules.error_keeps_mappings"), Some(keeps.to_string()));
        assert_eq!(found.profile.decided("rules.error_keeps_mappings"), Some(Decided::Measured));
    }
}

/// Takes an hour or two of the device's time, by the option alone; catches a bound that is not refined.
#[test]
fn idle_death_is_found_if_asked_for() {
    for (seconds, spoils) in [(1380, false), (600, false), (200, false), (1380, true)] {
        let mut model = Model::tb5();
        model.rules.idle_death = Some(std::time::Duration::from_secs(seconds));
        model.rules.idle_death_spoils = spoils;
        let ended = calibrated(model, 1, Options::default().with(true, false));
        let found = ended.asked.unwrap();
        assert_eq!(found.profile.model.rules.idle_death_spoils, spoils, "{seconds}");
        let idle = found.profile.model.rules.idle_death.unwrap().as_secs_f64();
        // A spoiled port lets nobody try again: the first round is all there is.
        let most = if spoils { 0.2 } else { 0.05 };
        assert!((idle / seconds as f64 - 1.0).abs() <= most, "{seconds}: {idle}");
        assert!(found.profile.why("rules.idle_death").unwrap().starts_with("between "));
        assert!(ended.leaks.is_empty() && ended.time.as_nanos() < 7_200_000_000_000, "{:?}", ended.time);
    }
    let mut model = Model::tb5();
    model.rules.idle_death = None;
    let found = calibrated(model, 1, Options::default().with(true, false)).asked.unwrap();
    assert_eq!(found.profile.decided("rules.idle_death"), Some(Decided::Undecided));
    assert!(found.profile.why("rules.idle_death").unwrap().contains("64 minutes"));
}
