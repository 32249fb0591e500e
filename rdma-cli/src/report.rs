//! What is printed: one JSON object, or text for people

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::Failure;

/// Which of the two
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Output {
    Json,
    Text,
}

/// The line that says which backend runs.
pub(crate) const SIMULATED: &str =
    "backend: simulator (two Macs, one Thunderbolt 5 cable; times are virtual)";

impl Output {
    /// Says at once which backend runs
    pub(crate) fn announce(self, backend: &str) -> Result<(), Failure> {
        if self == Self::Text { line(backend) } else { Ok(()) }
    }

    /// Prints the outcome: `json` as it is, or `rows` as a table of names and values
    pub(crate) fn outcome<const N: usize>(
        self,
        json: &impl Serialize,
        rows: [(&str, String); N],
    ) -> Result<(), Failure> {
        self.print(json, || table(rows.map(|(name, value)| [name.to_owned(), value])))
    }

    /// Prints one of two forms of the same
    pub(crate) fn print(self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self {
            Self::Json => line(&serde_json::to_string(json).map_err(Failure::failed)?),
            Self::Text => line(&text()),
        }
    }
}

/// Rows in columns, without borders
pub(crate) fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}

/// Text from elsewhere, without anything that a terminal would obey
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Prints a line; a reader that has gone away is no failure
fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}

/// Says on standard error what went wrong, and what was behind it
pub(crate) fn error(error: &dyn Error) {
    let mut text = format!("tb5: {error}");
    let mut behind = error.source();
    while let Some(source) = behind {
        let source_text = source.to_string();
        // Errors that only pass another one on say the same again.
        if !text.ends_with(&source_text) {
            text.push_str(": ");
            text.push_str(&source_text);
        }
        behind = source.source();
    }
    // Nothing is left to tell if even that cannot be written.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Seconds on the clock on the wall, from the start of the program's work
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall(Instant);

impl Wall {
    #[expect(clippy::disallowed_methods, reason = "the tool reports wall time beside virtual time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn seconds(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    #[cfg(unix)]
    pub(crate) fn elapsed(self) -> std::time::Duration {
        self.0.elapsed()
    }
}

/// Bytes in a unit that people read
pub(crate) fn bytes(n: u64) -> String {
    indicatif::HumanBytes(n).to_string()
}

/// Microseconds
pub(crate) fn micros(ns: u64) -> String {
    format!("{}.{:03} µs", ns / 1000, ns % 1000)
}
