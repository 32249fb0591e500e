//! Signals that end the program

#![allow(unsafe_code, reason = "calls of libc")]

use std::io;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::screen::{end_drawing, rows};

/// Actions of [`end_on_signals`]
static ENDS: Mutex<Vec<SigId>> = Mutex::new(Vec::new());
/// The interrupt that a command [listens](Interrupt::listen) to, once it does
static LISTENING: Mutex<Option<Interrupt>> = Mutex::new(None);

/// Ends the program at once when the user asks for it, with the message and the exit code of [`Interrupted`], until a command
/// [listens](Interrupt::listen) itself
pub(crate) fn end_on_signals() -> io::Result<()> {
    let message = end_message();
    let mut ends = lock(&ENDS);
    for signal in SIGNALS.into_iter().filter(|signal| !is_ignored(*signal)) {
        let message = message.clone();
        let end = move || {
            if !HOLD.takes(signal) {
                end(signal, &message);
            }
        };
        // SAFETY: the action changes an atomic number and makes two system calls, which is permitted in a handler.
        ends.push(unsafe { signal_hook::low_level::register(signal, end) }?);
    }
    Ok(())
}

/// Ends the program at once by the next signal, or by one that has come already, although the command [listens](Interrupt::listen)
///
/// For work that may wait for long, and leaves nothing behind.
pub(crate) fn end_on_signals_again() -> io::Result<()> {
    let Some(interrupt) = lock(&LISTENING).take() else { return Ok(()) };
    end_on_signals()?;
    if let Some(signal) = interrupt.signal() {
        end(signal, &end_message());
    }
    Ok(())
}

