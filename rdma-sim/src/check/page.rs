//! The page of a run that was checked

use std::path::Path;

use super::environment::print_line;
use super::failure::RunFailure;
use super::replay::Replay;
use super::run::FinishedRun;
use crate::History;

/// Writes the page of `case` to the file `path`, and says so
pub(super) fn write(
    path: &Path,
    case: &Replay,
    outcome: &Result<FinishedRun, RunFailure>,
    mut history: History,
) {
    let name = if case.test.is_empty() { "a test" } else { &case.test };
    let mut title = format!("{name}, seed {}", case.seed);
    if let Err(failed) = outcome {
        title += ": failed";
        let site = failed.site.as_ref().map_or_else(String::new, |site| format!("\nat {site}"));
        history.remarks.push((history.end, failed.reason.clone() + &site));
    }
    let shown = path.display();
    match std::fs::write(path, history.to_html(&title)) {
        Ok(()) => print_line(&format!("{title}: the page of the run is {shown}")),
        Err(error) => print_line(&format!("cannot write the page {shown}: {error}")),
    }
}
