//! What the environment says about checks, and where they print

use std::any::type_name;
use std::ffi::OsString;
use std::fmt::{Debug, Display};
use std::io::Write;
use std::num::NonZeroU64;
use std::str::FromStr;

use super::failure::LIKELY_CAUSES;
use super::replay::{self, Replay};
use super::report::{Orders, Report};
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

/// Changes `check` as the environment says; returns whether it is to repeat a run that the environment names
pub(super) fn apply(check: &mut Check, name: &str) -> bool {
    fn variable<T: FromStr<Err: Display>>(name: &str, advice: &str) -> Option<T> {
        // A workflow sets a variable to nothing where it has no value for it.
        let text = std::env::var_os(name).filter(|text| !text.is_empty())?;
        let value = read_variable(name, text, advice);
        Some(value.unwrap_or_else(|message| panic!("{message}")))
    }
    check.runs = variable("RDMA_SIM_RUNS", COUNT).map_or(check.runs, NonZeroU64::get);
    check.first_seed =
        variable("RDMA_SIM_SEED", "write a whole number, or unset it").unwrap_or(check.first_seed);
    check.threads = variable("RDMA_SIM_THREADS", COUNT).or(check.threads);
    check.page =
        variable("RDMA_SIM_PAGE", "write the path of a file, or unset it").or_else(|| check.page.take());
    // A line of another test is ignored, even if the rest of it cannot be read.
    let text = std::env::var(replay::VARIABLE).unwrap_or_default();
    if let Some(theirs) = replay::test_of(&text).filter(|theirs| *theirs != name) {
        if check.replay.is_none() {
            print_line(&format!(
                "{} is of the test {theirs}: {name} tries its seeds as usual",
                replay::VARIABLE
            ));
        }
        return false;
    }
    let replay: Option<Replay> = variable(replay::VARIABLE, LINE);
    let is_named = check.replay.is_none() && replay.is_some();
    check.replay = check.replay.take().or(replay);
    is_named
}

/// Says that the run which the environment names passed; `is_same` if its line names this topology and model
pub(super) fn print_passed(name: &str, is_same: bool) {
    let text = format!("{name}: the run of {} passed", replay::VARIABLE);
    if is_same {
        print_line(&format!("{text}: the failure is repaired, or it is not deterministic. {LIKELY_CAUSES}"));
    } else {
        print_line(&format!("{text}; the line does not say of which topology and model it is"));
    }
}

/// Whether runs that have reached something new are written
pub(super) fn updates_corpus() -> bool {
    is_set("RDMA_SIM_UPDATE_CORPUS")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value != "0" && !value.is_empty())
}

/// What to write into a variable that holds a number of things
const COUNT: &str = "write a whole number from 1 on, or unset it";
/// What else to do about the variable of a replay; how to write one is in its errors
const LINE: &str = "without the variable, the check tries its seeds";

/// The value of an environment variable, or a message that says what to do about it
fn read_variable<T: FromStr<Err: Display>>(name: &str, text: OsString, advice: &str) -> Result<T, String> {
    let wrong = |text: &dyn Debug, error: &dyn Display| format!("{name}={text:?}: {error}; {advice}");
    let text = text.into_string().map_err(|text| wrong(&text, &"it is not UTF-8"))?;
    text.parse().map_err(|error| match advice {
        // Errors of numbers say nothing that the advice does not.
        COUNT => format!("{name}={text:?}: {COUNT}"),
        _ => wrong(&text, &error),
    })
}

/// Prints a line that `cargo test` does not hold back
pub(super) fn print_line(line: &str) {
    // There is no other place to report that this one fails.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints what the runs have reached, if that is wanted
#[expect(clippy::print_stdout, reason = "as the output of the test")]
pub(super) fn print(report: &Report) {
    if is_set("RDMA_SIM_REPORT") {
        return print_line(&format!("{report:#}\n"));
    }
    println!("{report}");
    if let Some(Orders { tried, are_all: false, .. }) = report.orders {
        let test = &report.test;
        print_line(&format!(
            "{test}: {tried} orders were tried, and there are more: raise `Check::runs`, or make the test smaller"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a variable that is not UTF-8 was ignored, and the check tried other seeds.
    #[test]
    fn a_variable_that_cannot_be_read_is_refused_with_its_name_and_value() {
        assert_eq!(read_variable("RDMA_SIM_RUNS", "12".into(), COUNT), Ok(12_u64));
        let refused = read_variable::<u64>("RDMA_SIM_RUNS", "many".into(), COUNT).unwrap_err();
        assert_eq!(refused, "RDMA_SIM_RUNS=\"many\": write a whole number from 1 on, or unset it");
        let refused = read_variable::<NonZeroU64>("RDMA_SIM_RUNS", "0".into(), COUNT).unwrap_err();
        assert_eq!(refused, "RDMA_SIM_RUNS=\"0\": write a whole number from 1 on, or unset it");
        let refused = read_variable::<Replay>(replay::VARIABLE, "2 sead=7".into(), LINE).unwrap_err();
        assert!(
            refused.contains("\"sead=7\"")
                && refused.ends_with("; without the variable, the check tries its seeds"),
            "{refused}"
        );
        #[cfg(unix)]
        {
            let text = std::os::unix::ffi::OsStringExt::from_vec(b"2 seed=\xff".to_vec());
            let refused = read_variable::<Replay>(replay::VARIABLE, text, LINE).unwrap_err();
            assert!(refused.starts_with("RDMA_SIM_REPLAY=\"2 seed=\\xFF\": it is not UTF-8"), "{refused}");
        }
    }

    /// Regression: the message of a line of another version said twice to write it anew.
    #[test]
    fn the_line_of_another_version_is_refused_with_one_advice() {
        let refused = read_variable::<Replay>(replay::VARIABLE, "1 seed=7".into(), LINE).unwrap_err();
        assert_eq!(refused.matches("write").count(), 1, "{refused}");
        assert!(refused.contains("run the test again to get a new one, or write `2 seed="), "{refused}");
    }

    /// Regression: the check tried nothing, and passed.
    #[test]
    fn no_runs_are_refused() {
        let refused = read_variable::<NonZeroU64>("RDMA_SIM_RUNS", "0".into(), COUNT).unwrap_err();
        assert!(refused.ends_with(": write a whole number from 1 on, or unset it"), "{refused}");
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
