use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::rules::QueueGrant;

#[track_caller]
fn error(text: &str) -> String {
    Profile::parse("file.toml", text).unwrap_err().to_string()
}

/// Values of a field that a file may hold
fn values(name: &str) -> Vec<String> {
    let model = Model::tb5();
    let field = field(name).unwrap();
    let mut candidates: Vec<String> = (0..=16).map(|shift| (1u32 << shift).to_string()).collect();
    candidates.extend(
        ["0", "7", "1380s", "3ms", "never", "true", "false", "exact", "fits", "from-init", "from-rtr"]
            .map(str::to_owned),
    );
    candidates.extend(
        ["from-rts", "refused", "split", "accepted", "asked", "limit", "frames", "requests"]
            .map(str::to_owned),
    );
    candidates.extend(
        ["corrupts", "departure", "hand-off", "any", "ipv4", "as-send", "gid-table-empty", "no-usable-gid"]
            .map(str::to_owned),
    );
    candidates.extend(["not-permitted", "timed-out", "at-least 9", "fixed 63"].map(str::to_owned));
    candidates.retain(|text| (field.set)(&mut model.clone(), text).is_ok());
    candidates
}

#[test]
fn every_field_takes_more_than_one_value_or_says_why_not() {
    for name in Profile::fields() {
        assert!(values(name).len() > 1 || name == "caps.frame", "{name}: {:?}", values(name));
    }
}

proptest! {
    /// Random models, with random decisions; catches a field that is written and not read.
    #[test]
    fn a_profile_is_read_as_it_was_written(
        base in 0..Model::PROFILES.len(),
        choices in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4_usize), 0..40),
        why in "[ -~]{0,20}",
    ) {
        let mut profile = Profile::named(Model::PROFILES[base]).unwrap();
        profile.name = "found.toml".to_owned();
        for (field, value, decided) in choices {
            let name = field.get(FIELDS).name;
            if decided == 3 {
                profile.leave(name, &why).unwrap();
            } else {
                let values = values(name);
                let decided = [Decided::Given, Decided::Measured, Decided::Sum][decided];
                let value: &String = value.get(&values);
                profile.set(name, value, decided).unwrap();
            }
        }
        let read = Profile::parse("found.toml", &profile.to_toml()).unwrap();
        prop_assert_eq!(&read.model, &profile.model);
        for name in Profile::fields() {
            // What differs from the base is written even if no decision was entered.
            let decided = profile.decided(name);
            prop_assert_eq!(read.decided(name), decided);
            prop_assert_eq!(read.why(name), profile.why(name));
        }
    }
}

#[test]
fn fields_are_scalars_or_tables() {
    let text = "format = 1\n[rules]\nidle_death = \"never\"\nqueue_grant = { value = \"fixed 63\" }\n";
    let profile = Profile::parse("f", text).unwrap();
    assert_eq!((profile.base(), profile.model.rules.idle_death), ("tb5", None));
    assert_eq!(profile.model.rules.queue_grant, QueueGrant::Fixed(63));
    assert_eq!(profile.decided("rules.queue_grant"), Some(Decided::Given));
    let differences: Vec<_> = profile.differences().collect();
    assert_eq!(differences.len(), 2, "{differences:?}");
    let text = "format = 1\n[rules]\nidle_death = \"90s\"\n";
    let idle = Profile::parse("f", text).unwrap().model.rules.idle_death;
    assert_eq!(idle, Some(Duration::from_secs(90)));
}

