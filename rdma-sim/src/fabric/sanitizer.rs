//! The DMA sanitizer: finds programs that touch memory while a device works on it
//!
//! Receive buffers are poisoned when they are posted, and checked for the poison when they complete; sends are copied when
//! they are posted, and compared frame by frame when they leave and as a whole with their last frame. Memory is filled, copied
//! and compared as a whole, which is fast without optimisation, too. A sanitizer that is off finds nothing.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;

use rdma_core::{FRAME, Opcode, Status, Time, WrId};
use slotmap::SecondaryMap;

use super::ids::{QpKey, RegionKey, Span};
use super::memory::Memory;
use super::posted_ranges::PostedRanges;
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
    queue_pairs: SecondaryMap<QpKey, Queues>,
    regions: SecondaryMap<RegionKey, PostedRanges>,
    next_seq: u64,
    findings: Vec<Finding>,
    /// Bytes of sends that were compared with what was posted
    #[cfg(test)]
    compared: usize,
}

/// The requests of a queue pair, the oldest first
#[derive(Debug, Default)]
struct Queues {
    sends: VecDeque<Post>,
    receives: VecDeque<Post>,
}

/// A posted range of memory
#[derive(Debug)]
struct Post {
    /// Its position in the order of all posts
    seq: u64,
    id: WrId,
    opcode: Opcode,
    span: Span,
    /// Its bytes, if the device reads them
    bytes: Vec<u8>,
    site: &'static Location<'static>,
}

/// A frame of what a receive buffer is filled with
static POISONED: [u8; FRAME] = [POISON; FRAME];
const POISON: u8 = 0xa5;

impl Queues {
    fn queue(&mut self, opcode: Opcode) -> &mut VecDeque<Post> {
        if opcode == Opcode::Recv { &mut self.receives } else { &mut self.sends }
    }

    fn iter(&self) -> impl Iterator<Item = &Post> {
        self.sends.iter().chain(&self.receives)
    }
}

impl Post {
    fn named(&self) -> Option<(WrId, &'static Location<'static>)> {
        Some((self.id, self.site))
    }
}

/// Whether the device writes into the memory of such a request
fn fills(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Recv | Opcode::Read | Opcode::Atomic)
}

