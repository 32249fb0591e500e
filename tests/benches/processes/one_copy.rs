//! One copy of 1 MiB into the memory of another process by `process_vm_writev`
#![expect(unsafe_code, reason = "the kernel copies between the memories of two processes")]

use std::io::{BufRead as _, BufReader, Error, Read as _, Result};
use std::process::{Child, Command, Stdio};

use rdma_tests::now;

use super::MIB;

/// The argument with which this program is the other process
pub(crate) const PEER: &str = "--one-copy-peer";

/// As many bytes as the queue pairs beside it have
const SPAN: usize = 8 * MIB;

/// The other process: says where its memory is, and lives until its standard input ends
#[expect(clippy::print_stdout, reason = "the address is for the other process")]
pub(crate) fn peer() -> Result<()> {
    let mut memory = vec![1_u8; SPAN];
    println!("{}", memory.as_mut_ptr().expose_provenance());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Memory of this process, and another process whose memory this one writes
pub(crate) struct OneCopy {
    child: Child,
    from: Vec<u8>,
    to: usize,
}

impl OneCopy {
    pub(crate) fn new() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(PEER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is a pipe")).read_line(&mut line)?;
        let to = line.trim().parse().expect("an address");
        Ok(Self { child, from: vec![2; SPAN], to })
    }

    /// Bytes that go into the other process in a nanosecond, in so many pieces of 1 MiB
    pub(crate) fn bytes_per_ns(&mut self, count: usize) -> Result<f64> {
        let pid = self.child.id().cast_signed();
        let start = now();
        for number in 0..count {
            let at = number % (SPAN / MIB) * MIB;
            let from = libc::iovec { iov_base: self.from[at..].as_mut_ptr().cast(), iov_len: MIB };
            let to = libc::iovec { iov_base: std::ptr::without_provenance_mut(self.to + at), iov_len: MIB };
            // SAFETY: `from` is inside of a vector of this process; `to` is memory of another process, which the kernel checks.
            match unsafe { libc::process_vm_writev(pid, &raw const from, 1, &raw const to, 1, 0) } {
                written if usize::try_from(written) == Ok(MIB) => {}
                -1 => return Err(Error::last_os_error()),
                written => return Err(Error::other(format!("only {written} bytes were copied"))),
            }
        }
        Ok((count * MIB) as f64 / start.elapsed().as_nanos() as f64)
    }
}

impl Drop for OneCopy {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("the process was started here");
    }
}