/// Fails if the command [listens](Interrupt::listen), and was asked to stop
pub(crate) fn check() -> Result<(), Interrupted> {
    lock(&LISTENING).as_ref().map_or(Ok(()), Interrupt::check)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does work that leaves a temporary file behind if the program ends meanwhile: a signal of [`end_on_signals`] ends it afterwards
///
/// A second signal ends the program at once.
pub(crate) fn hold<T>(work: impl FnOnce() -> T) -> T {
    HOLD.begin();
    let done = work();
    if let Some(signal) = HOLD.release() {
        end(signal, &end_message());
    }
    done
}

static HOLD: Hold = Hold(AtomicUsize::new(Hold::NONE));

/// Whether signals are held back, and the one that came meanwhile: changed by handlers
struct Hold(AtomicUsize);

impl Hold {
    const NONE: usize = 0;
    const HELD: usize = 1;
    /// The number of a signal is added.
    const SIGNAL: usize = 2;

    fn begin(&self) {
        self.0.store(Self::HELD, Ordering::SeqCst);
    }

    /// Whether a signal is held back; the first one is
    fn takes(&self, signal: i32) -> bool {
        let taken = Self::SIGNAL + signal as usize;
        self.0.compare_exchange(Self::HELD, taken, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Holds signals back no longer, and returns the one that came
    fn release(&self) -> Option<i32> {
        let before = self.0.swap(Self::NONE, Ordering::SeqCst);
        before.checked_sub(Self::SIGNAL).map(|signal| signal as i32)
    }
}

/// The message of a program that ends by [`end_on_signals`]
fn end_message() -> String {
    // A progress bar may stand in the line of a terminal.
    let erased = if io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
    format!("{erased}tb5: {INTERRUPTED}\n")
}

/// How long a program that ends waits for a bar that is being drawn, in milliseconds.
const MOST_WAITED_MS: u32 = 50;

/// Ends the program at once; may be called by a handler
///
/// The message is left out if its reader stalls, which would hold up the end.
fn end(signal: i32, message: &str) {
    // A bar that another thread draws would be left below the message. If it is this thread, which the signal has interrupted, it goes no further.
    for _ in 0..MOST_WAITED_MS {
        if !end_drawing() {
            break;
        }
        // SAFETY: without descriptors, it only waits.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
    }
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor is polled, which is on the stack.
    let has_room = unsafe { libc::poll(&raw mut stderr, 1, 0) } > 0;
    if has_room {
        // The message erases the first row, and these the others, from the last one up.
        for text in std::iter::repeat_n("\x1b[2K\x1b[1A", rows().saturating_sub(1)).chain([message]) {
            // SAFETY: the bytes are those of the text.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
    }
    signal_hook::low_level::exit(exit_code(signal).into());
}

/// Makes a write beyond the limit of file size fail, after which the temporary file is removed, instead of ending the program
///
/// The signal is handled and not ignored: programs that this one starts have the default action again. Where it was ignored when the
/// program started, it stays so for them as well.
pub(crate) fn fail_writes_beyond_limits() -> io::Result<()> {
    if is_ignored(libc::SIGXFSZ) {
        return Ok(());
    }
    // The flag has no reader.
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default()).map(drop)
}

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];

/// Whether a signal has asked the program to stop: Ctrl-C, a termination signal, a closed terminal
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
    /// The number of the signal, 0 before it arrives.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Records SIGINT, SIGTERM and SIGHUP from now on, so that the program ends in order
    ///
    /// A second signal ends the program at once. A signal that was ignored when the program started stays ignored, so that
    /// `nohup` and background jobs of a script work as for other programs.
    pub(crate) fn listen() -> io::Result<Self> {
        let (flag, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        // The first signal has its own message where no bar is drawn.
        let message = if io::stderr().is_terminal() { end_message() } else { String::new() };
        for signal in SIGNALS.into_iter().filter(|signal| !is_ignored(*signal)) {
            let (is_second, message) = (Arc::clone(&flag), message.clone());
            let end_at_once = move || {
                if is_second.load(Ordering::SeqCst) {
                    end(signal, &message);
                }
            };
            // SAFETY: the action reads an atomic flag and makes two system calls, which is permitted in a handler.
            unsafe { signal_hook::low_level::register(signal, end_at_once) }?;
            signal_hook::flag::register_usize(signal, Arc::clone(&number), signal as usize)?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        for end in lock(&ENDS).drain(..) {
            signal_hook::low_level::unregister(end);
        }
        let listening = Self { flag, signal: number };
        *lock(&LISTENING) = Some(listening.clone());
        Ok(listening)
    }

    /// Whether the program was asked to stop
    pub(crate) fn is_requested(&self) -> bool {
        // The number of the signal is stored before.
        self.flag.load(Ordering::Acquire)
    }

    /// Fails if the program was asked to stop
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if !self.is_requested() {
            return Ok(());
        }
        Err(Interrupted { signal: self.signal.load(Ordering::Relaxed) as u8 })
    }

    /// The signal that asked the program to stop
    pub(crate) fn signal(&self) -> Option<i32> {
        self.is_requested().then(|| self.signal.load(Ordering::Relaxed) as i32)
    }
}

/// The message of a program that a signal has stopped
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The exit code, by which a shell knows that its own signal ended the program
pub(crate) fn exit_code(signal: i32) -> u8 {
    128_u8.wrapping_add(signal as u8)
}

/// A signal has asked the program to stop
#[derive(Debug, thiserror::Error)]
#[error("{INTERRUPTED}")]
pub(crate) struct Interrupted {
    signal: u8,
}

impl Interrupted {
    pub(crate) fn exit_code(&self) -> u8 {
        exit_code(self.signal.into())
    }
}

#[allow(unsafe_code, reason = "there is no safe interface that reads the disposition of a signal")]
fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new disposition is given, and the present one is written into memory of its type.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeros are valid, and what the system wrote is, too.
    let now = unsafe { now.assume_init() };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a signal that gets lost while another thread handles it, and one that ends the program between.
    #[test]
    fn the_first_signal_is_held_back() {
        let hold = Hold(AtomicUsize::new(Hold::NONE));
        assert!(!hold.takes(SIGINT));
        hold.begin();
        assert!(hold.takes(SIGTERM) && !hold.takes(SIGINT));
        assert_eq!(hold.release(), Some(SIGTERM));
        assert!(!hold.takes(SIGINT));
        hold.begin();
        assert_eq!(hold.release(), None);
    }
}
