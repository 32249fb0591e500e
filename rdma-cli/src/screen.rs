//! The terminal on which bars are drawn, and lines above them

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressDrawTarget, TermLike};
use rustix::termios::tcgetwinsize;

/// All bars of the process, drawn in rows below each other
pub(crate) static BARS: LazyLock<MultiProgress> = LazyLock::new(|| MultiProgress::with_draw_target(target()));

/// Writes lines to `stream`; on a terminal, bars are erased before and drawn below the lines
///
/// `write` must not call this function again, and draw no bar: it would wait forever.
pub(crate) fn above_bars<T>(stream: &impl IsTerminal, write: impl FnOnce() -> T) -> T {
    if BARS.is_hidden() || !stream.is_terminal() { write() } else { BARS.suspend(write) }
}

/// The most drawings in a second
const RATE: u8 = 20;

/// Standard error if it is a terminal that moves its cursor; nothing is drawn elsewhere
fn target() -> ProgressDrawTarget {
    let moves_cursor = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    match io::stderr().is_terminal() && moves_cursor {
        true => ProgressDrawTarget::term_like_with_hz(Box::new(Screen::default()), RATE),
        false => ProgressDrawTarget::hidden(),
    }
}

/// Standard error, a terminal; the bytes of one drawing are written at once
///
/// It differs in two ways from the terminal of `indicatif`. A failed write is ignored: `MultiProgress::suspend` would panic, and a
/// terminal that was closed must not end `tb5 serve`. And the cursor is left at the start of the row, so that the `^C` which the terminal
/// shows for Ctrl-C stands in the row that is erased, and not below it.
#[derive(Debug, Default)]
struct Screen {
    pending: Mutex<Drawing>,
}

/// One drawing
#[derive(Debug, Default)]
struct Drawing {
    bytes: String,
    /// Number of letters, which fill whole rows
    letters: usize,
}

/// Rows of the last drawing
static ROWS: AtomicUsize = AtomicUsize::new(0);

/// Rows that bars take on the terminal now; the cursor is in the last one
pub(crate) fn rows() -> usize {
    ROWS.load(Ordering::Relaxed)
}

/// Whether a thread writes a drawing
static DRAWS: AtomicBool = AtomicBool::new(false);
/// Whether the program ends, and draws no more
static ENDS: AtomicBool = AtomicBool::new(false);

/// Lets no drawing begin any more; returns whether one is being written
///
/// May be called by a handler of a signal.
pub(crate) fn end_drawing() -> bool {
    ENDS.store(true, Ordering::SeqCst);
    DRAWS.load(Ordering::SeqCst)
}

impl Screen {
    fn change(&self, change: impl FnOnce(&mut Drawing)) -> io::Result<()> {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// Moves the cursor by `n` in the direction of an escape sequence
    fn move_cursor(&self, n: usize, direction: char) -> io::Result<()> {
        self.change(|pending| {
            if n > 0 {
                // Writing to a string does not fail.
                let _ = write!(pending.bytes, "\x1b[{n}{direction}");
            }
        })
    }
}

/// Rows and columns of the terminal; what most terminals have where it does not say
fn size() -> [u16; 2] {
    let size = tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    size.map_or([24, 80], |size| [size.ws_row, size.ws_col])
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        size()[1]
    }

    fn height(&self) -> u16 {
        size()[0]
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.change(|pending| pending.bytes += &format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.change(|pending| {
            pending.letters += text.chars().filter(|letter| !letter.is_control()).count();
            pending.bytes += text;
        })
    }

    fn clear_line(&self) -> io::Result<()> {
        self.change(|pending| pending.bytes += "\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        self.change(|pending| {
            let Drawing { mut bytes, letters } = mem::take(pending);
            if !bytes.is_empty() {
                bytes.push('\r');
                DRAWS.store(true, Ordering::SeqCst);
                if !ENDS.load(Ordering::SeqCst) {
                    // There is no other place to report a failed write to standard error.
                    let _ = io::stderr().write_all(bytes.as_bytes());
                }
                ROWS.store(letters.div_ceil(self.width().into()), Ordering::Relaxed);
                DRAWS.store(false, Ordering::SeqCst);
            }
        })
    }
}
