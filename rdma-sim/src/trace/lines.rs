//! Records as lines of text

use std::fmt::Write as _;

use rdma_core::Status;

use super::history::Names;
use super::record::{Ending, Wait};
use super::{History, Record, RecordKind};

impl History {
    /// The records as lines of text, with the names that hosts, ports and cables have at the time
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.named().map(line)
    }

    /// What each record is about, such as `a:rdma_en2 qp 0x0900`
    pub fn subjects(&self) -> impl Iterator<Item = String> + '_ {
        self.named().map(|record, names, _| names.subject(record))
    }

    fn named(&self) -> NamedRecords<'_> {
        NamedRecords { history: self, names: self.names.clone(), next: 0 }
    }
}

/// The records, with the names as they are then
struct NamedRecords<'a> {
    history: &'a History,
    names: Names,
    next: usize,
}

impl NamedRecords<'_> {
    fn map<T>(mut self, mut text: impl FnMut(&Record, &Names, &Names) -> T) -> impl Iterator<Item = T> {
        std::iter::from_fn(move || {
            let record = self.history.records.get(self.next)?;
            self.next += 1;
            let text = text(record, &self.names, &self.history.names);
            self.names.follow(&self.history.names, record);
            Some(text)
        })
    }
}

/// A line, by the names as they are at the time, and those at first
fn line(record: &Record, names: &Names, first: &Names) -> String {
    let Record { time, kind, value, .. } = *record;
    let about = names.subject(record);
    let mut line = format!("{:>6}.{:09}  ", time.as_nanos() / 1_000_000_000, time.as_nanos() % 1_000_000_000);
    let _ = match kind {
        RecordKind::Fault => write!(line, "fault: {about}"),
        RecordKind::Plugged => write!(line, "port {about}: cable {}", record.name()),
        RecordKind::Calm => write!(line, "faults end"),
        RecordKind::Process => write!(line, "host {about}: processes {}", process(value)),
        RecordKind::Port => write!(line, "port {about}: {}", if value == 1 { "active" } else { "down" }),
        RecordKind::Cable => write!(line, "cable {about}: {}", cable(value)),
        RecordKind::Moved => write!(line, "port {about}: gets another cable"),
        RecordKind::Renamed => write!(line, "port {about}: now called {}", first.device(value)),
        _ => write!(line, "{about}  {:<12}{}", record.name(), event(record, names)),
    };
    line
}

fn event(record: &Record, names: &Names) -> String {
    let Record { kind, value, detail, .. } = *record;
    match kind {
        RecordKind::Sent => status(value),
        RecordKind::Delivered => format!("{} bytes, {}", value >> 8, status(value & 0xff)),
        RecordKind::Stall => Wait::text(detail).to_owned(),
        RecordKind::Connect if value == 1 => format!("ready to receive from {}", names.qp(detail as u32)),
        RecordKind::Connect => "failed".to_owned(),
        RecordKind::Dropped => Ending::text(value).to_owned(),
        RecordKind::Lost if value == 0 => "there was no receive of the peer".to_owned(),
        RecordKind::Lost | RecordKind::Damaged => "by a fault".to_owned(),
        RecordKind::Filled => format!("by {}", names.qp(value as u32)),
        _ => format!("{value} bytes"),
    }
}

/// A status of a completion, by its name
pub(super) fn status(code: u64) -> String {
    Status::from_code(code as u32).to_string()
}

/// The state of the processes of a host
pub(super) fn process(value: u64) -> &'static str {
    ["dead", "running", "stopped"].get(value as usize).copied().unwrap_or_default()
}

/// The state of a cable
pub(super) fn cable(value: u64) -> String {
    match (value & 256 != 0, value & 512 != 0, value & 0xff) {
        (true, ..) => "out".to_owned(),
        (_, true, _) => "addresses are not resolved".to_owned(),
        (.., 100) => "as it should be".to_owned(),
        (.., percent) => format!("at {percent} % of its rate"),
    }
}
