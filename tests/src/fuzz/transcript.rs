//! A readable account of what a fuzz input does, printed when its run panics

use std::cell::RefCell;
use std::fmt::Debug;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The account of one run on this thread; dropped by a panic, it prints all lines
#[derive(Debug)]
pub(super) struct Transcript(());

impl Transcript {
    pub(super) fn begin() -> Self {
        LINES.take();
        Self(())
    }
}

/// Adds a line for `step`, which is about to happen or has just happened
pub(super) fn log(step: &impl Debug) {
    LINES.with_borrow_mut(|lines| lines.push(format!("{step:?}")));
}

/// Adds a line for a call of the C ABI that is about to happen
pub(super) fn log_call(function: &str) {
    LINES.with_borrow_mut(|lines| lines.push(function.to_owned()));
}

/// Adds an argument to the line of the call
pub(super) fn log_argument<T: Debug>(argument: T) -> T {
    append(&format!(" {argument:?}"));
    argument
}

/// Adds the answer to the line of the call
pub(super) fn log_answer<T: Debug>(answer: T) -> T {
    append(&format!(" -> {answer:?}"));
    answer
}

fn append(text: &str) {
    LINES.with_borrow_mut(|lines| lines.last_mut().expect("a call was logged before").push_str(text));
}

impl Drop for Transcript {
    #[expect(clippy::print_stderr, reason = "the account is for the engineer who reads the failure")]
    fn drop(&mut self) {
        let lines = LINES.take();
        if std::thread::panicking() {
            eprintln!("steps of the input, the last one failed:\n{}", lines.join("\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_calls_are_readable() {
        let transcript = Transcript::begin();
        log(&Some(3));
        log_call("ibv_poll_cq");
        assert_eq!((log_argument(1), log_argument("x"), log_answer(-22)), (1, "x", -22));
        assert_eq!(LINES.with_borrow(Clone::clone), ["Some(3)", "ibv_poll_cq 1 \"x\" -> -22"]);
        drop(transcript);
        assert!(LINES.take().is_empty());
    }
}
