//! Events that the crates report to `tracing`, on standard error

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::report::{plain, print_to_standard_error};

/// Prints events, but for those that trace single steps; an event that repeats the one before is counted
#[derive(Default)]
struct Printer(Mutex<Spans>);

/// The spans that are open
#[derive(Default)]
struct Spans {
    last: u64,
    open: HashMap<u64, Span>,
}

/// The seed and the host in a span and those around it, and how many handles it has
struct Span {
    fields: String,
    handles: usize,
}

thread_local! {
    /// The spans that this thread has entered
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

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
    tracing::subscriber::set_global_default(Printer::default())
}

impl Printer {
    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seed and the host where this thread is
    fn fields(&self) -> String {
        let entered = ENTERED.with_borrow(|entered| entered.last().copied());
        let spans = self.spans();
        entered.and_then(|id| spans.open.get(&id)).map_or_else(String::new, |span| span.fields.clone())
    }
}

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // The span of a peer has no parent, and is made by the program of a host.
        let mut fields = SpanFields(self.fields());
        span.record(&mut fields);
        let mut spans = self.spans();
        spans.last += 1;
        let id = spans.last;
        spans.open.insert(id, Span { fields: fields.0, handles: 1 });
        Id::from_u64(id)
    }

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(span) = self.spans().open.get_mut(&id.into_u64()) {
            span.handles += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let (id, mut spans) = (id.into_u64(), self.spans());
        let Some(span) = spans.open.get_mut(&id) else { return false };
        span.handles -= 1;
        let is_last = span.handles == 0;
        if is_last {
            spans.open.remove(&id);
        }
        is_last
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        let level = event.metadata().level().as_str().to_lowercase();
        print(&format!("tb5: {level}: {}", plain(&format!("{message}{fields}{}", self.fields()))));
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            // Spans may be left in another order than they were entered in.
            let last = entered.iter().rposition(|entered| *entered == id.into_u64());
            last.map(|last| entered.remove(last))
        });
    }
}

/// The seed and the host of a span, as further fields of its events
struct SpanFields(String);

impl Visit for SpanFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["seed", "host"].contains(&field.name()) {
            // Writing to a string does not fail.
            let _ = write!(self.0, ", {field} {value:?}");
        }
    }
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
