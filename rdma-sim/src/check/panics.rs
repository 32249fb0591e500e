//! Panics of tests: those that would end the process without a word about the run

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::sync::Once;

use crate::caught::{self, Panic};

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
    /// Makes the line that repeats the run of this thread
    static LINE: RefCell<Option<Rc<dyn Fn() -> String>>> = const { RefCell::new(None) };
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
                caught::keep(panic);
                line.iter().for_each(|line| print_before_abort(Abort::Profile, line));
            } else {
                if let (Some(abort), Some(line)) = (abort, &line) {
                    print_before_abort(abort, line);
                }
                caught::keep(panic);
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
    let mut panics = caught::last();
    let names = match abort {
        Abort::InCleanup => ["The panic before it", "The panic of the destructor"],
        Abort::NoUnwind | Abort::Profile => {
            panics = panics.split_off(panics.len().saturating_sub(1));
            ["", "The panic"]
        }
    };
    let count = panics.len();
    let texts = panics.into_iter().enumerate().map(|(number, Panic { text, site })| {
        let name = names[usize::from(number + 1 == count)];
        format!("\n{name}: {text}\nat {}", site.unwrap_or_default())
    });
    let texts: String = texts.collect();
    let reason = abort.reason();
    let _ = writeln!(std::io::stderr(), "\n{reason}{texts}\nTo repeat it:\n\n{line}\n");
}

/// Runs `f`; if a destructor panics while `f` unwinds, prints what `line` returns, which repeats the run, before the process aborts
pub(super) fn watched<T>(line: impl Fn() -> String + 'static, is_quiet: bool, f: impl FnOnce() -> T) -> T {
    watch();
    LINE.set(Some(Rc::new(line)));
    let was_quiet = IS_QUIET.replace(is_quiet);
    let value = caught::alone(f);
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
