//! Reports of macOS about panics and crashes

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::parse::{self, MAX_INPUT, MAX_ITEMS};
use crate::report::Incident;

/// The newest reports of panics and crashes that are read
const MAX_REPORTS: u32 = 64;

/// The folders of the system and of the user
#[cfg(target_os = "macos")]
pub(super) fn folders() -> Vec<PathBuf> {
    const FOLDER: &str = "Library/Logs/DiagnosticReports";
    let home = std::env::var_os("HOME").map(PathBuf::from);
    [Some(PathBuf::from("/")), home].into_iter().flatten().map(|root| root.join(FOLDER)).collect()
}

/// What the newest reports of panics and crashes say
#[derive(Debug)]
pub(super) struct Found {
    /// The incidents; `None` if there is none in what was read, and a folder or a report could not be read
    pub(super) incidents: Option<Vec<Incident>>,
    /// How many reports were read
    pub(super) reports: u32,
}

/// Reads the newest reports
pub(super) fn read(folders: &[PathBuf]) -> Found {
    read_by(folders, |path| {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_INPUT as u64).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    })
}

fn read_by(folders: &[PathBuf], text: impl Fn(&Path) -> io::Result<String>) -> Found {
    let mut is_listed = false;
    let mut is_complete = true;
    let mut files = Vec::new();
    for folder in folders {
        match reports_in(folder) {
            Ok(reports) => {
                is_listed = true;
                files.extend(reports);
            }
            // A user without reports has no folder of them.
            Err(error) => is_complete &= error.kind() == io::ErrorKind::NotFound,
        }
    }
    files.sort();
    let mut found = Vec::new();
    let mut reports = 0;
    for (_, path) in files.iter().take(MAX_ITEMS) {
        match text(path) {
            Ok(text) if is_panic_or_crash(&text) => {
                reports += 1;
                found.extend(parse::incident(&text));
            }
            Ok(_) => {}
            Err(_) => is_complete = false,
        }
        if reports == MAX_REPORTS {
            break;
        }
    }
    let is_known = is_listed && is_complete || !found.is_empty();
    Found { incidents: is_known.then_some(found), reports }
}

/// The files of a folder that may be reports, the newest first if they are sorted
fn reports_in(folder: &Path) -> io::Result<Vec<(Reverse<SystemTime>, PathBuf)>> {
    let mut reports = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let metadata = entry.metadata()?;
        if path.extension().is_some_and(|end| end == "ips" || end == "panic") && metadata.is_file() {
            reports.push((Reverse(metadata.modified()?), path));
        }
    }
    Ok(reports)
}

/// Whether a report can name an incident: macOS writes other kinds in the same form, such as those about memory pressure
fn is_panic_or_crash(text: &str) -> bool {
    text.contains("panic(") || text.contains("\"threads\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_that_name_rdma_are_kept() {
        let root = tempfile::TempDir::new().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("a.panic", "panic(cpu 1): AppleThunderboltRDMA\n");
        write("b.panic", "panic(cpu 1): out of memory\n");
        write("c.txt", "panic(cpu 1): AppleThunderboltRDMA\n");
        fs::create_dir(root.path().join("d.ips")).unwrap();
        let folders = [root.path().join("absent"), root.path().to_owned()];
        let found = read(&folders);
        assert_eq!((found.incidents.unwrap().len(), found.reports), (1, 2));
        assert_eq!(
            read(&folders[..1]).incidents,
            None,
            "a folder that cannot be listed is not known to be empty"
        );
    }

    /// Breaks if the reports of one folder stand for those of a folder that could not be listed.
    #[test]
    fn a_folder_that_cannot_be_listed_leaves_the_incidents_unknown() {
        let root = tempfile::TempDir::new().unwrap();
        let file = root.path().join("a.panic");
        fs::write(&file, "panic(cpu 1): out of memory\n").unwrap();
        assert_eq!(read(&[file.clone(), root.path().to_owned()]).incidents, None);
        fs::write(&file, "panic(cpu 1): AppleThunderboltRDMA\n").unwrap();
        let found = read(&[file, root.path().to_owned()]).incidents;
        assert_eq!(found.unwrap().len(), 1, "a report that was read counts");
    }

    /// Breaks if newer reports of other kinds use up the number of reports that are read.
    #[test]
    fn reports_of_memory_pressure_hide_no_panic() {
        let root = tempfile::TempDir::new().unwrap();
        fs::write(root.path().join("z.panic"), "panic(cpu 1): AppleThunderboltRDMA\n").unwrap();
        let panic = File::options().append(true).open(root.path().join("z.panic")).unwrap();
        panic.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        for number in 0..=MAX_REPORTS {
            let name = format!("JetsamEvent-{number}.ips");
            fs::write(root.path().join(name), "{\"bug_type\":\"298\"}\n{\"processes\":[]}").unwrap();
        }
        let found = read(&[root.path().to_owned()]);
        assert_eq!((found.incidents.unwrap().len(), found.reports), (1, 1));
    }

    /// Breaks if a report that cannot be opened is skipped: it may be the one that names the driver.
    #[test]
    fn a_report_that_cannot_be_read_leaves_the_incidents_unknown() {
        let root = tempfile::TempDir::new().unwrap();
        for name in ["a.panic", "b.panic"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        let found = read_by(&[root.path().to_owned()], |path| {
            let is_denied = path.ends_with("a.panic");
            if is_denied {
                Err(io::ErrorKind::PermissionDenied.into())
            } else {
                Ok("panic(cpu 1)".to_owned())
            }
        });
        assert_eq!((found.incidents, found.reports), (None, 1));
    }
}
