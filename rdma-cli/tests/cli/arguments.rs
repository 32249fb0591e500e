//! Invalid arguments: exit code 2, a reason on standard error, nothing on standard output

use crate::support::{Folder, assert_code, assert_failed, stdout, tool};

#[test]
fn invalid_arguments_are_a_usage_error() {
    let table = [
        ("fly", "unrecognized subcommand 'fly'"),
        ("bw --bytes 32MiB", "33554432 exceeds the longest message, 16777216 bytes"),
        ("bw --in-flight 0", "0 is not in 1..=64"),
        ("ping --size 4XB", "write a whole number of B, KiB, MiB or GiB"),
        ("ping --count 0", "0 is not in 1..=10000000"),
        ("ping --size 99999999", "--size 99999999 exceeds the longest message"),
        ("ping --size -1", "unexpected argument '-1'"),
        ("copy only-one", "<DST>"),
        ("copy a b --seed x", "invalid value 'x' for '--seed"),
        ("copy a b --cables 0", "0 is not in 1..=3"),
        ("copy a b --cables 4", "4 is not in 1..=3"),
        ("copy a b --fault unplug", "--fault: \"unplug\": write KIND@TIME"),
        ("copy a b --fault unplug@1ms@1", "there is no cable \"1\": the only one is 0"),
        ("copy a b --fault kill@1ms", "kill happens to a Mac, not to a cable"),
        ("doctor --from", "a value is required for '--from <FILE>'"),
        ("doctor --from a --record b", "cannot be used with"),
        ("doctor --sim", "--sim"),
        ("devices --from a --from b", "cannot be used multiple times"),
        ("devices --record a", "unexpected argument '--record'"),
        ("sim fly", "unrecognized subcommand"),
        ("sim run", "<SCENARIO>"),
        ("sim run s --seeds 5..5", "no seeds in 5..5"),
        ("sim run s --seeds 9..3", "write the smaller number first"),
        ("sim run s --seeds 5", "write A..B, such as 0..20"),
        ("sim run s --seeds a..b", "write A..B"),
        ("sim run s --seeds=-1..3", "write A..B"),
        ("sim run s --seeds 0..18446744073709551616", "write A..B"),
        ("sim run s --seeds 0..18446744073709551615", "at most 1000000 seeds"),
        ("sim run s --seed x", "--seed"),
        ("sim run s --seed 1 --seeds 0..3", "cannot be used with"),
        ("sim trace s --seeds 0..3", "--seeds"),
    ];
    for (arguments, why) in table {
        let output = tool().args(arguments.split_whitespace()).output().unwrap();
        assert_failed(&output, 2, &[why]);
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn the_help_of_run_lists_its_exit_codes() {
    let output = tb5!["run", "--help"];
    assert_code(&output, 0);
    let help = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for code in
        ["124 after --timeout", "130 after SIGINT", "143 after SIGTERM", "129 after SIGHUP", "2 usage"]
    {
        assert!(help.contains(code), "{code} is not in: {help}");
    }
}

/// Catches a list of names without the one that was probably meant.
#[test]
fn a_misspelt_name_is_answered_with_the_nearest_one() {
    let folder = Folder::new();
    let fabric = "at 1s a:rdma_en2 unplgu";
    let table: [(&[&str], &str); 8] = [
        (&["pign"], "a similar subcommand exists: 'ping'"),
        (&["topo", "polan"], "a similar subcommand exists: 'plan'"),
        (&["ping", "--sead", "1"], "a similar argument exists: '--seed'"),
        (&["run", "--profile", "tb6", "true"], "roce; did you mean tb5?"),
        (&["bench", "all-redcue"], "a similar value exists: 'all-reduce'"),
        (
            &["topo", "draw", "rign:4"],
            "no shape is called \"rign\"; there are: line, mesh, pair, ring, star; did you mean ring?",
        ),
        (&["run", "--fault", fabric, "true"], "wedge; did you mean unplug?"),
        (&["copy", "a", "b", "--fault", "replgu@1ms"], "wedge; did you mean replug?"),
    ];
    for (arguments, why) in table {
        let output = tool().args(arguments).current_dir(folder.path("")).output().unwrap();
        assert_failed(&output, 2, &[why]);
    }
}
