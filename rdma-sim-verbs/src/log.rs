//! Errors that programs of the C ABI have no other way to learn

/// Writes an error to standard error
#[expect(clippy::print_stderr, reason = "a program of the C ABI has no other log")]
pub(crate) fn log_error(error: &str) {
    eprintln!("librdma: {error}");
}
