//! The page of a run that was checked

use std::path::{Path, PathBuf};

use super::environment::print_line;
use super::failure::RunFailure;
use super::replay::Replay;
use super::run::FinishedRun;
use crate::History;

/// Writes the page of `case` to the file or into the directory `path`, and says so
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
    let file = file(path, &case.test);
    let shown = file.display();
    match std::fs::write(&file, history.to_html(&title)) {
        Ok(()) => print_line(&format!("{title}: the page of the run is {shown}")),
        Err(error) => print_line(&format!("cannot write the page {shown}: {error}")),
    }
}

/// The file of the page of `test`: in a directory, which ends with a slash if it does not exist yet, that of its name
fn file(path: &Path, test: &str) -> PathBuf {
    let names_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if names_directory {
        // Writing fails if this does.
        let _ = std::fs::create_dir_all(path);
    } else if !path.is_dir() {
        return path.to_owned();
    }
    let letter = |letter: char| if letter.is_alphanumeric() || "_-.".contains(letter) { letter } else { '-' };
    let name: String = test.replace("::", ".").chars().map(letter).collect();
    path.join(if name.is_empty() { "test".to_owned() } else { name } + ".html")
}