#[test]
fn errors_have_the_file_the_line_and_the_remedy() {
    for (text, line, parts) in [
        ("", 1, &["no format", "format = 1"][..]),
        ("base = \"tb5\"\nformat = 2\n", 2, &["format 2", "calibrate again"]),
        ("format = 1\nbase = \"tb6\"\n", 2, &["\"tb6\"", "tb5-strict"]),
        ("format = 1\n\n[rule]\n", 3, &["rule is not known", "[rules]"]),
        ("format = 1\ncaps = 3\n", 2, &["caps has no value", "[caps]"]),
        ("format = 1\nspeed = 3\n", 2, &["speed", "[timing]"]),
        ("format = 1\n[rules]\n\nalinment = 1\n", 4, &["rules.alinment", "rules.alignment"]),
        ("format = 1\n[rules]\nalignment = 3\n", 3, &["cannot be 3", "power of two"]),
        ("format = 1\n[rules]\nalignment = 32768\n", 3, &["cannot be 32768", "up to 16384"]),
        ("format = 1\n[timing]\nwake_tail_one_in = 3\n", 3, &["cannot be 3", "from 4 on"]),
        ("format = 1\n[rules]\nalignment = -1\n", 3, &["cannot be -1", "power of two"]),
        (
            "format = 1\n[timing]\ncopy_bytes_per_us = -1\n",
            3,
            &["cannot be -1", "a whole number of at most "],
        ),
        (
            "format = 1\n[timing]\ncpu = \"true\"\n",
            3,
            &["cannot be \"true\"; write true, without quotation marks"],
        ),
        ("format = \"1\"\n", 1, &["format \"1\" is not known"]),
        ("format = 1\n[rules]\nidle_death = 7\n", 3, &["cannot be 7", "1380s", "never"]),
        ("format = 1\n[rules]\nqueue_grant = \"fixed 0\"\n", 3, &["fixed 0", "at-least N"]),
        ("format = 1\n[timing]\njitter_ns = 5000000000\n", 3, &["5000000000", "less than a second"]),
        ("format = 1\n[timing]\njitter_ns = 4000000000\n", 3, &["less than a second"]),
        ("format = 1\n[timing]\njitter_ns = [1]\n", 3, &["type array"]),
        ("format = 1\n[timing]\njitter_ns = {}\n", 3, &["no value", "undecided"]),
        ("format = 1\n[timing]\njitter_ns = { decided = \"measured\" }\n", 3, &["no value"]),
        ("format = 1\n[timing]\njitter_ns = { value = 1, by = 2 }\n", 3, &["jitter_ns.by", "why"]),
        ("format = 1\n[timing]\njitter_ns = { value = 1, decided = \"so\" }\n", 3, &["decided", "measured"]),
        // Regression: the simulator used the value of a field that the file calls undecided.
        (
            "format = 1\n[timing]\njitter_ns = { value = 1, decided = \"undecided\" }\n",
            3,
            &["timing.jitter_ns cannot be 1", "no value, because it is undecided"],
        ),
        // Regression: nothing connected.
        ("format = 1\n[rules]\nfailed_rtr_wedges = 0\n", 3, &["cannot be 0", "never"]),
        ("format = 1\n[caps]\nframe = 512\n", 3, &["4096"]),
        ("format = 1\n[rules\n", 2, &["unclosed table"]),
        // Regression: the key was not named.
        ("format = 1\n[timing]\njitter_ns = 1\njitter_ns = 2\n", 4, &["jitter_ns is there more than once"]),
        ("format = 1\n[timing]\n[rules]\n[timing]\n", 4, &["timing is there more than once"]),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("file.toml:{line}: ")), "{text:?}: {error}");
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}

#[test]
fn a_profile_is_found_by_its_name_or_in_a_file() {
    assert_eq!(Profile::find("tb5-strict").unwrap().model, Model::tb5_strict());
    let error = Profile::find("such").unwrap_err();
    assert!(error.to_string().contains("there are: tb5, tb5-cpu, tb5-strict"), "{error}");
    for path in ["no/such", "such.toml"] {
        assert!(matches!(Profile::find(path), Err(ProfileError::Read { .. })), "{path}");
    }
    let folder = std::env::temp_dir().join(format!("rdma-sim-profile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("found.toml");
    std::fs::write(&path, "format = 1\nbase = \"roce\"\n").unwrap();
    assert_eq!(Model::from_file(&path).unwrap(), Model::roce());
    assert_eq!(Profile::find(path.to_str().unwrap()).unwrap().base(), "roce");
    assert!(matches!(Profile::find(folder.to_str().unwrap()), Err(ProfileError::Read { .. })));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Catches a value that was measured first and stays where the field is left undecided.
#[test]
fn a_field_that_is_left_has_the_value_of_the_base() {
    let mut profile = Profile::named("tb5-strict").unwrap();
    let base = profile.model.clone();
    profile.set("timing.frame_ns", "600", Decided::Measured).unwrap();
    profile.leave("timing.frame_ns", "the bytes take no time").unwrap();
    assert_eq!(profile.model, base);
    assert_eq!(profile.decided("timing.frame_ns"), Some(Decided::Undecided));
}
