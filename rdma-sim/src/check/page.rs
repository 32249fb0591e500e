//! The page of a run that was checked

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::environment::print_line;
use super::failure::{PanicSites, RunFailure};
use super::run::FinishedRun;
use crate::History;

/// What a page says of its run
pub(super) struct Page<'a> {
    /// The test that runs
    pub(super) test: &'a str,
    /// Which of its runs it is
    pub(super) run: String,
    /// The line that repeats the run
    pub(super) line: String,
    /// Whether the environment names this run of this test
    pub(super) is_asked_for: bool,
}

impl Page<'_> {
    /// Writes the page to the file or into the directory `path`, and says so
    ///
    /// The page of a run that passes replaces no other page, unless the environment asks for the run: tests run side by side, and that of
    /// a failure is worth more.
    pub(super) fn write(&self, path: &Path, outcome: &Result<FinishedRun, RunFailure>, mut history: History) {
        let name = if self.test.is_empty() { "a test" } else { self.test };
        let mut title = format!("{name}, {}", self.run);
        if let Err(failed) = outcome {
            title += ": failed";
            let sites = PanicSites(failed.site.as_deref(), &failed.later);
            history.remarks.push((history.end, format!("{}{sites}", failed.reason)));
        }
        let file = file(path, self.test);
        let file = std::path::absolute(&file).unwrap_or(file);
        let shown = file.display();
        let page = history.to_html_of_run(&title, &self.line, outcome.is_ok());
        // Such as /dev/stdout.
        let is_special = file.metadata().is_ok_and(|found| !found.is_file());
        let written = match outcome.is_err() || self.is_asked_for {
            _ if is_special => fs::write(&file, &page),
            true => replace(&file, &page),
            false => fs::File::create_new(&file).and_then(|mut file| file.write_all(page.as_bytes())),
        };
        print_line(&match written {
            Ok(()) => format!("{title}: the page of the run is {shown}"),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                format!("{title}: the run passed, and does not replace the page {shown}")
            }
            Err(error) => format!("cannot write the page {shown}: {error}"),
        });
    }
}

/// Writes a file under another name first: the page of a test that passes meanwhile does not get into it
fn replace(file: &Path, page: &str) -> io::Result<()> {
    let mut other = file.as_os_str().to_owned();
    other.push(format!(".{}-{:?}", std::process::id(), std::thread::current().id()));
    let renamed = fs::write(&other, page).and_then(|()| fs::rename(&other, file));
    renamed.inspect_err(|_| _ = fs::remove_file(&other))
}

/// The file of the page of `test`: in a directory, which ends with a slash if it does not exist yet, that of its name
fn file(path: &Path, test: &str) -> PathBuf {
    let names_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if names_directory {
        // Writing fails if this does.
        let _ = fs::create_dir_all(path);
    } else if !path.is_dir() {
        return path.to_owned();
    }
    let letter = |letter: char| if letter.is_alphanumeric() || "_-.".contains(letter) { letter } else { '-' };
    let name: String = test.replace("::", ".").chars().map(letter).collect();
    path.join(if name.is_empty() { "test".to_owned() } else { name } + ".html")
}
