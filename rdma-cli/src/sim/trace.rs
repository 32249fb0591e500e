//! What happened, for people and for trace viewers

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rdma_sim::{Record, RecordKind, chrome_json};
use serde::Serialize;

use super::observe::observe;
use super::scenario::Scenario;
use super::{BACKEND, Failure, Output};
use crate::args::SimTrace;

#[derive(Debug, Serialize)]
struct Report<'a> {
    scenario: &'a str,
    seed: u64,
    trace_digest: String,
    records: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    time_ns: u64,
    kind: String,
    who: u32,
    what: u64,
}

/// The trace cannot be written
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {error}", path.display())]
struct WriteError {
    path: PathBuf,
    error: io::Error,
}

pub(crate) fn trace(args: &SimTrace, output: Output) -> Result<(), Failure> {
    let scenario = Scenario::read(&args.scenario).map_err(Failure::failed)?;
    output.announce(BACKEND)?;
    let seen = observe(&scenario, args.seed);
    if let Some(path) = &args.chrome {
        let written = replace(path, chrome_json(&seen.records).as_bytes());
        written.map_err(|error| Failure::failed(WriteError { path: path.clone(), error }))?;
    }
    let report = Report {
        scenario: &scenario.name,
        seed: args.seed,
        trace_digest: seen.digest,
        records: seen.records.iter().map(Line::new).collect(),
    };
    output.print(&report, || {
        let lines: Vec<_> = seen.records.iter().map(Record::to_string).collect();
        lines.join("\n")
    })
}

impl Line {
    fn new(record: &Record) -> Self {
        let Record { time, kind, subject, value, .. } = *record;
        Self { time_ns: time.as_nanos(), kind: snake_case(kind), who: subject, what: value }
    }
}

fn snake_case(kind: RecordKind) -> String {
    let mut name = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Has a file with these bytes appear at `path` at once, or not at all
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A symbolic link keeps pointing where it points: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => return Err(io::Error::other("is a directory")),
        Ok(found) if found.is_symlink() => {
            return Err(io::Error::other("is a symbolic link to a file that does not exist"));
        }
        Ok(found) if !found.is_file() => return Err(io::Error::other("is not a regular file")),
        Ok(_) => (),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => (),
        Err(error) => return Err(error),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tb5-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Before the umask, as for any new file.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(())
}
