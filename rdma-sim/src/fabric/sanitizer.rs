//! The DMA sanitizer: finds programs that touch memory while a device works on it
//!
//! Receive buffers are poisoned when they are posted, and checked for the poison when they complete; sends are hashed when
//! they are posted, and again frame by frame when they leave and as a whole with their last frame.
//! A sanitizer that is off finds nothing.

use std::fmt;
use std::panic::Location;

use rdma_core::{FRAME, Opcode, Status, Time, WrId};
use twox_hash::XxHash3_64;

use super::ids::{QpKey, RegionKey, Span};
use super::memory::Memory;
use super::queue_pairs::EndedReceive;

/// Misuse of memory, or of a queue, that the sanitizer saw
///
/// ```
/// use rdma_sim::Sim;
///
/// // `try_run` returns the findings, on which `run` panics.
/// let run = Sim::new().sanitize(true).try_run(|net| async move { net.findings() })?;
/// for finding in &run.findings {
///     println!("{finding}");
/// }
/// assert_eq!(run.findings, run.value);
/// # Ok::<(), rdma_sim::RunError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// What it was
    pub kind: FindingKind,
    /// The virtual time at which it was noticed
    pub time: Time,
    /// The request in question, and where it was posted
    pub post: Option<(WrId, &'static Location<'static>)>,
}

/// A kind of misuse
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// More completed than the completion queue holds
    CqOverflow {
        /// Entries that it holds
        depth: u32,
    },
    /// A region was deregistered while a request named it
    DeregisteredUnderWork,
    /// A request was posted over memory that another one names, and one of them writes there
    OverlappingPosts,
    /// The program wrote into a receive buffer that was posted
    ReceiveWritten,
    /// The program wrote into a send that was posted
    SendWritten,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CqOverflow { depth } => {
                write!(f, "more completed than the {depth} entries of the completion queue hold")
            }
            Self::DeregisteredUnderWork => {
                f.write_str("memory was deregistered while a posted request named it")
            }
            Self::OverlappingPosts => {
                f.write_str("a request was posted over memory that another posted request names")
            }
            Self::ReceiveWritten => f.write_str("a posted receive buffer was written by the program"),
            Self::SendWritten => f.write_str("a posted send was written by the program before it had left"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (noticed at {}", self.kind, self.time)?;
        match self.post {
            Some((id, site)) => write!(f, ", request {} posted at {site})", id.0),
            None => f.write_str(")"),
        }
    }
}

/// Watches the memory of posted requests
#[derive(Debug)]
pub(crate) struct Sanitizer {
    is_on: bool,
    posts: Vec<Post>,
    findings: Vec<Finding>,
}

/// A posted range of memory
#[derive(Debug)]
struct Post {
    qp: QpKey,
    id: WrId,
    opcode: Opcode,
    span: Span,
    /// Of each frame, if the device reads them.
    hashes: Vec<u64>,
    site: &'static Location<'static>,
}

/// What a receive buffer is filled with.
const POISON: u8 = 0xa5;

impl Post {
    fn overlaps(&self, span: Span) -> bool {
        self.span.region == span.region
            && self.span.offset < span.offset + span.len
            && span.offset < self.span.offset + self.span.len
    }

    fn is_receive(&self) -> bool {
        self.opcode == Opcode::Recv
    }

    fn named(&self) -> Option<(WrId, &'static Location<'static>)> {
        Some((self.id, self.site))
    }
}

/// Whether the device writes into the memory of such a request
fn fills(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Recv | Opcode::Read | Opcode::Atomic)
}

/// The hash of each frame, by which the bytes of a long message are compared when they leave, without those that leave later
fn hashes(memory: &Memory, span: Span) -> Vec<u64> {
    let bytes = memory.bytes(span).unwrap_or_default();
    bytes.chunks(FRAME).map(XxHash3_64::oneshot).collect()
}

