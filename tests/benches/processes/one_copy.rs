//! One copy of 1 MiB into the memory of another process by `process_vm_writev`
#![expect(unsafe_code, reason = "the kernel copies between the memories of two processes")]

use std::io::{BufRead as _, BufReader, Error, Lines, Result, Write as _, stdin};
use std::process::{Child, ChildStdout, Command, Stdio};

use rdma_tests::now;

use super::MIB;

/// The argument with which this program is the other process
pub(crate) const PEER: &str = "--one-copy-peer";

/// As many bytes as the queue pairs beside it have
const SPAN: usize = 8 * MIB;

/// The other process: says where its memory is, and writes as many pieces into that of the first one as a line asks for
#[expect(clippy::print_stdout, reason = "the answers are for the other process")]
pub(crate) fn peer() -> Result<()> {
    let mut memory = vec![1_u8; SPAN];
    println!("{}", memory.as_mut_ptr().expose_provenance());
    let number = |line: Result<String>| line?.parse::<usize>().map_err(Error::other);
    let mut lines = stdin().lines();
    let Some(to) = lines.next() else { return Ok(()) };
    let to = number(to)?;
    for line in lines {
        write(std::os::unix::process::parent_id().cast_signed(), &mut memory, to, number(line)?)?;
        println!("done");
    }
    Ok(())
}

/// Writes so many pieces of 1 MiB into the memory of another process
fn write(pid: libc::pid_t, from: &mut [u8], to: usize, count: usize) -> Result<()> {
    for number in 0..count {
        let at = number % (SPAN / MIB) * MIB;
        let from = libc::iovec { iov_base: from[at..].as_mut_ptr().cast(), iov_len: MIB };
        let to = libc::iovec { iov_base: std::ptr::without_provenance_mut(to + at), iov_len: MIB };
        // SAFETY: `from` is inside of a vector of this process; `to` is memory of another process, which the kernel checks.
        match unsafe { libc::process_vm_writev(pid, &raw const from, 1, &raw const to, 1, 0) } {
            written if usize::try_from(written) == Ok(MIB) => {}
            -1 => return Err(Error::last_os_error()),
            written => return Err(Error::other(format!("only {written} bytes were copied"))),
        }
    }
    Ok(())
}

/// Memory of this process, and another process whose memory this one writes
pub(crate) struct OneCopy {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
    from: Vec<u8>,
    /// What the other process writes
    place: Vec<u8>,
    to: usize,
}

impl OneCopy {
    pub(crate) fn new() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(PEER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut answers = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let to = answers.next().expect("it says its address")?.parse().expect("an address");
        let mut one_copy = Self { child, answers, from: vec![2; SPAN], place: vec![0; SPAN], to };
        let place = one_copy.place.as_mut_ptr().expose_provenance();
        one_copy.say(place)?;
        Ok(one_copy)
    }

    fn say(&mut self, number: usize) -> Result<()> {
        writeln!(self.child.stdin.as_mut().expect("it is a pipe"), "{number}")
    }

    /// Bytes that go into the other process in a nanosecond, in so many pieces of 1 MiB
    pub(crate) fn bytes_per_ns(&mut self, count: usize) -> Result<f64> {
        let start = now();
        write(self.child.id().cast_signed(), &mut self.from, self.to, count)?;
        Ok((count * MIB) as f64 / start.elapsed().as_nanos() as f64)
    }

    /// Bytes that both processes together copy in a nanosecond, each so many pieces of 1 MiB into the other one
    ///
    /// An upper bound for messages of which each process copies one half
    pub(crate) fn both_bytes_per_ns(&mut self, count: usize) -> Result<f64> {
        let start = now();
        self.say(count)?;
        write(self.child.id().cast_signed(), &mut self.from, self.to, count)?;
        self.answers.next().expect("it answers")?;
        Ok((2 * count * MIB) as f64 / start.elapsed().as_nanos() as f64)
    }
}

impl Drop for OneCopy {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("the process was started here");
    }
}
