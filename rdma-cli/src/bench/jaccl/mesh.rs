//! The baseline's schedules on a mesh

use std::ops::Range;

use anyhow::Result;

use super::wire::{Flow, Sink, Source, Step, Vectors, Wire};

/// Up to so many bytes, each rank sends its whole vector to each other rank.
const ONE_PHASE: usize = 32 << 10;

/// A rank of a mesh, with a wire to each other rank, in their order
pub(super) struct Mesh<'a> {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) wires: &'a mut [Wire],
}

impl Mesh<'_> {
    /// One phase for up to 32 KiB or two ranks; above, each rank adds up an equal share and sends it to the others
    ///
    /// Elements beyond the equal shares are added up in one phase of their own. A rank begins the second phase when its own first one is
    /// over.
    pub(super) async fn all_reduce(&mut self, vectors: &mut Vectors<'_>, size: usize) -> Result<()> {
        let len = vectors.input.len();
        if self.ranks == 2 || len <= ONE_PHASE {
            return self.all_to_all_of(0..len, vectors).await;
        }
        let share = len / size / self.ranks * size;
        let shares = |rank: usize| rank * share..(rank + 1) * share;
        let own = shares(self.rank);
        self.scatter(shares, own.clone(), vectors).await?;
        self.gather(Source::Output, own, shares, vectors).await?;
        let rest = share * self.ranks..len;
        if rest.is_empty() { Ok(()) } else { self.all_to_all_of(rest, vectors).await }
    }

    /// One phase: each rank sends its part to each other rank
    pub(super) async fn all_gather(&mut self, vectors: &mut Vectors<'_>) -> Result<()> {
        let part = vectors.input.len();
        let places = |rank: usize| rank * part..(rank + 1) * part;
        vectors.output[places(self.rank)].copy_from_slice(vectors.input);
        self.gather(Source::Input, 0..part, places, vectors).await
    }

    /// The first phase of an all_reduce
    pub(super) async fn reduce_scatter(&mut self, vectors: &mut Vectors<'_>) -> Result<()> {
        let part = vectors.output.len();
        self.scatter(|rank| rank * part..(rank + 1) * part, 0..part, vectors).await
    }

    /// Each rank sends the same part of its input to each other rank, and adds up what it receives
    async fn all_to_all_of(&mut self, part: Range<usize>, vectors: &mut Vectors<'_>) -> Result<()> {
        vectors.output[part.clone()].copy_from_slice(&vectors.input[part.clone()]);
        let flows = self.flows(part.len(), |_| part.clone(), |_| part.clone());
        let step = Step { source: Source::Input, sink: Sink::Add, is_shared: true };
        step.run(self.wires, &flows, vectors).await
    }

    /// Each rank sends each other rank its share, and adds up its own one at `own` of the output
    async fn scatter(
        &mut self,
        shares: impl Fn(usize) -> Range<usize>,
        own: Range<usize>,
        vectors: &mut Vectors<'_>,
    ) -> Result<()> {
        vectors.output[own.clone()].copy_from_slice(&vectors.input[shares(self.rank)]);
        let flows = self.flows(own.len(), shares, |_| own.clone());
        let step = Step { source: Source::Input, sink: Sink::Add, is_shared: false };
        step.run(self.wires, &flows, vectors).await
    }

    /// Each rank sends its part to each other rank
    async fn gather(
        &mut self,
        source: Source,
        own: Range<usize>,
        places: impl Fn(usize) -> Range<usize>,
        vectors: &mut Vectors<'_>,
    ) -> Result<()> {
        let flows = self.flows(own.len(), |_| own.clone(), places);
        let step = Step { source, sink: Sink::Store, is_shared: true };
        step.run(self.wires, &flows, vectors).await
    }

    fn flows(
        &self,
        bytes: usize,
        send: impl Fn(usize) -> Range<usize>,
        receive: impl Fn(usize) -> Range<usize>,
    ) -> Vec<Flow> {
        let peers = (0..self.ranks).filter(|peer| *peer != self.rank);
        peers.map(|peer| Flow { bytes, send: Some(send(peer)), receive: Some(receive(peer)) }).collect()
    }
}