impl Sanitizer {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, posts: Vec::new(), findings: Vec::new() }
    }

    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn find(&mut self, time: Time, kind: FindingKind, post: Option<(WrId, &'static Location<'static>)>) {
        // A repetition adds no information.
        if self.findings.last().is_none_or(|last| (last.kind, last.post) != (kind, post)) {
            self.findings.push(Finding { kind, time, post });
        }
    }

    /// More completed than a completion queue of this depth holds
    pub(super) fn cq_overran(&mut self, now: Time, depth: u32) {
        if self.is_on {
            self.find(now, FindingKind::CqOverflow { depth }, None);
        }
    }

    /// A request was posted: its memory is watched from now on, and poisoned if it is a receive's
    #[expect(clippy::too_many_arguments, reason = "a posted request has that many parts")]
    pub(super) fn watch(
        &mut self,
        now: Time,
        qp: QpKey,
        id: WrId,
        opcode: Opcode,
        span: Span,
        site: &'static Location<'static>,
        memory: &Memory,
    ) {
        if !self.is_on {
            return;
        }
        // Two sends may read the same bytes.
        let clashes = |post: &Post| (fills(opcode) || fills(post.opcode)) && post.overlaps(span);
        if self.posts.iter().any(clashes) {
            self.find(now, FindingKind::OverlappingPosts, Some((id, site)));
        }
        let hashes = if fills(opcode) { Vec::new() } else { hashes(memory, span) };
        self.posts.push(Post { qp, id, opcode, span, hashes, site });
        if opcode == Opcode::Recv {
            memory.fill(span, POISON);
        }
    }

    /// A request has ended: the oldest of that name
    pub(super) fn unwatch(&mut self, qp: QpKey, id: WrId, opcode: Opcode) {
        let is_receive = opcode == Opcode::Recv;
        let is_it = |post: &Post| post.qp == qp && post.id == id && post.is_receive() == is_receive;
        if let Some(at) = self.posts.iter().position(is_it) {
            self.posts.remove(at);
        }
    }

    /// A queue pair has no requests any more
    pub(super) fn forget(&mut self, qp: QpKey) {
        self.posts.retain(|post| post.qp != qp);
    }

    /// Checks that frames of a send that are about to leave, `len` bytes from `from` on, are what was posted
    pub(super) fn check_send(
        &mut self,
        now: Time,
        (qp, id): (QpKey, WrId),
        span: Span,
        (from, len): (usize, usize),
        memory: &Memory,
    ) {
        let is_it = |post: &&Post| post.qp == qp && post.id == id && !fills(post.opcode);
        if let Some(post) = self.posts.iter().find(is_it)
            && post.span == span
            && let found = hashes(memory, span.part(from, len))
            && !post.hashes[from / FRAME..].starts_with(&found)
        {
            let post = post.named();
            self.find(now, FindingKind::SendWritten, post);
        }
    }

    /// Checks that what a receive left untouched is still poisoned; it has ended with so many bytes
    pub(super) fn check_receive(&mut self, now: Time, qp: QpKey, ended: &EndedReceive, memory: &Memory) {
        if !self.is_on {
            return;
        }
        let EndedReceive { id, span, byte_len, status } = *ended;
        let filled = (byte_len as usize).min(span.len);
        // A receive that failed may hold anything.
        if status == Status::Success
            && let Some(rest) = memory.bytes(span.part(filled, span.len - filled))
            && rest.iter().any(|byte| *byte != POISON)
        {
            let is_it = |post: &&Post| post.qp == qp && post.id == id && post.is_receive();
            let post = self.posts.iter().find(is_it).and_then(Post::named);
            self.find(now, FindingKind::ReceiveWritten, post);
        }
        self.unwatch(qp, id, Opcode::Recv);
    }

    /// Checks that no posted request names a region, which is about to be deregistered
    pub(super) fn check_deregistration(&mut self, now: Time, region: RegionKey) {
        if let Some(post) = self.posts.iter().find(|post| post.span.region == region) {
            let post = post.named();
            self.find(now, FindingKind::DeregisteredUnderWork, post);
            self.posts.retain(|post| post.span.region != region);
        }
    }
}
