//! What is said of a copy, in all of its forms

use std::path::Path;

use super::receive::Received;
use crate::file::is_standard;
use crate::report::bytes;

/// The source, as it is shown
pub(super) fn source(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The destination, as it is shown
pub(super) fn destination(path: &Path) -> String {
    if is_standard(path) { "standard output".to_owned() } else { path.display().to_string() }
}

/// How much was copied
pub(super) fn size(received: &Received) -> String {
    let Received { bytes: len, files, directories, links, .. } = received;
    let size = format!("{} ({len} bytes)", bytes(*len));
    if *directories == 0 {
        return size;
    }
    let count =
        |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let files = count(*files, "file", "files");
    let directories = count(*directories, "directory", "directories");
    format!("{size} in {files}, {directories}, {}", count(*links, "link", "links"))
}

/// What became of what was there before
pub(super) fn earlier(received: &Received) -> Option<(&'static str, String)> {
    let Received { resumed, discarded, .. } = received;
    let continued = format!("{} were there already", bytes(*resumed));
    let anew = format!("{} of an earlier copy are of another source: copied anew", bytes(*discarded));
    let text = match (*resumed > 0, *discarded > 0) {
        (false, false) => return None,
        (true, false) => continued,
        (false, true) => anew,
        (true, true) => format!("{continued}; {anew}"),
    };
    Some(("resumed", text))
}
