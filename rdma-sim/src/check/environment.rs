//! What the environment says about checks, and where they print

use std::any::type_name;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use super::replay::{self, Replay};
use super::report::Report;
use super::settings::Check;

/// The name of the test that calls: that of its thread under `cargo test`, else that of its function
pub(super) fn test_name<F>() -> String {
    let thread = std::thread::current();
    if let Some(name) = thread.name().filter(|name| *name != "main") {
        return name.split_whitespace().collect::<Vec<_>>().join("_");
    }
    let name = type_name::<F>();
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    name.trim_end_matches("::{{closure}}").replace(char::is_whitespace, "_")
}

/// Changes `check` as the environment says
pub(super) fn apply(check: &mut Check, name: &str) {
    fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
        read_variable(name, std::env::var_os(name)?).map(Some).unwrap_or_else(|message| panic!("{message}"))
    }
    check.runs = variable("RDMA_SIM_RUNS").unwrap_or(check.runs);
    check.first_seed = variable("RDMA_SIM_SEED").unwrap_or(check.first_seed);
    check.threads = variable("RDMA_SIM_THREADS").or(check.threads);
    check.page = variable("RDMA_SIM_PAGE").or_else(|| check.page.take());
    let replay: Option<Replay> = variable(replay::VARIABLE);
    if let Some(replay) = replay.filter(|_| check.replay.is_none()) {
        if replay.test.is_empty() || replay.test == name {
            check.replay = Some(replay);
        } else {
            let theirs = replay.test;
            print_line(&format!(
                "{} is of the test {theirs}: {name} tries its seeds as usual",
                replay::VARIABLE
            ));
        }
    }
}

/// Whether runs that have reached something new are written
pub(super) fn updates_corpus() -> bool {
    is_set("RDMA_SIM_UPDATE_CORPUS")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value != "0" && !value.is_empty())
}

/// The value of an environment variable, or a message that says what to do about it
fn read_variable<T: FromStr<Err: Display>>(name: &str, text: OsString) -> Result<T, String> {
    let text = text
        .into_string()
        .map_err(|text| format!("{name}={text:?} is not UTF-8: write it anew, or unset it"))?;
    text.parse().map_err(|error| format!("{name}={text:?}: {error}: write it anew, or unset it"))
}

/// Prints a line that `cargo test` does not hold back
pub(super) fn print_line(line: &str) {
    // There is no other place to report that this one fails.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints what the runs have reached, if that is wanted
#[expect(clippy::print_stdout, reason = "as the output of the test")]
pub(super) fn print(report: &Report) {
    if is_set("RDMA_SIM_REPORT") { print_line(&format!("{report:#}\n")) } else { println!("{report}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a variable that is not UTF-8 was ignored, and the check tried other seeds.
    #[test]
    fn a_variable_that_cannot_be_read_is_refused_with_its_name_and_value() {
        assert_eq!(read_variable("RDMA_SIM_RUNS", "12".into()), Ok(12_u64));
        let refused = read_variable::<u64>("RDMA_SIM_RUNS", "many".into()).unwrap_err();
        assert!(refused.starts_with("RDMA_SIM_RUNS=\"many\": "), "{refused}");
        let refused = read_variable::<Replay>(replay::VARIABLE, "2 sead=7".into()).unwrap_err();
        assert!(
            refused.contains("\"sead=7\"") && refused.ends_with("write it anew, or unset it"),
            "{refused}"
        );
        #[cfg(unix)]
        {
            let text = std::os::unix::ffi::OsStringExt::from_vec(b"2 seed=\xff".to_vec());
            let refused = read_variable::<Replay>(replay::VARIABLE, text).unwrap_err();
            assert!(refused.starts_with("RDMA_SIM_REPLAY=\"2 seed=\\xFF\" is not UTF-8"), "{refused}");
        }
    }

    #[test]
    fn a_test_has_the_name_of_its_thread() {
        fn name_of<F>(_: F) -> String {
            test_name::<F>()
        }
        assert!(test_name::<u8>().ends_with("a_test_has_the_name_of_its_thread"));
        let closure = std::thread::scope(|scope| scope.spawn(|| name_of(|| ())).join().unwrap());
        assert_eq!(closure, "check::environment::tests::a_test_has_the_name_of_its_thread");
    }
}