impl Sanitizer {
    pub(super) fn new(is_on: bool) -> Self {
        let (queue_pairs, regions) = (SecondaryMap::new(), SecondaryMap::new());
        Self {
            is_on,
            queue_pairs,
            regions,
            next_seq: 0,
            findings: Vec::new(),
            #[cfg(test)]
            compared: 0,
        }
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
    #[inline]
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
        if self.is_on {
            self.start_watching(now, qp, id, opcode, span, site, memory);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a posted request has that many parts")]
    fn start_watching(
        &mut self,
        now: Time,
        qp: QpKey,
        id: WrId,
        opcode: Opcode,
        span: Span,
        site: &'static Location<'static>,
        memory: &Memory,
    ) {
        let mut bytes = Vec::new();
        if opcode == Opcode::Recv {
            memory.fill(span, POISON);
        } else if !fills(opcode) {
            bytes = memory.show(span, <[u8]>::to_vec).unwrap_or_default();
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let post = Post { seq, id, opcode, span, bytes, site };
        // Looked up before anything is inserted: that is fast without optimisation, too.
        if !self.queue_pairs.contains_key(qp) {
            self.queue_pairs.insert(qp, Queues::default());
        }
        self.queue_pairs[qp].queue(opcode).push_back(post);
        if !self.regions.contains_key(span.region) {
            self.regions.insert(span.region, PostedRanges::default());
        }
        if self.regions[span.region].add(span, fills(opcode)) {
            self.find(now, FindingKind::OverlappingPosts, Some((id, site)));
        }
    }

    /// A request has ended: the oldest of that name
    #[inline]
    pub(super) fn unwatch(&mut self, qp: QpKey, id: WrId, opcode: Opcode) {
        if self.is_on {
            self.stop_watching(qp, id, opcode);
        }
    }

    fn stop_watching(&mut self, qp: QpKey, id: WrId, opcode: Opcode) {
        let Some(queues) = self.queue_pairs.get_mut(qp) else { return };
        let queue = queues.queue(opcode);
        if let Some(at) = queue.iter().position(|post| post.id == id)
            && let Some(post) = queue.remove(at)
        {
            self.release(&post);
        }
    }

    fn release(&mut self, post: &Post) {
        if let Some(ranges) = self.regions.get_mut(post.span.region) {
            ranges.remove(post.span, fills(post.opcode));
        }
    }

    /// A queue pair has no requests any more
    pub(super) fn forget(&mut self, qp: QpKey) {
        if let Some(queues) = self.queue_pairs.remove(qp) {
            queues.iter().for_each(|post| self.release(post));
        }
    }

    /// Checks that frames of a send that are about to leave, `len` bytes from `from` on, are what was posted
    #[inline]
    pub(super) fn check_send(
        &mut self,
        now: Time,
        request: (QpKey, WrId),
        span: Span,
        leaving: (usize, usize),
        memory: &Memory,
    ) {
        if self.is_on {
            self.compare(now, request, span, leaving, memory);
        }
    }

    fn compare(
        &mut self,
        now: Time,
        (qp, id): (QpKey, WrId),
        span: Span,
        (from, len): (usize, usize),
        memory: &Memory,
    ) {
        let Some(queues) = self.queue_pairs.get(qp) else { return };
        #[cfg(test)]
        {
            self.compared += len;
        }
        if let Some(post) = queues.sends.iter().find(|post| post.id == id && !fills(post.opcode))
            && post.span == span
            && let Some(posted) = post.bytes.get(from..from + len)
            && memory.show(span.part(from, len), |found| found != posted) == Some(true)
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
        let is_poisoned = |bytes: &[u8]| bytes.chunks(FRAME).all(|chunk| *chunk == POISONED[..chunk.len()]);
        // A receive that failed may hold anything.
        if status == Status::Success
            && memory.show(span.part(filled, span.len - filled), is_poisoned) == Some(false)
        {
            let receives = self.queue_pairs.get(qp).map(|queues| &queues.receives);
            let post = receives.and_then(|posts| posts.iter().find(|post| post.id == id)?.named());
            self.find(now, FindingKind::ReceiveWritten, post);
        }
        self.unwatch(qp, id, Opcode::Recv);
    }

    /// Checks that no posted request names a region, which is about to be deregistered
    pub(super) fn check_deregistration(&mut self, now: Time, region: RegionKey) {
        if self.regions.remove(region).is_none_or(|ranges| ranges.is_empty()) {
            return;
        }
        let posts = self.queue_pairs.values().flat_map(Queues::iter);
        let first = posts.filter(|post| post.span.region == region).min_by_key(|post| post.seq);
        let first = first.and_then(Post::named);
        self.find(now, FindingKind::DeregisteredUnderWork, first);
        for queues in self.queue_pairs.values_mut() {
            queues.sends.retain(|post| post.span.region != region);
            queues.receives.retain(|post| post.span.region != region);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::time::Duration;

    use rdma_core::{Access, QpInit, RecvRequest, SendOp, SendRequest, Sge, Transition};

    use super::*;
    use crate::fabric::Change;
    use crate::{Driver, Sim};

    const LEN: usize = 1024 * FRAME;
    const ALIGN: usize = 16 * 1024;

    /// Bytes that are compared while a message of 4 MiB leaves under a driver that advances time by `tick`
    fn compared(tick: Duration) -> usize {
        let driver = Driver::new(Sim::new().sanitize(true), drop).unwrap();
        let [mut a, mut b] = [(); 2].map(|()| vec![0; LEN + ALIGN]);
        let state = &mut driver.net().shared().lock();
        let fabric = &mut state.fabric;
        let sides = [("a", &mut a), ("b", &mut b)].map(|(host, memory)| {
            let device = fabric.world.current(fabric.world.find_device(host, "rdma_en2").unwrap());
            fabric.world.alloc_pd(device, &mut fabric.objects).unwrap();
            let cq = fabric.create_cq(device, 16).unwrap();
            let init = QpInit::with_frames((LEN / FRAME) as u32);
            let (qp, address, _) = fabric.create_qp(device, [cq; 2], &init).unwrap();
            let start = memory.as_ptr().align_offset(ALIGN);
            let memory = NonNull::from(&mut memory[start..start + LEN]);
            let region = fabric.register(device, memory, Access::LOCAL_WRITE).unwrap();
            fabric.modify_qp(qp, Change::To(Transition::Init)).unwrap();
            (qp, address, region)
        });
        for (side, peer) in [(0, 1), (1, 0)] {
            let peer = sides[peer].1;
            fabric.modify_qp(sides[side].0, Change::To(Transition::ReadyToReceive { peer })).unwrap();
            fabric.modify_qp(sides[side].0, Change::To(Transition::ReadyToSend)).unwrap();
        }
        let sge = |side: usize| [Sge { addr: sides[side].2.base, len: LEN as u32, lkey: sides[side].2.lkey }];
        let site = Location::caller();
        fabric.post_recv(sides[1].0, &RecvRequest { id: WrId(1), sgl: &sge(1) }, site).unwrap();
        let send = SendRequest { id: WrId(2), op: SendOp::Send, sgl: &sge(0), signaled: true };
        fabric.post_send(sides[0].0, &send, site).unwrap();
        while fabric.cqs.unpolled() < 2 {
            let now = fabric.schedule.now() + tick;
            while !fabric.advance(now, Some(now)) {}
        }
        fabric.sanitizer.compared
    }

    /// Regression: each tick compared the whole message, which took a second under a paused tokio.
    ///
    /// Catches `transmit_piece` comparing all frames with each piece.
    #[test]
    fn a_long_send_is_compared_twice_however_often_time_advances() {
        assert_eq!(compared(Duration::from_secs(1)), LEN, "all frames leave at once");
        let compared = compared(Duration::from_micros(1));
        assert!((LEN..2 * LEN).contains(&compared), "{compared} bytes");
    }
}
