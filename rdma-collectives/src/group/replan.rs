//! How ranks agree on the cables that work, and plan for them

use rdma_async::Device;

use super::call::OperationKind;
use super::counts::Counts;
use super::dispatch::call;
use super::error::GroupError;
use super::execution::Buffers;
use super::plans::Plans;
use super::state::Group;

impl<D: Device> Group<D> {
    /// Fails if the group is over; plans anew if the ranks have agreed on that
    pub(super) async fn begin(&mut self) -> Result<(), GroupError> {
        if let Some(error) = &self.end {
            return Err(error.clone());
        }
        if std::mem::take(&mut self.wants_plan) {
            self.replan().await?;
        }
        Ok(())
    }

    /// Sends all ranks how many cables to each neighbour work; all of them then make the same plans
    ///
    /// It has the number of the operation that follows. Without a way between all ranks, they keep the plans they have.
    async fn replan(&mut self) -> Result<(), GroupError> {
        let size = self.size();
        let (mut own, mut all) = (vec![0; size], vec![0; size * size]);
        for link in &mut self.links {
            link.reported_cables = link.working_cables();
            own[link.rank] = u8::try_from(link.reported_cables).unwrap_or(u8::MAX);
        }
        let (call, counts) = (call::<u8>(OperationKind::Replan, size), Counts::Even(size));
        let buffers = Buffers { input: Some(&own), output: &mut all };
        self.carry_out(self.sequence, call, &counts, None, buffers).await?;
        let working =
            |one: usize, other: usize| usize::from(all[one * size + other].min(all[other * size + one]));
        let cabling = self.cabling.with_at_most(working);
        if cabling != self.plans.over.cabling
            && let Ok(plans) = Plans::new(cabling)
        {
            self.plans = plans;
            // Its length may be that of an operation under the new plans, its blocks are not.
            self.before = None;
            for link in &mut self.links {
                link.cables = self.plans.over.cabling.between(self.rank, link.rank).count();
            }
        }
        Ok(())
    }
}
