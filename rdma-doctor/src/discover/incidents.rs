//! Reports of macOS about panics and crashes

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use crate::parse::{self, MAX_INPUT, MAX_ITEMS};
use crate::report::Incident;

/// The newest reports that are read
const MAX_REPORTS: usize = 64;

/// The folders of the system and of the user
#[cfg(target_os = "macos")]
pub(super) fn folders() -> Vec<PathBuf> {
    const FOLDER: &str = "Library/Logs/DiagnosticReports";
    let home = std::env::var_os("HOME").map(PathBuf::from);
    [Some(PathBuf::from("/")), home].into_iter().flatten().map(|root| root.join(FOLDER)).collect()
}

/// The incidents of the newest reports; `None` if no folder can be listed
pub(super) fn read(folders: &[PathBuf]) -> Option<Vec<Incident>> {
    let mut is_listed = false;
    let mut reports = Vec::new();
    for entries in folders.iter().filter_map(|folder| fs::read_dir(folder).ok()) {
        is_listed = true;
        for entry in entries.flatten().take(MAX_ITEMS) {
            let path = entry.path();
            let is_report = path.extension().is_some_and(|end| end == "ips" || end == "panic");
            if let (true, Ok(metadata)) = (is_report, entry.metadata())
                && metadata.is_file()
            {
                reports.push((Reverse(metadata.modified().ok()), path));
            }
        }
    }
    reports.sort();
    let text = |path: &PathBuf| {
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(MAX_INPUT as u64).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let found = reports.iter().take(MAX_REPORTS).filter_map(|(_, path)| parse::incident(&text(path)?));
    is_listed.then(|| found.collect())
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
        assert_eq!(read(&folders).unwrap().len(), 1);
        assert_eq!(read(&folders[..1]), None, "a folder that cannot be listed is not known to be empty");
    }
}
