//! Texts about a copy, in all of its forms

use std::path::PathBuf;

use anyhow::Result;

use super::receive::{Arrived, Received};
use crate::report::{bytes, plain, with_sources};

/// Amount that was copied
pub(super) fn size(len: u64, [files, directories, links]: [u64; 3]) -> String {
    let size = format!("{} ({len} bytes)", bytes(len));
    if directories == 0 {
        return size;
    }
    let count =
        |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let files = count(files, "file", "files");
    let directories = count(directories, "directory", "directories");
    format!("{size} in {files}, {directories}, {}", count(links, "link", "links"))
}

/// Remedy after a copy for which the receiver lacks room, as both sides print it
///
/// Files of a directory that had arrived before are kept.
pub(super) const NOT_KEPT: &str = "the file that did not fit is not kept: copy again once there is room";

/// What the receiver says of a copy that ended early because of `why`
pub(super) fn ended_early(arrived: &Arrived, why: &str, remedy: &str) -> String {
    if arrived.is_whole.get() {
        // The last message of this side did not reach the sender.
        format!("the copy is in its place and verified, but its end is not confirmed ({why})")
    } else {
        format!("the copy is not complete ({why}); {remedy}")
    }
}

/// Remedy after a copy that is not complete, of which `kept` says whether the next one continues it
pub(super) fn remedy(kept: Result<Option<PathBuf>>) -> String {
    match kept {
        Ok(Some(rest)) => {
            format!("what has arrived is in {}: copy again to continue", plain(&rest.display().to_string()))
        }
        Ok(None) => "copy again".to_owned(),
        Err(error) => format!("copy again: {}", plain(&with_sources(&error))),
    }
}

/// Row about the bytes that were there already, or were discarded
pub(super) fn earlier(received: &Received) -> Option<(&'static str, String)> {
    let Received { resumed, discarded, .. } = received;
    let continued = format!("{} were there already", bytes(*resumed));
    let anew = format!("{} of an earlier copy, which was of another source", bytes(*discarded));
    match (*resumed > 0, *discarded > 0) {
        (false, false) => None,
        (true, false) => Some(("resumed", continued)),
        (false, true) => Some(("discarded", anew)),
        (true, true) => Some(("resumed", format!("{continued}; discarded {anew}"))),
    }
}
