//! The elements of vectors, behind functions on bytes: what measures is compiled once, and not for each type

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use rdma_async::AnyDevice;
use rdma_collectives::{Group, GroupError, Reduction};
use zerocopy::IntoBytes as _;

use super::number::Number;
use crate::args::OperationName;

/// A type of elements
pub(super) struct Elements {
    /// Bytes of an element
    pub(super) size: usize,
    /// Whole numbers up to 127, as elements
    pub(super) encode: fn(&[u8]) -> Vec<u8>,
    /// Number of elements that are these whole numbers
    pub(super) count_equal: fn(&[u8], &[u8]) -> usize,
    /// Adds elements to others
    pub(super) add: fn(&mut [u8], &[u8]),
    /// The vectors of a rank whose input has these whole numbers, and whose output so many elements; one vector, if they are in place
    pub(super) vectors: fn(&[u8], usize, bool) -> Box<dyn Vectors>,
}

impl Elements {
    pub(super) fn new<T: Number>() -> Self {
        Self {
            size: size_of::<T>(),
            encode: |values| encode::<T>(values).as_bytes().to_vec(),
            count_equal: |found, expected| {
                let values = encode::<T>(expected);
                // Nearly all results are right.
                if found == values.as_bytes() {
                    return values.len();
                }
                let pairs = found.chunks_exact(size_of::<T>()).zip(&values);
                pairs.filter(|(found, value)| value.as_bytes() == *found).count()
            },
            add: T::add,
            vectors: |input, output_len, is_in_place| {
                let input = encode::<T>(input);
                let (input, mut output) = if is_in_place { (Vec::new(), input) } else { (input, Vec::new()) };
                output.resize(output_len, T::default());
                Box::new(VectorsOf { input, output })
            },
        }
    }
}

fn encode<T: Number>(values: &[u8]) -> Vec<T> {
    // A loop: in code that is optimised for size, the calls of an iterator's adapters stay calls.
    let mut elements = vec![T::default(); values.len()];
    for (element, value) in elements.iter_mut().zip(values) {
        *element = T::of(*value);
    }
    elements
}

/// The vectors of a rank
pub(super) trait Vectors {
    /// Carries out an operation of a group
    fn operate<'a>(
        &'a mut self,
        group: &'a mut Group<AnyDevice>,
        operation: OperationName,
        root: usize,
    ) -> LocalBoxFuture<'a, Result<(), GroupError>>;

    /// The elements of the output
    fn output(&self) -> &[u8];
}

struct VectorsOf<T> {
    /// Empty if the operation is in place
    input: Vec<T>,
    output: Vec<T>,
}

impl<T: Number> Vectors for VectorsOf<T> {
    fn operate<'a>(
        &'a mut self,
        group: &'a mut Group<AnyDevice>,
        operation: OperationName,
        root: usize,
    ) -> LocalBoxFuture<'a, Result<(), GroupError>> {
        let Self { input, output } = self;
        match operation {
            OperationName::AllReduce => group.all_reduce(output, Reduction::Sum).boxed_local(),
            OperationName::AllGather => group.all_gather(input, output).boxed_local(),
            OperationName::ReduceScatter => group.reduce_scatter(input, output, Reduction::Sum).boxed_local(),
            OperationName::Broadcast => group.broadcast(root, output).boxed_local(),
            OperationName::Reduce => group.reduce(root, output, Reduction::Sum).boxed_local(),
            OperationName::Scatter => group.scatter(root, input, output).boxed_local(),
            OperationName::Gather => group.gather(root, input, output).boxed_local(),
            OperationName::AllToAll => group.all_to_all(input, output).boxed_local(),
        }
    }

    fn output(&self) -> &[u8] {
        self.output.as_bytes()
    }
}
