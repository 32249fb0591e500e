//! The output of the programs, each line with its host in front

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::cause::Cause;
use crate::file::Identity;
use crate::report::is_coloured;

/// Longer lines are printed in pieces.
const MAX_LINE: u64 = 64 * 1024;
/// Time that a run that was ended from outside waits for the reader of its last lines.
pub(super) const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream of this process
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stream {
    Stderr,
    Stdout,
}

impl Stream {
    fn is_coloured(self) -> bool {
        match self {
            Self::Stderr => is_coloured(&io::stderr()),
            Self::Stdout => is_coloured(&io::stdout()),
        }
    }

    fn write(self, line: &[u8]) -> io::Result<()> {
        static WRITING: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
        // Lines of a terminal are not mixed; one reader that stalls does not hold up the other one.
        let lock = if self == Self::Stderr && !have_one_reader() { &WRITING[1] } else { &WRITING[0] };
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            Self::Stderr => io::stderr().write_all(line),
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line).and_then(|()| out.flush())
            }
        }
    }
}

/// Whether both streams of this process lead to the same file, pipe or terminal
fn have_one_reader() -> bool {
    static SAME: LazyLock<bool> = LazyLock::new(|| {
        let file = |stream: BorrowedFd<'_>| {
            let found = File::from(stream.try_clone_to_owned().ok()?).metadata().ok()?;
            Some(Identity::of(&found))
        };
        file(io::stdout().as_fd()) == file(io::stderr().as_fd())
    });
    *SAME
}

const COLOURS: [&str; 6] = ["36", "33", "32", "35", "34", "31"];

/// The output of the tool is read.
const READ: u8 = 0;
/// The reader has closed the output of the tool.
const UNREAD: u8 = 1;
/// The output of the tool cannot be written.
const UNWRITTEN: u8 = 2;

/// Copies the output of hosts to a stream, in one thread each
#[derive(Clone, Debug)]
pub(super) struct Relay {
    /// [`READ`], [`UNREAD`] or [`UNWRITTEN`]; it only grows.
    state: Arc<AtomicU8>,
    /// The number of threads that have read a line and not written it yet.
    writing: Arc<AtomicUsize>,
    /// Receives a value when an output ends.
    ended: Sender<()>,
    /// Length of the longest host name.
    width: usize,
}

impl Relay {
    /// A relay for hosts with names of at most `width` characters, and the receiver of a value for each output that ends
    pub(super) fn new(width: usize) -> (Self, Receiver<()>) {
        let (ended, ends) = mpsc::channel();
        (Self { state: Arc::new(AtomicU8::new(READ)), writing: Arc::default(), ended, width }, ends)
    }

    /// Whether a line waits for the reader of this tool's output
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::Relaxed) > 0
    }

    /// Why the run ends because of its output, if it does
    pub(super) fn cause(&self) -> Option<Cause> {
        match self.state.load(Ordering::Relaxed) {
            READ => None,
            UNREAD => Some(Cause::Unread),
            _ => Some(Cause::Unwritten),
        }
    }

    pub(super) fn begin(
        &self,
        from: impl Read + Send + 'static,
        to: Stream,
        host: &str,
        number: usize,
    ) -> io::Result<()> {
        let width = self.width;
        let prefix = |mark: char| match to.is_coloured() {
            true => format!("\x1b[{}m{host:<width$} {mark}\x1b[0m ", COLOURS[number % COLOURS.len()]),
            false => format!("{host:<width$} {mark} "),
        };
        let prefixes = [prefix('|').into_bytes(), prefix('+').into_bytes()];
        let relay = self.clone();
        let copying = move || {
            relay.copy(from, |line| to.write(line), &prefixes);
            // The receiver is gone if the tool ends first.
            let _ = relay.ended.send(());
        };
        thread::Builder::new().name(format!("output of {host}")).spawn(copying).map(drop)
    }

    fn copy(
        &self,
        from: impl Read,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
        [begins, goes_on]: &[Vec<u8>; 2],
    ) {
        let mut from = BufReader::with_capacity(MAX_LINE as usize, from);
        let mut prefix = begins;
        loop {
            let mut line = prefix.clone();
            match from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.ends_with(b"\n") => prefix = begins,
                Ok(_) => {
                    line.push(b'\n');
                    prefix = goes_on;
                }
            }
            self.writing.fetch_add(1, Ordering::Relaxed);
            let written = write(&line);
            self.writing.fetch_sub(1, Ordering::Relaxed);
            let Err(error) = written else { continue };
            // A closed pipe is no failure of the writer.
            let state = if error.kind() == io::ErrorKind::BrokenPipe { UNREAD } else { UNWRITTEN };
            // The message is written afterwards: its reader may stall.
            let before = self.state.fetch_max(state, Ordering::Relaxed);
            if state == UNWRITTEN && before < UNWRITTEN {
                write_own(&format!("the output of programs cannot be written: {error}"));
            }
        }
    }
}

/// Writes a line of the tool itself
fn write_own(text: &str) {
    // There is no other place to report a failed write to standard error.
    let _ = Stream::Stderr.write(format!("tb5: {text}\n").as_bytes());
}

/// Lines of the tool itself, written by a thread of its own
///
/// The reader of the output may stall, and the run is ended in time nevertheless.
#[derive(Debug)]
pub(super) struct OwnLines {
    /// `None` once no line follows.
    lines: Option<Sender<String>>,
    written: Receiver<()>,
}

impl OwnLines {
    pub(super) fn new() -> io::Result<Self> {
        let (lines, texts) = mpsc::channel::<String>();
        let (done, written) = mpsc::channel();
        let writing = move || {
            texts.iter().for_each(|text| write_own(&text));
            // The receiver is gone if the tool does not wait any longer.
            let _ = done.send(());
        };
        thread::Builder::new().name("lines of the tool".to_owned()).spawn(writing)?;
        Ok(Self { lines: Some(lines), written })
    }

    pub(super) fn print(&self, text: &str) {
        // The thread ends after the sender only.
        let _ = self.lines.as_ref().map(|lines| lines.send(text.to_owned()));
    }

    /// Says that no line follows, and returns what receives a value when all of them are written
    pub(super) fn finish(&mut self) -> &Receiver<()> {
        self.lines = None;
        &self.written
    }
}

impl Drop for OwnLines {
    /// Gives a run that failed the time to write what it has printed
    fn drop(&mut self) {
        if self.lines.take().is_some() {
            // An error says that there is nothing to wait for.
            let _ = self.written.recv_timeout(LAST_LINES_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_printed_in_pieces() {
        let (relay, _) = Relay::new(1);
        let mut text = vec![b'x'; MAX_LINE as usize * 2];
        text.extend(b"y\nnext\n\xff");
        let mut lines = Vec::new();
        relay.copy(
            &*text,
            |line| {
                lines.push(line.to_vec());
                Ok(())
            },
            &[b"a | ".to_vec(), b"a + ".to_vec()],
        );
        let lines: Vec<_> = lines.iter().map(|line| (line[..4].to_vec(), line.len() - 4)).collect();
        let expected = [
            (b"a | ", MAX_LINE as usize + 1),
            (b"a + ", MAX_LINE as usize + 1),
            (b"a + ", 2),
            (b"a | ", 5),
            (b"a | ", 2),
        ];
        assert_eq!(lines, expected.map(|(prefix, len)| (prefix.to_vec(), len)));
    }
}
