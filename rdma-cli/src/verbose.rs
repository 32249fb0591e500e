//! What happens inside, on standard error: the events that the crates report to `tracing`

use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::report::{plain, print_to_standard_error};

/// Prints events, but for those that trace single steps; an event that repeats the one before is counted
struct Printer;

/// The last line that was printed, and how often it was repeated since
static LAST: Mutex<(String, u64)> = Mutex::new((String::new(), 0));

/// Prints how often the last event was repeated
pub(crate) fn finish() {
    print("");
}

/// Prints a line, unless it is the last one again
fn print(line: &str) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.0 == line {
        last.1 += u64::from(!line.is_empty());
        return;
    }
    let mut lines = match last.1 {
        0 => String::new(),
        1 => "tb5: the last event was repeated once\n".to_owned(),
        more => format!("tb5: the last event was repeated {more} times\n"),
    };
    if !line.is_empty() {
        lines += &format!("{line}\n");
    }
    // There is no other place to report a failed write to standard error.
    let _ = print_to_standard_error(&lines);
    *last = (line.to_owned(), 0);
}

/// Prints events from now on
pub(crate) fn print_events() -> Result<(), SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(Printer)
}

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Spans are not enabled, and never entered: one number is as good as another.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        let level = event.metadata().level().as_str().to_lowercase();
        print(&format!("tb5: {level}: {}", plain(&format!("{message}{fields}"))));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name} {value:?}"),
        };
    }
}
