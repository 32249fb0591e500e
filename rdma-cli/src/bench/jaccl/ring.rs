//! The baseline's schedules on a ring

use std::ops::Range;

use anyhow::Result;

use super::wire::{Flow, Sink, Source, Step, Vectors, Wire};

/// Up to so many bytes, an all_reduce goes around in one direction.
const ONE_DIRECTION: usize = 32 << 10;
/// Up to so many bytes, a reduce_scatter uses one wire.
const ONE_WIRE: usize = 64 << 10;

/// A rank of a ring
pub(super) struct Ring<'a> {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Those to the next rank, then as many to the one before
    pub(super) wires: &'a mut [Wire],
}

/// Division of a vector that goes around: a chunk of each rank, of which each direction of each wire carries a piece
#[derive(Clone, Copy)]
struct Pieces {
    /// The bytes of a chunk, and of a piece
    chunk: usize,
    piece: usize,
    /// The bytes of the vector
    len: usize,
    /// Used wires, and the used directions of each
    wires: usize,
    directions: usize,
}

impl Pieces {
    fn new(chunk: usize, len: usize, size: usize, wires: usize, directions: usize) -> Self {
        let piece = (chunk / size).div_ceil(wires * directions) * size;
        Self { chunk, piece, len, wires, directions }
    }

    /// Where a direction of a wire has its piece of a chunk
    fn range(&self, chunk: usize, direction: usize, wire: usize) -> Range<usize> {
        let end = ((chunk + 1) * self.chunk).min(self.len);
        let at = |piece: usize| (chunk * self.chunk + piece * self.piece).min(end);
        let piece = direction * self.wires + wire;
        at(piece)..at(piece + 1)
    }
}

impl Ring<'_> {
    /// The chunks of all ranks go around twice: as partial sums, then as results, in both directions unless they are short
    pub(super) async fn all_reduce(&mut self, vectors: &mut Vectors<'_>, size: usize) -> Result<()> {
        let (len, ranks, wires) = (vectors.input.len(), self.ranks, self.wires.len() / 2);
        let count = len / size;
        let directions = if len <= ONE_DIRECTION || count < 2 * ranks * wires { 1 } else { 2 };
        let pieces = Pieces::new(count.div_ceil(ranks) * size, len, size, wires, directions);
        vectors.output.copy_from_slice(vectors.input);
        self.turn(pieces, 0, Sink::Add, vectors).await?;
        // Each rank has the sum of the chunk after its own.
        self.turn(pieces, 1, Sink::Store, vectors).await
    }

    /// The parts of all ranks go around once, in both directions
    pub(super) async fn all_gather(&mut self, vectors: &mut Vectors<'_>, size: usize) -> Result<()> {
        let (part, wires) = (vectors.input.len(), self.wires.len() / 2);
        let pieces = Pieces::new(part, vectors.output.len(), size, wires, 2);
        vectors.output[self.rank * part..][..part].copy_from_slice(vectors.input);
        self.turn(pieces, 0, Sink::Store, vectors).await
    }

    /// The first half of an all_reduce
    pub(super) async fn reduce_scatter(&mut self, vectors: &mut Vectors<'_>, size: usize) -> Result<()> {
        let (part, len) = (vectors.output.len(), vectors.input.len());
        let wires = if len <= ONE_WIRE { 1 } else { self.wires.len() / 2 };
        let pieces = Pieces::new(part, len, size, wires, 2);
        let mut partial = vectors.input.to_vec();
        let mut sums = Vectors { input: &[], output: &mut partial, add: vectors.add };
        // It ends with the sum of the rank's own chunk.
        self.turn(pieces, self.ranks - 1, Sink::Add, &mut sums).await?;
        vectors.output.copy_from_slice(&partial[self.rank * part..][..part]);
        Ok(())
    }

    /// Chunks go around once, in n - 1 steps of which each is over before the next; a rank begins with the chunk so far after its own
    async fn turn(
        &mut self,
        pieces: Pieces,
        first: usize,
        sink: Sink,
        vectors: &mut Vectors<'_>,
    ) -> Result<()> {
        let (rank, ranks) = (self.rank, self.ranks);
        for number in 0..ranks - 1 {
            // Chunks go to higher ranks in direction 0, where each rank receives the one below that which it sends, and to lower
            // ranks in direction 1.
            let up = |behind: usize| (rank + first + 2 * ranks - number - behind) % ranks;
            let down = |ahead: usize| (rank + ranks - first % ranks + number + ahead) % ranks;
            let piece = |chunk, direction, wire| {
                let is_used = direction < pieces.directions && wire < pieces.wires;
                is_used.then(|| pieces.range(chunk, direction, wire))
            };
            let wires = self.wires.len() / 2;
            let to_next = (0..wires).map(|wire| (piece(up(0), 0, wire), piece(down(1), 1, wire)));
            let to_previous = (0..wires).map(|wire| (piece(down(0), 1, wire), piece(up(1), 0, wire)));
            let flows = to_next.chain(to_previous);
            let flows = flows.map(|(send, receive)| Flow { bytes: pieces.piece, send, receive });
            let step = Step { source: Source::Output, sink, is_shared: false };
            step.run(self.wires, &flows.collect::<Vec<_>>(), vectors).await?;
        }
        Ok(())
    }
}
