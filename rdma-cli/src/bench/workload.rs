//! Data that each rank has before an operation, and must have after it

use anyhow::{Context as _, Result};

use super::elements::Elements;
use crate::args::OperationName;

/// An operation of some ranks on vectors of one length
///
/// Elements are small whole numbers whose sums every type represents exactly, so that a result is right if it is equal, whatever the
/// order of the additions. None is 0, which is in memory that was not written.
pub(super) struct Workload {
    pub(super) operation: OperationName,
    pub(super) ranks: usize,
    /// The number of elements that operations are called with, as nccl-tests counts: those of the vector, or those of the part of a
    /// rank
    pub(super) count: usize,
    /// By rank
    inputs: Vec<Vec<u8>>,
    /// Of the inputs of all ranks; empty if the operation sums nothing
    sums: Vec<u8>,
}

/// The rank at which operations begin or end that have a root.
pub(super) const ROOT: usize = 0;

/// An empty vector with room for `len` bytes
fn with_room(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(len);
    reserved.with_context(|| {
        format!("vectors of {len} elements for each rank do not fit the memory of this machine")
    })?;
    Ok(bytes)
}

impl Workload {
    /// Vectors of about `bytes` bytes, with elements of `size` bytes
    ///
    /// Rounded down to whole elements, which all ranks have equally many of, but never to nothing.
    ///
    /// # Errors
    ///
    /// Fails if this machine lacks memory for them.
    pub(super) fn new(operation: OperationName, ranks: usize, bytes: u64, size: usize) -> Result<Self> {
        let parts = if is_divided(operation) { ranks } else { 1 };
        let count = (bytes as usize / size / parts).max(1);
        let is_sum = sums(operation);
        // Sums stay below 128, beyond which 8-bit integers end.
        let most = if is_sum { (127 / ranks).clamp(1, 3) as u64 } else { 127 };
        let len = |rank| match operation {
            OperationName::Broadcast | OperationName::Scatter if rank != ROOT => 0,
            OperationName::AllToAll | OperationName::ReduceScatter | OperationName::Scatter => ranks * count,
            _ => count,
        };
        let input = |rank| {
            let mut input = with_room(len(rank))?;
            input.extend((0..len(rank)).map(|index| value(rank, index, most)));
            anyhow::Ok(input)
        };
        let inputs: Vec<Vec<u8>> = (0..ranks).map(input).collect::<Result<_>>()?;
        let mut sums = Vec::new();
        if is_sum {
            sums = with_room(inputs[0].len())?;
            sums.resize(inputs[0].len(), 0);
            inputs.iter().for_each(|input| sums.iter_mut().zip(input).for_each(|(sum, value)| *sum += value));
        }
        Ok(Self { operation, ranks, count, inputs, sums })
    }

    /// Number of elements in the size of the row, as nccl-tests counts them
    pub(super) fn elements(&self) -> usize {
        if is_divided(self.operation) { self.count * self.ranks } else { self.count }
    }

    /// The payload of a plan for vectors of this size: that of all_to_all counts those of all ranks
    pub(super) fn payload(&self, bytes: u64) -> u64 {
        match self.operation {
            OperationName::AllToAll => bytes * self.ranks as u64,
            _ => bytes,
        }
    }

    /// The input of a rank, as whole numbers
    pub(super) fn input(&self, rank: usize) -> &[u8] {
        &self.inputs[rank]
    }

    /// Data that a rank must have after the operation, in pieces that follow each other; none if nothing is promised
    fn expected(&self, rank: usize) -> Vec<&[u8]> {
        let Self { count, inputs, sums, .. } = self;
        let part = rank * count..(rank + 1) * count;
        match self.operation {
            OperationName::Reduce | OperationName::Gather if rank != ROOT => Vec::new(),
            OperationName::AllReduce | OperationName::Reduce => vec![sums],
            OperationName::AllGather | OperationName::Gather => inputs.iter().map(Vec::as_slice).collect(),
            OperationName::ReduceScatter => vec![&sums[part]],
            OperationName::AllToAll => inputs.iter().map(|input| &input[part.clone()]).collect(),
            OperationName::Broadcast => vec![&inputs[ROOT]],
            OperationName::Scatter => vec![&inputs[ROOT][part]],
        }
    }

    /// Number of elements that a rank has after the operation
    pub(super) fn output_len(&self, rank: usize) -> usize {
        match self.operation {
            OperationName::Gather if rank != ROOT => 0,
            OperationName::AllGather | OperationName::Gather | OperationName::AllToAll => {
                self.count * self.ranks
            }
            _ => self.count,
        }
    }

    /// Number of wrong elements in the results of all ranks
    pub(super) fn wrong(&self, outputs: &[Vec<u8>], elements: &Elements) -> usize {
        let of_rank = |(rank, output): (usize, &Vec<u8>)| -> usize {
            let mut rest = output.as_slice();
            let pieces = self.expected(rank).into_iter().map(|expected| {
                let (piece, after) = rest.split_at((expected.len() * elements.size).min(rest.len()));
                rest = after;
                expected.len() - (elements.count_equal)(piece, expected)
            });
            pieces.sum()
        };
        outputs.iter().enumerate().map(of_rank).sum()
    }
}

/// Whether the vector is made of parts of the ranks
fn is_divided(operation: OperationName) -> bool {
    match operation {
        OperationName::AllReduce | OperationName::Broadcast | OperationName::Reduce => false,
        OperationName::AllGather
        | OperationName::AllToAll
        | OperationName::Gather
        | OperationName::ReduceScatter
        | OperationName::Scatter => true,
    }
}

fn sums(operation: OperationName) -> bool {
    matches!(operation, OperationName::AllReduce | OperationName::Reduce | OperationName::ReduceScatter)
}

/// A number from 1 to `most` that differs from place to place: catches elements at a wrong place, or of another rank
fn value(rank: usize, index: usize, most: u64) -> u8 {
    let place = (rank as u64) << 40 | index as u64;
    let mixed = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    (mixed % most) as u8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a check that looks at one rank only, or accepts elements that were exchanged, missing or never written.
    #[test]
    fn every_wrong_element_counts() {
        for operation in [OperationName::AllReduce, OperationName::AllToAll, OperationName::Gather] {
            let workload = Workload::new(operation, 3, 3 * 64, 4).unwrap();
            let elements = Elements::new::<f32>();
            let right: Vec<Vec<u8>> =
                (0..3).map(|rank| (elements.encode)(&workload.expected(rank).concat())).collect();
            assert_eq!(workload.wrong(&right, &elements), 0);
            let rank = right.iter().rposition(|output| !output.is_empty()).unwrap();
            let mut wrong = right.clone();
            wrong[rank][4 * 5] ^= 1;
            wrong[rank][4 * 7..4 * 8].fill(0);
            assert_eq!(workload.wrong(&wrong, &elements), 2);
            wrong[rank].truncate(4 * 5);
            assert_eq!(workload.wrong(&wrong, &elements), right[rank].len() / 4 - 5);
        }
    }

    #[test]
    fn sums_are_exact_in_every_type() {
        for ranks in [2, 42, 43, 64] {
            let workload = Workload::new(OperationName::AllReduce, ranks, 1 << 12, 1).unwrap();
            assert!(workload.sums.iter().all(|sum| (ranks..128).contains(&usize::from(*sum))), "{ranks}");
        }
    }
}
