//! From elements to bytes, and from an operation to its plan

use rdma_async::Device;
use zerocopy::IntoBytes as _;

use super::call::{Call, OperationKind};
use super::counts::Counts;
use super::element::{Element, Output, store};
use super::error::GroupError;
use super::execution::Buffers;
use super::kernels::Kernel;
use super::reduction::Reduction;
use super::state::Group;

impl<D: Device> Group<D> {
    /// Carries out an all_reduce
    pub(super) async fn all_reduce_in_place(
        &mut self,
        call: Call,
        kernel: Kernel,
        vector: Output<'_>,
    ) -> Result<(), GroupError> {
        match vector {
            Output::Bytes(bytes) => self.all_reduce_bytes(call, kernel, bytes).await,
            Output::Booleans(vector) => {
                let mut bytes = vector.as_bytes().to_vec();
                self.all_reduce_bytes(call, kernel, &mut bytes).await?;
                store(vector, &bytes);
                Ok(())
            }
        }
    }

    /// Floods a short vector, and reduces a long one over trees
    async fn all_reduce_bytes(
        &mut self,
        call: Call,
        kernel: Kernel,
        vector: &mut [u8],
    ) -> Result<(), GroupError> {
        self.begin().await?;
        let counts = Counts::Even(call.count as usize);
        if !self.plans.floods(vector.len()) {
            let buffers = Buffers { input: None, output: vector };
            return self.run(call, &counts, Some(kernel), buffers).await;
        }
        let mut all = vec![0; vector.len() * self.size()];
        self.run(call, &counts, None, Buffers { input: Some(vector), output: &mut all }).await?;
        let mut vectors = all.chunks_exact(vector.len().max(1));
        if let Some(first) = vectors.next() {
            vector.copy_from_slice(first);
        }
        vectors.for_each(|other| (kernel.combine)(vector, other));
        if let Some(divide) = kernel.divide {
            divide(vector, self.size());
        }
        Ok(())
    }

    /// Carries out an operation whose input is its output
    pub(super) async fn in_place(
        &mut self,
        call: Call,
        counts: &Counts,
        kernel: Option<Kernel>,
        vector: Output<'_>,
    ) -> Result<(), GroupError> {
        self.on_bytes(call, counts, kernel, None, vector).await
    }

    /// Carries out an operation with an input and an output
    pub(super) async fn apart(
        &mut self,
        call: Call,
        counts: &Counts,
        kernel: Option<Kernel>,
        from: &[u8],
        into: Output<'_>,
    ) -> Result<(), GroupError> {
        self.on_bytes(call, counts, kernel, Some(from), into).await
    }

    /// Carries out an operation on the bytes of its output; without an input, the output is the input, too
    async fn on_bytes(
        &mut self,
        call: Call,
        counts: &Counts,
        kernel: Option<Kernel>,
        input: Option<&[u8]>,
        into: Output<'_>,
    ) -> Result<(), GroupError> {
        match into {
            Output::Bytes(output) => self.planned(call, counts, kernel, Buffers { input, output }).await,
            Output::Booleans(into) => {
                let mut bytes = into.as_bytes().to_vec();
                self.planned(call, counts, kernel, Buffers { input, output: &mut bytes }).await?;
                store(into, &bytes);
                Ok(())
            }
        }
    }

    pub(super) async fn planned(
        &mut self,
        call: Call,
        counts: &Counts,
        kernel: Option<Kernel>,
        buffers: Buffers<'_>,
    ) -> Result<(), GroupError> {
        self.begin().await?;
        if let Some(root) = call.root {
            self.check_rank(root)?;
        }
        self.run(call, counts, kernel, buffers).await
    }

    pub(super) fn check_rank(&self, rank: usize) -> Result<(), GroupError> {
        if rank >= self.size() {
            return Err(GroupError::Rank { rank, size: self.size() });
        }
        Ok(())
    }
}

pub(super) fn call<T: Element>(operation: OperationKind, count: usize) -> Call {
    Call {
        operation,
        element: T::TYPE,
        reduction: None,
        root: None,
        to: None,
        count: count as u64,
        counts: None,
    }
}

pub(super) fn kernel<T: Element>(reduction: Reduction) -> Result<Kernel, GroupError> {
    T::kernel(reduction).ok_or(GroupError::Unsupported { element: T::TYPE, reduction })
}

pub(super) fn expect(name: &'static str, found: usize, expected: usize) -> Result<(), GroupError> {
    if found != expected {
        return Err(GroupError::Argument { name, expected, found });
    }
    Ok(())
}
