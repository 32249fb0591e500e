//! Invalid arguments: exit code 2, a reason on standard error, nothing on standard output

use std::fs;
use std::process::Output;

use crate::support::{Folder, assert_code, assert_failed, stdout, tool};

const REPORT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-doctor/tests/fixtures/composed/reports/left.json");

/// The output of the tool in a folder, with arguments that are divided by spaces
fn inside(folder: &Folder, arguments: &str) -> Output {
    tool().args(arguments.split_whitespace()).current_dir(folder.path("")).output().unwrap()
}

#[test]
fn invalid_arguments_are_a_usage_error() {
    let table = [
        ("fly", "unrecognized subcommand 'fly'"),
        ("bw --bytes 32MiB", "invalid value '32MiB' for '--bytes <A..B>': sizes are 1B to 16MiB"),
        ("ping --profile tb7", "there is no profile \"tb7\", and no such file"),
        ("bw --in-flight 0", "write a whole number from 1 to 64"),
        ("bw --bytes 16MiB --in-flight 17", "256.00 MiB: write --in-flight up to 16, or shorter --bytes"),
        ("ping --bytes 4XB", "write a whole number of B, KiB or MiB up to 4MiB, such as 64 or 4KiB"),
        ("ping --count 0", "write a whole number from 1 to 10000000"),
        ("ping --bytes 99999999", "write a whole number of B, KiB or MiB up to 4MiB"),
        ("ping --count -1", "write a whole number from 1 to 10000000"),
        ("ping --count 1e3", "write a whole number from 1 to 10000000"),
        ("ping --port 70000 mini:", "write a whole number from 0 to 65535"),
        ("ping mini", "invalid value 'mini' for '[HOST:]': write mini: with a colon behind it"),
        ("bw mini", "write mini: with a colon behind it"),
        ("demo mini", "write mini: with a colon behind it"),
        ("calibrate mini", "write mini: with a colon behind it"),
        ("ping --seed -1", "write a whole number from 0 to 18446744073709551615"),
        ("bench all-reduce --hosts 0", "write a whole number from 2 to 64"),
        ("sim check s --runs 0", "write a whole number from 1 to 1000000"),
        ("sim trace s --html a --chrome a", "--chrome and --html are two files"),
        ("topo plan ring:3 --root a", "--root is for broadcast, gather, reduce and scatter"),
        ("ping --bytes -1", "invalid value '-1' for '--bytes <N>': write a whole number of B, KiB or MiB"),
        ("copy only-one", "<DST>"),
        ("copy a b --seed x", "invalid value 'x' for '--seed"),
        ("copy a b --cables 0", "write a whole number from 1 to 3"),
        ("copy a b --cables 4", "write a whole number from 1 to 3"),
        ("copy a b --fault unplug", "fault \"unplug\": the text ends too early"),
        ("copy a b --fault=a:rdma_en3=unplug", "fault \"a:rdma_en3=unplug\""),
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

/// Catches a file with wrong content, or none, that is taken for a wrong argument, and the other way round.
#[test]
fn a_wrong_file_is_a_failure_and_a_wrong_name_is_usage() {
    let folder = Folder::new();
    folder.write("wrong.toml", "hosts = 3");
    folder.write("words.toml", "shape = \"ring\"\nhosts = four");
    folder.write("ports.toml", "shape = \"mesh\"\nhosts = 5");
    let hosts = ["a", "b"].map(|name| format!("[[host]]\nname = \"{name}\"\nports = 1\n"));
    folder.write("apart.toml", hosts.concat());
    folder.write("left.json", fs::read(REPORT).unwrap());
    folder.directory("directory");
    let table = [
        ("topo plan wrong.toml", 1, "wrong.toml:1"),
        ("topo plan directory", 1, "directory: cannot be read"),
        ("topo plan rign:4", 2, "did you mean ring?"),
        ("topo plan missing.toml", 1, "missing.toml: cannot be read: No such file or directory"),
        ("topo draw ./missing", 1, "./missing: cannot be read: No such file or directory"),
        (
            "topo draw words.toml",
            1,
            "words.toml:2: four is neither a number nor a text: write a number, or a",
        ),
        ("topo draw ports.toml", 0, ""),
        ("topo plan apart.toml", 1, "apart.toml: no cables join these groups of hosts: a | b"),
        (
            "bench all-reduce --topology apart.toml",
            1,
            "apart.toml: no cables join these groups of hosts: a |",
        ),
        // Regression: a number that is none was said to be a shape that does not exist.
        ("topo draw ring:-1", 2, "ring:-1: \"-1\" is not a number of hosts: write 3 to 1778, as in ring:3"),
        ("topo draw ring:99999999999999999999", 2, "is not a number of hosts: write 3 to 1778, as in ring:3"),
        ("topo draw mesh:", 2, "mesh:: \"\" is not a number of hosts: write 2 to 33, as in mesh:2"),
        ("topo draw ring:2000", 2, "2000 hosts are too many for a ring: write 3 to 1778"),
        ("topo check - -", 2, "standard input is read once: write `-` for one of the files"),
        ("doctor --from - --from -", 2, "standard input is read once: write `-` for one of the files"),
        ("topo plan ring:1100", 2, "1100 hosts: a group has 1 to 1024"),
        ("topo plan ring:1", 2, "a ring has at least 3 Macs, not 1"),
        ("bench all-reduce --hosts 5 --topology ring:4", 2, "ring:4 has 4 hosts, not 5: leave one of the"),
        ("topo check ring:3 missing", 1, "missing: cannot be read: No such file or directory"),
        (
            "topo check ring:3 wrong.toml",
            1,
            "wrong.toml:1: is not a plan: word 1 of the line is \"hosts\", and",
        ),
        ("ping --profile ./missing", 1, "./missing: cannot be read: No such file or directory"),
        ("run --profile missing.toml true", 1, "missing.toml: cannot be read: No such file or directory"),
        (
            "ping --profile nope",
            2,
            "there is no profile \"nope\", and no such file; there are: tb5, tb5-cpu,",
        ),
        ("ping --profile words.toml", 1, "words.toml:2: four is neither a number nor a text: write a number"),
        ("sim run words.toml", 1, "words.toml:2: four is neither a number nor a text: write a number"),
        // Standard input is empty.
        ("ping --profile -", 1, "standard input:1: the file has no format"),
        ("topo draw -", 1, "standard input: describes no hosts"),
        ("sim run -", 1, "standard input:1: missing field"),
        ("devices --from -", 1, "standard input: is not a host report"),
        ("topo check ring:3 -", 1, "standard input:1: is not a plan: word 1 of the line is the end of the"),
        ("topo discover left.json -", 1, "standard input: is not a host report"),
        ("bench all-reduce --topology - --profile -", 1, "standard input: describes no hosts"),
        ("bench all-reduce --topology wrong.toml", 1, "wrong.toml:1"),
        ("run --topology wrong.toml -- true", 1, "wrong.toml:1"),
        ("ping --profile wrong.toml", 1, "wrong.toml:1"),
        ("run --profile wrong.toml -- true", 1, "wrong.toml:1"),
        ("bench all-reduce --profile tb7", 2, "did you mean tb5?"),
        ("sim run wrong.toml", 1, "wrong.toml:1"),
        ("sim run missing", 1, "missing: cannot be read"),
        ("doctor --from missing", 1, "missing: cannot be read"),
        ("copy missing copy", 1, "missing"),
        ("copy left.json mini:../x", 2, "../x: must be below the directory of the listening side"),
    ];
    for (arguments, code, why) in table {
        let output = inside(&folder, arguments);
        assert_failed(&output, code, &[why]);
        assert!(code == 0 || output.stdout.is_empty(), "{arguments}");
    }
}

/// Regression: the byte-order mark with which some editors begin a file was no JSON and no TOML.
#[test]
fn files_may_begin_with_a_byte_order_mark() {
    let folder = Folder::new();
    let with_mark = |content: &[u8]| [b"\xef\xbb\xbf", content].concat();
    folder.write("report.json", with_mark(&fs::read(REPORT).unwrap()));
    folder.write("matrix.json", with_mark(b"[[null, \"rdma_en2\"], [\"rdma_en2\", null]]"));
    folder.write("ring.toml", with_mark(b"shape = \"ring\"\nhosts = 3\n"));
    for arguments in [
        "devices --from report.json",
        "topo draw matrix.json",
        "topo plan ring.toml",
        "doctor --from report.json",
    ] {
        let output = inside(&folder, arguments);
        assert!(stdout(&output).lines().count() > 1, "{arguments}: {output:?}");
        let piped = arguments.rsplit_once(' ').unwrap();
        let file = fs::File::open(folder.path(piped.1)).unwrap();
        let read = tool().args(piped.0.split_whitespace()).arg("-").stdin(file).output().unwrap();
        assert_eq!(read.status, output.status, "{arguments}: {read:?}");
    }
}

/// Catches the name of a temporary file, which says nothing to people.
#[cfg(target_os = "linux")]
/// Catches a file that is read to its end, which never comes, until no memory is left.
#[test]
fn files_without_an_end_are_refused() {
    let folder = Folder::new();
    for command in [
        "ping --profile /dev/zero",
        "topo draw /dev/zero",
        "topo plan /dev/zero",
        "topo check ring:4 /dev/zero",
        "doctor --from /dev/zero",
        "sim run /dev/zero",
    ] {
        assert_failed(&inside(&folder, command), 1, &["/dev/zero", "longer than"]);
    }
    for command in ["ping --profile -", "topo draw -", "topo check ring:4 -", "sim run -"] {
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let output = tool().args(command.split_whitespace()).stdin(zeros).output().unwrap();
        assert_failed(&output, 1, &["standard input", "longer than"]);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named_as_the_user_did() {
    for arguments in ["topo draw ring:3 --out /proc/x", "man --out /proc", "copy Cargo.toml /proc/x"] {
        let output = tool().args(arguments.split_whitespace()).output().unwrap();
        assert_failed(&output, 1, &["tb5: /proc/", ": cannot be written: No such file or directory"]);
        let message = crate::support::stderr(&output);
        assert!(!message.contains(".part"), "{message}");
    }
}

/// Catches a usage that is not that of the command with the wrong value.
#[test]
fn an_impossible_value_shows_the_usage_of_its_command() {
    assert_failed(&tb5!["bw", "--port", "1"], 2, &["Usage: tb5 bw"]);
    assert_failed(&tb5!["topo", "plan", "rign:4"], 2, &["Usage: tb5 topo plan"]);
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
    let table: [(&[&str], &str); 11] = [
        (&["pign"], "a similar subcommand exists: 'ping'"),
        (&["rnu"], "a similar subcommand exists: 'run'"),
        (&["sim", "--json", "rnu"], "a similar subcommand exists: 'run'"),
        (&["topo", "polan"], "a similar subcommand exists: 'plan'"),
        (&["help", "sim", "trce"], "a similar subcommand exists: 'trace'"),
        (&["ping", "--sead", "1"], "a similar argument exists: '--seed'"),
        (&["run", "--profile", "tb6", "true"], "roce; did you mean tb5?"),
        (&["bench", "all-redcue"], "a similar value exists: 'all-reduce'"),
        (
            &["topo", "draw", "rign:4"],
            "no shape is called \"rign\"; there are: line, mesh, pair, ring, star; did you mean ring?",
        ),
        (&["run", "--fault", fabric, "true"], "wedge; did you mean unplug?"),
        (&["copy", "a", "b", "--fault", "at 1ms a:rdma_en2 replgu"], "wedge; did you mean replug?"),
    ];
    for (arguments, why) in table {
        let output = tool().args(arguments).current_dir(folder.path("")).output().unwrap();
        assert_failed(&output, 2, &[why]);
    }
}

/// Regression: the search for a near name panicked.
#[test]
fn an_argument_that_is_not_text_is_refused() {
    let argument = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
    let argument: &std::ffi::OsStr = argument;
    for (before, why) in [
        (&[][..], "subcommand '\u{fffd}'"),
        (&["sim"], "subcommand '\u{fffd}'"),
        (&["ping"], "invalid UTF-8"),
    ] {
        assert_failed(&tool().args(before).arg(argument).output().unwrap(), 2, &[why]);
    }
}

/// Regression: the cabling, the scenario or the profile was replaced by what was made of it.
#[test]
fn no_command_replaces_what_it_reads() {
    let folder = Folder::new();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/one-lost-message.toml");
    std::fs::copy(scenario, folder.path("scenario")).unwrap();
    let made = |arguments: &str| inside(&folder, arguments);
    assert_code(&made("topo convert ring:3 --to toml --out cabling"), 0);
    assert_code(&made("calibrate --out profile"), 0);
    std::fs::copy(folder.path("profile"), folder.path("page.md")).unwrap();
    let before = folder.entries();
    let content = || before.iter().map(|name| std::fs::read(folder.path(name)).unwrap()).collect::<Vec<_>>();
    let contents = content();
    for arguments in [
        "topo plan cabling --out cabling",
        "topo draw cabling --out ./cabling",
        "topo convert cabling --out cabling",
        "topo discover cabling scenario --out scenario",
        "sim trace scenario --html scenario",
        "sim trace scenario --chrome scenario",
        "calibrate --profile profile --out profile",
        "calibrate --profile ./page.md --out page",
    ] {
        assert_failed(&made(arguments), 2, &["is read and would be replaced: write another name"]);
    }
    let twice = made("sim trace scenario --chrome run --html ./run");
    assert_failed(&twice, 2, &["--chrome and --html are two files"]);
    assert!(content() == contents && folder.entries() == before);
}

#[test]
fn a_copy_says_which_side_of_it_may_be_another_machine() {
    let folder = Folder::new();
    folder.write("file", "");
    for (arguments, why) in [
        (
            "copy mini:file back",
            "files are copied to another machine, and not from it: run `tb5 copy` on mini",
        ),
        ("copy file :", "the name of the machine is missing: write HOST:NAME, or ./: for a file"),
        ("copy file :x", "the name of the machine is missing: write HOST:NAME, or ./:x for a file"),
        ("copy file []:x", "the name of the machine is missing"),
    ] {
        let output = inside(&folder, arguments);
        assert_failed(&output, 2, &[why]);
        assert_eq!(folder.entries(), ["file"], "{arguments}");
    }
}
