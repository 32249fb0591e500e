//! The operations of a group

use rdma_async::Device;

use super::Group;
use super::call::{Call, OperationKind};
use super::element::{Element, Reduction};
use super::error::GroupError;
use super::execution::Buffers;
use super::kernels::Kernel;

/// Every operation returns, beside what it says itself, [`GroupError::Mismatch`], [`GroupError::Lost`], [`GroupError::Left`],
/// [`GroupError::Cancelled`] or [`GroupError::Protocol`] if the group is over, or is then; and [`GroupError::Plan`] if the
/// operation has no plan. Dropping the future of one that was polled ends the group.
impl<D: Device> Group<D> {
    /// Gives every rank the vectors of all ranks combined, element by element
    ///
    /// Short vectors are flooded, and combined in the order of the ranks; long ones go up and down the trees of the plan.
    ///
    /// # Errors
    ///
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction, and those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector is then partly changed.
    pub async fn all_reduce<T: Element>(
        &mut self,
        vector: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        let kernel = kernel::<T>(reduction)?;
        let call = Call { reduction: Some(reduction), ..call::<T>(OperationKind::AllReduce, vector.len()) };
        match T::bytes_mut(vector) {
            Some(bytes) => self.all_reduce_bytes(call, kernel, bytes).await,
            None => {
                let mut bytes = T::bytes(vector).to_vec();
                self.all_reduce_bytes(call, kernel, &mut bytes).await?;
                T::copy_from(vector, &bytes);
                Ok(())
            }
        }
    }

