//! Panics of tests: where they are, and those that would end the process without a word about the run

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::Once;

/// What the language says before it aborts
const IN_CLEANUP: &str = "panic in a destructor during cleanup";

thread_local! {
    /// Whether messages are not printed
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of this thread was
    static SITE: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The line that repeats the run of this thread
    static LINE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Watches the panics of all threads from now on
fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload_as_str().is_some_and(|text| text.contains(IN_CLEANUP))
                && let Some(line) = LINE.with_borrow(Clone::clone)
            {
                // The process aborts next: this is the last word.
                let text = "a destructor panicked while the test was unwinding from a panic, which ends the process: let it \
                            return instead, for example if `std::thread::panicking()`.\nTo repeat it:";
                let _ = writeln!(std::io::stderr(), "\n{text}\n\n{line}\n");
            }
            SITE.set(info.location().map(ToString::to_string));
            if !IS_QUIET.get() {
                hook(info);
            }
        }));
    });
}

/// Where the panic was that was just caught
pub(super) fn take_site() -> Option<String> {
    SITE.with(RefCell::take)
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
