//! Output: one JSON object, or text

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::closed_streams;
use crate::screen::above_bars;
use crate::signals::end_on_signals_again;

/// Output format
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Output {
    Json,
    Text,
}

/// The backend in JSON output.
pub(crate) const SIMULATOR: &str = "simulator";

/// The line of text output that names the backend
pub(crate) fn simulated(cables: u8) -> String {
    let cables = match cables {
        1 => "one Thunderbolt 5 cable".to_owned(),
        _ => format!("{cables} Thunderbolt 5 cables"),
    };
    format!("backend: simulator (two Macs, {cables}; times are virtual)")
}

/// Whether only results and errors are printed: set once, before the command is carried out
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves out everything but results and errors: the backend, remarks, progress
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Whether only results and errors are printed
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Whether a file goes to standard output: set once, before anything is printed
static HAS_FILE: AtomicBool = AtomicBool::new(false);

/// Keeps standard output for a file: results go to standard error from now on
pub(crate) fn keep_standard_output() {
    HAS_FILE.store(true, Ordering::Relaxed);
}

impl Output {
    /// Prints the line that names the backend, in text output
    pub(crate) fn announce(self, backend: &str) -> anyhow::Result<()> {
        if self == Self::Text && !is_quiet() {
            print_line(backend)?;
        }
        Ok(())
    }

    /// Prints what carries the bytes between two machines, in text output
    pub(crate) fn announce_carrier(self, carrier: &str) -> anyhow::Result<()> {
        self.announce(&format!("carrier: {carrier}"))
    }

    /// Prints the result: `json` as one object, or `rows` as a table of names and values
    pub(crate) fn outcome<'a>(
        self,
        json: &impl Serialize,
        rows: impl IntoIterator<Item = (&'a str, String)>,
    ) -> anyhow::Result<()> {
        self.print(json, || table(rows.into_iter().map(|(name, value)| [name.to_owned(), plain(&value)])))
    }

    /// Prints `json` if the format is JSON, and nothing otherwise: the text of the result is a file
    pub(crate) fn print_json<T: Serialize>(self, json: impl FnOnce() -> T) -> anyhow::Result<()> {
        match self {
            Self::Json => print_line(&serde_json::to_string(&json())?).map(drop),
            Self::Text => Ok(()),
        }
    }

    /// Prints the result in the chosen format
    pub(crate) fn print(self, json: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self {
            Self::Json => self.print_json(|| json),
            Self::Text => print_line(&text()).map(drop),
        }
    }
}

/// Rows in columns, without borders; control characters are replaced but for the ends of lines
pub(crate) fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for row in rows {
        table.add_row(row.map(|cell| plain_lines(&cell)));
    }
    table.trim_fmt()
}

/// Untrusted text with its control characters replaced
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Text with its control characters replaced, but for the ends of its lines
pub(crate) fn plain_lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Prints a line, and returns whether the output is read: a closed pipe is not a failure
pub(crate) fn print_line(text: &str) -> anyhow::Result<bool> {
    let line = format!("{text}\n");
    if HAS_FILE.load(Ordering::Relaxed) {
        // The file is the result.
        if is_quiet() {
            return Ok(true);
        }
        return written(print_to_standard_error(&line), "standard error");
    }
    print_to_standard_output(|out| out.write_all(line.as_bytes()))
}

/// Whether output goes to a terminal that wants colours
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Copies all of `bytes` to standard output, and returns whether they are read to their end
///
/// A signal ends the program meanwhile: the reader may be slow.
pub(crate) fn print_all(bytes: &mut impl io::Read) -> anyhow::Result<bool> {
    end_on_signals_again()?;
    print_to_standard_output(|out| io::copy(bytes, out).map(drop))
}

/// Lets `print` write to standard output, and returns whether that is read
fn print_to_standard_output(
    print: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>,
) -> anyhow::Result<bool> {
    let print = || {
        closed_streams::require_output()?;
        let mut out = io::stdout().lock();
        print(&mut out).and_then(|()| out.flush())
    };
    written(above_bars(&io::stdout(), print), "standard output")
}

/// Whether the output is still read
fn written(result: io::Result<()>, place: &'static str) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context(format!("{place}: cannot be written"))),
    }
}

/// Prints lines to standard error
pub(crate) fn print_to_standard_error(lines: &str) -> io::Result<()> {
    above_bars(&io::stderr(), || io::stderr().write_all(lines.as_bytes()))
}

/// Prints a remark to standard error
pub(crate) fn note(text: &str) {
    if is_quiet() {
        return;
    }
    // There is no other place to report a failed write to standard error.
    let _ = print_to_standard_error(&format!("tb5: {}\n", plain(text)));
}

/// The text of an error and of its sources, without a source whose text stands before it
///
/// The form `{error:#}` repeats the text of a source that an error includes in its own.
pub(crate) fn with_sources(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for source in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    text
}

/// Prints an error and its sources to standard error, without control characters but for the ends of lines
pub(crate) fn error(error: &anyhow::Error) {
    let text = format!("tb5: {}", with_sources(error));
    // There is no other place to report a failed write to standard error.
    let _ = print_to_standard_error(&format!("{}\n", plain_lines(&text)));
}

/// Wall-clock time since the start of the work
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

    pub(crate) fn elapsed(self) -> std::time::Duration {
        self.0.elapsed()
    }
}

/// A number of bytes in a readable unit
pub(crate) fn bytes(n: u64) -> String {
    indicatif::HumanBytes(n).to_string()
}

/// Bytes per second
pub(crate) fn rate(rate: f64) -> String {
    format!("{:.2} GB/s", rate / 1e9)
}

/// The rate of a cable: `80 Gb/s`
pub(crate) fn line_rate(bits_per_second: u64) -> String {
    format!("{} Gb/s", bits_per_second as f64 / 1e9)
}

/// Bytes per second in GB/s, without the unit: for a column that has the unit in its head
pub(crate) fn gigabytes(rate: f64) -> String {
    format!("{:.3}", rate / 1e9)
}

/// A cell of a table; `-` if there is no text
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Repairs of a session
pub(crate) fn repairs(reconnects: u32, retransmitted_bytes: u64) -> String {
    let times = if reconnects == 1 { "once".to_owned() } else { format!("{reconnects} times") };
    format!("reconnected {times}; {} retransmitted", bytes(retransmitted_bytes))
}

/// Nanoseconds as microseconds
pub(crate) fn micros(ns: u64) -> String {
    format!("{}.{:03} µs", ns / 1000, ns % 1000)
}

/// Nanoseconds in a readable unit: microseconds below one millisecond
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => micros(ns),
        _ => format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a text that is repeated, and a source that is lost.
    #[test]
    fn a_source_is_said_once() {
        let error = |texts: &[&'static str]| {
            let [first, others @ ..] = texts else { panic!("no text") };
            with_sources(&others.iter().fold(anyhow::anyhow!(*first), |error, text| error.context(*text)))
        };
        assert_eq!(error(&["no space"]), "no space");
        assert_eq!(error(&["no space", "x: cannot be written"]), "x: cannot be written: no space");
        assert_eq!(error(&["no space", "no space"]), "no space");
        assert_eq!(
            error(&["no space", "it failed: no space", "x: incomplete (it failed: no space)"]),
            "x: incomplete (it failed: no space)"
        );
        assert_eq!(error(&["no space", "x: it failed (no space)", "host"]), "host: x: it failed (no space)");
    }
}
