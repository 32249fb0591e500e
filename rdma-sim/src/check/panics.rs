//! Panics of tests: where they are, and those that would end the process without a word about the run

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::rc::Rc;
use std::sync::Once;

/// Why a panic ends the process
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Abort {
    InCleanup,
    NoUnwind,
    /// The program is built with `panic = "abort"`
    Profile,
}

impl Abort {
    /// Why a panic with this text ends the process, if it does; `aborts` if the program cannot unwind
    fn of(text: &str, aborts: bool) -> Option<Self> {
        // What the language says before it aborts.
        if text.contains("panic in a destructor during cleanup") {
            Some(Self::InCleanup)
        } else if text.contains("panic in a function that cannot unwind") {
            Some(Self::NoUnwind)
        } else {
            aborts.then_some(Self::Profile)
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::InCleanup => {
                "a destructor panicked while the test was unwinding from a panic, which ends the process: let it return instead, for example \
                 if `std::thread::panicking()`."
            }
            Self::NoUnwind => {
                "a function that cannot unwind, such as one of `extern \"C\"`, panicked, which ends the process."
            }
            Self::Profile => {
                "a run of a check panicked. The program is built with `panic = \"abort\"`, which ends the process before the run can be \
                 shrunk: build it with `panic = \"unwind\"`, or run the check as a test of `cargo test`, which always unwinds."
            }
        }
    }
}

thread_local! {
    /// Whether messages are not printed
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// The last panic of this thread, and the one before it
    static LAST: RefCell<[Option<Panic>; 2]> = const { RefCell::new([None, None]) };
    /// Makes the line that repeats the run of this thread
    static LINE: RefCell<Option<Rc<dyn Fn() -> String>>> = const { RefCell::new(None) };
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
            let abort = Abort::of(&panic.text, cfg!(panic = "abort"));
            let line = line();
            // The process ends at the first panic: it is the one to print.
            let is_first = abort == Some(Abort::Profile);
            if is_first {
                keep(panic);
                line.iter().for_each(|line| print_before_abort(Abort::Profile, line));
            } else {
                if let (Some(abort), Some(line)) = (abort, &line) {
                    print_before_abort(abort, line);
                }
                keep(panic);
            }
            if !IS_QUIET.get() {
                // The hook of libFuzzer ends the process: nothing after it is printed.
                if abort.is_none() {
                    print_replay_line();
                }
                hook(info);
            }
        }));
    });
}

/// Keeps the last panic of this thread, and the one before it
fn keep(panic: Panic) {
    LAST.with_borrow_mut(|[last, before]| *before = last.replace(panic));
}

/// The line that repeats the run of this thread, if there is one
fn line() -> Option<String> {
    let line = LINE.with_borrow(Clone::clone)?;
    Some(line())
}

/// Prints the line that repeats the run of this thread, if there is one, to where the message of its panic goes
#[expect(clippy::print_stderr, reason = "beside the message of the panic, which is printed there")]
fn print_replay_line() {
    if let Some(line) = line() {
        eprintln!("\nA panic in a run of a check. To repeat it:\n\n{line}\n");
    }
}

/// Prints the last panics and the line that repeats them: the process aborts next
fn print_before_abort(abort: Abort, line: &str) {
    let panics = LAST.with_borrow(|[last, before]| {
        let panics = match abort {
            Abort::InCleanup => vec![("The panic before it", before), ("The panic of the destructor", last)],
            Abort::NoUnwind | Abort::Profile => vec![("The panic", last)],
        };
        let texts = panics.into_iter().filter_map(|(name, panic)| {
            panic.as_ref().map(|Panic { text, site }| format!("\n{name}: {text}\nat {site}"))
        });
        texts.collect::<String>()
    });
    let reason = abort.reason();
    let _ = writeln!(std::io::stderr(), "\n{reason}{panics}\nTo repeat it:\n\n{line}\n");
}

/// Where the panic was that was just caught
pub(super) fn take_site() -> Option<String> {
    LAST.take()[0].take().map(|panic| panic.site)
}

/// Runs `f`; if a destructor panics while `f` unwinds, prints what `line` returns, which repeats the run, before the process aborts
pub(super) fn watched<T>(line: impl Fn() -> String + 'static, is_quiet: bool, f: impl FnOnce() -> T) -> T {
    watch();
    take_site();
    LINE.set(Some(Rc::new(line)));
    let was_quiet = IS_QUIET.replace(is_quiet);
    let value = f();
    IS_QUIET.set(was_quiet);
    LINE.set(None);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program with `panic = "abort"` ended without a word, neither about the panic nor about its run.
    #[test]
    fn a_panic_that_ends_the_process_is_told_from_one_that_is_caught() {
        assert_eq!(Abort::of("a bug", false), None);
        assert_eq!(Abort::of("a bug", true), Some(Abort::Profile));
        for aborts in [false, true] {
            let in_cleanup = Abort::of("panic in a destructor during cleanup", aborts);
            assert_eq!(in_cleanup, Some(Abort::InCleanup));
            assert_eq!(Abort::of("panic in a function that cannot unwind", aborts), Some(Abort::NoUnwind));
        }
    }
}
