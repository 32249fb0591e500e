use std::error::Error;
use std::fmt;

use crate::error::PoolError;

/// Why a node does not take memory of the application, and its owner
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = Node::builder(net.opener("a", "rdma_en2")).runtime(net.runtime()).build().unwrap();
/// let refused = node.adopt(vec![1; 10]).unwrap_err();
/// assert_eq!(refused.to_string(), refused.refusal.expect("memory of the heap is not aligned").to_string());
/// assert_eq!(refused.owner, Some(vec![1; 10]));
/// # }).value;
/// ```
pub struct AdoptError<T> {
    /// Why a device refuses it; `None` if it has no byte, or 4 GiB or more
    pub refusal: Option<PoolError>,
    /// The memory, unless a path that is being made has registered it: then it is freed with that
    pub owner: Option<T>,
}

impl<T> fmt::Display for AdoptError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => refusal.fmt(f),
            None => f.write_str("memory has at least one byte, and less than 4 GiB"),
        }
    }
}

impl<T> fmt::Debug for AdoptError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdoptError").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

impl<T> Error for AdoptError<T> {}