    async fn all_reduce_bytes(
        &mut self,
        call: Call,
        kernel: Kernel,
        vector: &mut [u8],
    ) -> Result<(), GroupError> {
        self.check()?;
        match self.plans.all_reduce(vector.len() as u64) {
            Some((flood, true)) => {
                let mut all = vec![0; vector.len() * self.size()];
                let buffers = Buffers { input: Some(vector), output: &mut all };
                self.run(call, Some(&flood), None, buffers).await?;
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
            Some((trees, false)) => {
                self.run(call, Some(&trees), Some(kernel), Buffers { input: None, output: vector }).await
            }
            None => self.run(call, None, Some(kernel), Buffers { input: None, output: vector }).await,
        }
    }

    /// Gives the vector of rank `root` to every rank
    ///
    /// # Errors
    ///
    /// [`GroupError::Root`] if there is no such rank, and those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector is then partly changed.
    pub async fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Result<(), GroupError> {
        let call = Call { root: Some(root), ..call::<T>(OperationKind::Broadcast, vector.len()) };
        self.in_place(call, None, vector).await
    }

    /// Gives rank `root` the vectors of all ranks combined, element by element; those of the others stay as they are
    ///
    /// # Errors
    ///
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction; [`GroupError::Root`] if there is no such rank;
    /// those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector of the root is then partly changed.
    pub async fn reduce<T: Element>(
        &mut self,
        root: usize,
        vector: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        let kernel = kernel::<T>(reduction)?;
        let call = call::<T>(OperationKind::Reduce, vector.len());
        let call = Call { root: Some(root), reduction: Some(reduction), ..call };
        self.in_place(call, Some(kernel), vector).await
    }

    /// Gives every rank the parts of all ranks, in the order of the ranks
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` is not as long as the parts of all ranks, which have the same length; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `all` is then partly changed.
    pub async fn all_gather<T: Element>(&mut self, part: &[T], all: &mut [T]) -> Result<(), GroupError> {
        expect("all", all.len(), part.len() * self.size())?;
        self.apart(call::<T>(OperationKind::AllGather, part.len()), None, part, all).await
    }

    /// Combines the vectors of all ranks, element by element, and gives each rank its part: the first one to rank 0, and so on
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` is not as long as the parts of all ranks, which have the same length;
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `part` is then partly changed.
    pub async fn reduce_scatter<T: Element>(
        &mut self,
        all: &[T],
        part: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        expect("all", all.len(), part.len() * self.size())?;
        let kernel = kernel::<T>(reduction)?;
        let call = Call { reduction: Some(reduction), ..call::<T>(OperationKind::ReduceScatter, part.len()) };
        self.apart(call, Some(kernel), all, part).await
    }

    /// Gives each rank its part of what rank `root` has: the first one to rank 0, and so on
    ///
    /// `all` of the other ranks is not used, and may be empty.
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` of the root is not as long as the parts of all ranks, which have the same length;
    /// [`GroupError::Root`] if there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `part` is then partly changed.
    pub async fn scatter<T: Element>(
        &mut self,
        root: usize,
        all: &[T],
        part: &mut [T],
    ) -> Result<(), GroupError> {
        if root == self.rank {
            expect("all", all.len(), part.len() * self.size())?;
        }
        let call = Call { root: Some(root), ..call::<T>(OperationKind::Scatter, part.len()) };
        self.apart(call, None, all, part).await
    }

    /// Gives rank `root` the parts of all ranks, in the order of the ranks
    ///
    /// `all` of the other ranks is not used, and may be empty.
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` of the root is not as long as the parts of all ranks, which have the same length;
    /// [`GroupError::Root`] if there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `all` of the root is then partly changed.
    pub async fn gather<T: Element>(
        &mut self,
        root: usize,
        part: &[T],
        all: &mut [T],
    ) -> Result<(), GroupError> {
        if root == self.rank {
            expect("all", all.len(), part.len() * self.size())?;
        }
        let call = Call { root: Some(root), ..call::<T>(OperationKind::Gather, part.len()) };
        self.apart(call, None, part, all).await
    }

    /// Sends a part to each rank, the first one to rank 0 and so on, and receives one from each, in the same order
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not equally long, or cannot be divided by the number of ranks;
    /// [`GroupError::Plan`] for more than [`MAX_ALL_TO_ALL_HOSTS`](crate::MAX_ALL_TO_ALL_HOSTS) ranks; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `received` is then partly changed.
    pub async fn all_to_all<T: Element>(&mut self, sent: &[T], received: &mut [T]) -> Result<(), GroupError> {
        let part = sent.len() / self.size();
        expect("sent", sent.len(), part * self.size())?;
        expect("received", received.len(), sent.len())?;
        self.apart(call::<T>(OperationKind::AllToAll, part), None, sent, received).await
    }

    /// Sends a vector from rank `from` to rank `to`; the others pass it on
    ///
    /// All ranks call it, with vectors of the same length; those of the other ranks are not used.
    ///
    /// # Errors
    ///
    /// [`GroupError::Root`] if there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector of the receiver is then partly changed.
    pub async fn transfer<T: Element>(
        &mut self,
        from: usize,
        to: usize,
        vector: &mut [T],
    ) -> Result<(), GroupError> {
        self.check_rank(to)?;
        let call =
            Call { root: Some(from), to: Some(to), ..call::<T>(OperationKind::Transfer, vector.len()) };
        self.in_place(call, None, vector).await
    }

    /// Waits until all ranks have called it
    ///
    /// # Errors
    ///
    /// Those of every operation, such as [`GroupError::Lost`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group.
    pub async fn barrier(&mut self) -> Result<(), GroupError> {
        self.check()?;
        let call = call::<u8>(OperationKind::Barrier, 1);
        let flood = self.plans.all_reduce(0).map(|(flood, _)| flood);
        let mut all = vec![0; self.size()];
        self.run(call, flood.as_deref(), None, Buffers { input: Some(&[0]), output: &mut all }).await
    }

    /// Carries out an operation whose input is its output
    async fn in_place<T: Element>(
        &mut self,
        call: Call,
        kernel: Option<Kernel>,
        vector: &mut [T],
    ) -> Result<(), GroupError> {
        match T::bytes_mut(vector) {
            Some(output) => self.planned(call, kernel, Buffers { input: None, output }).await,
            None => {
                let mut bytes = T::bytes(vector).to_vec();
                self.planned(call, kernel, Buffers { input: None, output: &mut bytes }).await?;
                T::copy_from(vector, &bytes);
                Ok(())
            }
        }
    }

    /// Carries out an operation with an input and an output
    async fn apart<T: Element>(
        &mut self,
        call: Call,
        kernel: Option<Kernel>,
        from: &[T],
        into: &mut [T],
    ) -> Result<(), GroupError> {
        let input = Some(T::bytes(from));
        match T::bytes_mut(into) {
            Some(output) => self.planned(call, kernel, Buffers { input, output }).await,
            None => {
                let mut bytes = T::bytes(into).to_vec();
                self.planned(call, kernel, Buffers { input, output: &mut bytes }).await?;
                T::copy_from(into, &bytes);
                Ok(())
            }
        }
    }

    async fn planned(
        &mut self,
        call: Call,
        kernel: Option<Kernel>,
        buffers: Buffers<'_>,
    ) -> Result<(), GroupError> {
        self.check()?;
        if let Some(root) = call.root {
            self.check_rank(root)?;
        }
        let is_alone = self.size() == 1 || call.to.is_some() && call.to == call.root;
        let planned = if is_alone { None } else { Some(self.plans.of(&call)?) };
        self.run(call, planned.as_deref(), kernel, buffers).await
    }

    /// Whether the group works
    fn check(&self) -> Result<(), GroupError> {
        self.end.clone().map_or(Ok(()), Err)
    }

    fn check_rank(&self, rank: usize) -> Result<(), GroupError> {
        if rank >= self.size() {
            return Err(GroupError::Root { rank, size: self.size() });
        }
        Ok(())
    }
}

fn call<T: Element>(operation: OperationKind, count: usize) -> Call {
    Call { operation, element: T::TYPE, reduction: None, root: None, to: None, count: count as u64 }
}

fn kernel<T: Element>(reduction: Reduction) -> Result<Kernel, GroupError> {
    T::kernel(reduction).ok_or(GroupError::Unsupported { element: T::TYPE, reduction })
}

fn expect(name: &'static str, found: usize, expected: usize) -> Result<(), GroupError> {
    if found != expected {
        return Err(GroupError::Argument { name, expected, found });
    }
    Ok(())
}
