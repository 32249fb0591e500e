//! What is said of a copy, in all of its forms

use super::receive::Received;
use crate::report::bytes;

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
