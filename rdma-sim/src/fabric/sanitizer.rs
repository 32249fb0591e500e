//! The DMA sanitizer: finds programs that touch memory while a device works on it
//!
//! Receive buffers are poisoned when they are posted, and checked for the poison when they complete; sends are hashed when
//! they are posted and again when they leave.

use std::fmt;
use std::hash::Hasher;
use std::panic::Location;

use rdma_core::{Opcode, Time, WrId};
use twox_hash::XxHash3_64;

use super::memory::Region;
use super::queue_pair::{Memory, Receive};
use super::{Fabric, QpKey, RegionKey};

/// Misuse of memory, or of a queue, that the sanitizer saw
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

#[derive(Debug, Default)]
pub(super) struct Sanitizer {
    posts: Vec<Post>,
    findings: Vec<Finding>,
}

/// A posted range of memory
#[derive(Debug)]
struct Post {
    qp: QpKey,
    id: WrId,
    opcode: Opcode,
    region: RegionKey,
    offset: usize,
    len: usize,
    hash: u64,
    site: &'static Location<'static>,
}

/// What a receive buffer is filled with.
const POISON: u8 = 0xa5;

impl Sanitizer {
    pub(super) fn find(
        &mut self,
        time: Time,
        kind: FindingKind,
        post: Option<(WrId, &'static Location<'static>)>,
    ) {
        let finding = Finding { kind, time, post };
        // The same again tells nothing new.
        if self.findings.last().is_none_or(|last| (last.kind, last.post) != (kind, post)) {
            self.findings.push(finding);
        }
    }
}

/// Whether the device writes into the memory of such a request
fn fills(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Recv | Opcode::Read | Opcode::Atomic)
}

fn hash(region: &Region, offset: usize, len: usize) -> u64 {
    let mut hasher = XxHash3_64::new();
    hasher.write(&region.bytes(offset, len));
    hasher.finish()
}

impl Fabric {
    pub(crate) fn findings(&self) -> &[Finding] {
        self.sanitizer.as_ref().map_or(&[], |sanitizer| &sanitizer.findings)
    }

    pub(super) fn watch_send(
        &mut self,
        qp: QpKey,
        id: WrId,
        opcode: Opcode,
        memory: Memory,
        site: &'static Location<'static>,
    ) {
        self.watch(qp, id, opcode, memory, site);
    }

    pub(super) fn watch_receive(
        &mut self,
        qp: QpKey,
        id: WrId,
        memory: Memory,
        site: &'static Location<'static>,
    ) {
        self.watch(qp, id, Opcode::Recv, memory, site);
        if self.sanitizer.is_some() {
            self.regions[memory.region].fill(memory.offset, memory.len, POISON);
        }
    }

    fn watch(
        &mut self,
        qp: QpKey,
        id: WrId,
        opcode: Opcode,
        memory: Memory,
        site: &'static Location<'static>,
    ) {
        let Some(sanitizer) = &mut self.sanitizer else { return };
        let Memory { region, offset, len } = memory;
        let overlaps = |post: &Post| {
            post.region == region && post.offset < offset + len && offset < post.offset + post.len
        };
        // Two sends may read the same bytes.
        let clashes = |post: &Post| (fills(opcode) || fills(post.opcode)) && overlaps(post);
        if sanitizer.posts.iter().any(clashes) {
            sanitizer.find(self.now, FindingKind::OverlappingPosts, Some((id, site)));
        }
        let hash = if fills(opcode) { 0 } else { hash(&self.regions[region], offset, len) };
        sanitizer.posts.push(Post { qp, id, opcode, region, offset, len, hash, site });
    }

    /// A request has ended: the oldest of that name
    pub(super) fn unwatch(&mut self, qp: QpKey, id: WrId, opcode: Opcode) {
        let Some(sanitizer) = &mut self.sanitizer else { return };
        let is_receive = opcode == Opcode::Recv;
        let is_it =
            |post: &Post| post.qp == qp && post.id == id && (post.opcode == Opcode::Recv) == is_receive;
        if let Some(at) = sanitizer.posts.iter().position(is_it) {
            sanitizer.posts.remove(at);
        }
    }

    pub(super) fn forget_posts_of(&mut self, qp: QpKey) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.posts.retain(|post| post.qp != qp);
        }
    }

    /// Looks whether the send at `position`, which is about to leave, is what was posted
    pub(super) fn check_send(&mut self, key: QpKey, position: usize) {
        let Some(sanitizer) = &mut self.sanitizer else { return };
        let send = &self.qps[key].sends[position];
        let is_it = |post: &&Post| post.qp == key && post.id == send.id && !fills(post.opcode);
        let Some(post) = sanitizer.posts.iter().find(is_it) else { return };
        let Some(region) = self.regions.get(post.region) else { return };
        if (post.offset, post.len) == (send.memory.offset, send.memory.len)
            && hash(region, post.offset, post.len) != post.hash
        {
            let post = Some((post.id, post.site));
            sanitizer.find(self.now, FindingKind::SendWritten, post);
        }
    }

    /// Looks whether what a receive left untouched is still poisoned
    pub(super) fn check_receive(&mut self, key: QpKey, receive: &Receive) {
        let Some(sanitizer) = &mut self.sanitizer else { return };
        let Memory { region, offset, len } = receive.memory;
        let is_it = |post: &&Post| post.qp == key && post.id == receive.id && post.opcode == Opcode::Recv;
        let site = sanitizer.posts.iter().find(is_it).map(|post| (post.id, post.site));
        let filled = (receive.bytes_in as usize).min(len);
        let rest = self.regions.get(region).map(|region| region.bytes(offset + filled, len - filled));
        // What failed may be anything.
        let is_whole = receive.status == rdma_core::Status::Success;
        if is_whole && rest.is_some_and(|rest| rest.iter().any(|byte| *byte != POISON)) {
            sanitizer.find(self.now, FindingKind::ReceiveWritten, site);
        }
        self.unwatch(key, receive.id, Opcode::Recv);
    }

    pub(super) fn check_deregistration(&mut self, region: RegionKey) {
        let Some(sanitizer) = &mut self.sanitizer else { return };
        if let Some(post) = sanitizer.posts.iter().find(|post| post.region == region) {
            let post = Some((post.id, post.site));
            sanitizer.find(self.now, FindingKind::DeregisteredUnderWork, post);
            sanitizer.posts.retain(|post| post.region != region);
        }
    }
}
