//! Panics of tests: where they are, and those that would end the process without a word about the run

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// What the language says before it aborts
const IN_CLEANUP: &str = "panic in a destructor during cleanup";
const NO_UNWIND: &str = "panic in a function that cannot unwind";

thread_local! {
    /// Whether messages are not printed
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// The last panic of this thread, and the one before it
    static LAST: RefCell<[Option<Panic>; 2]> = const { RefCell::new([None, None]) };
    /// The line that repeats the run of this thread
    static LINE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic, and where it was
#[derive(Debug)]
struct Panic {
    text: String,
    site: String,
}

impl Panic {
    fn of(info: &PanicHookInfo<'_>) -> Self {
        let text = info.payload_as_str().unwrap_or("a panic without a text").to_owned();
        Self { text, site: info.location().map(ToString::to_string).unwrap_or_default() }
    }
}

/// Watches the panics of all threads from now on
fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let panic = Panic::of(info);
            let aborts = [IN_CLEANUP, NO_UNWIND].map(|words| panic.text.contains(words));
            if aborts.contains(&true)
                && let Some(line) = LINE.with_borrow(Clone::clone)
            {
                print_before_abort(aborts[0], &line);
            }
            LAST.with_borrow_mut(|[last, before]| *before = last.replace(panic));
            if !IS_QUIET.get() {
                // The hook of libFuzzer ends the process: nothing after it is printed.
                if !aborts.contains(&true) {
                    print_replay_line();
                }
                hook(info);
            }
        }));
    });
}

/// Prints the line that repeats the run of this thread, if there is one, to where the message of its panic goes
#[expect(clippy::print_stderr, reason = "beside the message of the panic, which is printed there")]
fn print_replay_line() {
    if let Some(line) = LINE.with_borrow(Clone::clone) {
        eprintln!("\nA panic in a run of a check. To repeat it:\n\n{line}\n");
    }
}

/// Prints the last panics and the line that repeats them: the process aborts next
fn print_before_abort(is_in_cleanup: bool, line: &str) {
    let reason = if is_in_cleanup {
        "a destructor panicked while the test was unwinding from a panic, which ends the process: let it return instead, for example \
         if `std::thread::panicking()`."
    } else {
        "a function that cannot unwind, such as one of `extern \"C\"`, panicked, which ends the process."
    };
    let panics = LAST.with_borrow(|[last, before]| {
        let panics = match is_in_cleanup {
            true => vec![("The panic before it", before), ("The panic of the destructor", last)],
            false => vec![("The panic", last)],
        };
        let texts = panics.into_iter().filter_map(|(name, panic)| {
            panic.as_ref().map(|Panic { text, site }| format!("\n{name}: {text}\nat {site}"))
        });
        texts.collect::<String>()
    });
    let _ = writeln!(std::io::stderr(), "\n{reason}{panics}\nTo repeat it:\n\n{line}\n");
}

/// Where the panic was that was just caught
pub(super) fn take_site() -> Option<String> {
    LAST.take()[0].take().map(|panic| panic.site)
}

/// Runs `f`; if a destructor panics while `f` unwinds, prints `line`, which repeats the run, before the process aborts
pub(super) fn watched<T>(line: String, is_quiet: bool, f: impl FnOnce() -> T) -> T {
    watch();
    take_site();
    LINE.set(Some(line));
    let was_quiet = IS_QUIET.replace(is_quiet);
    let value = f();
    IS_QUIET.set(was_quiet);
    LINE.set(None);
    value
}
