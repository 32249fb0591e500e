//! The requests of a queue pair, followed through the records

use std::collections::VecDeque;

use rdma_core::frames;

/// The requests of a queue pair; messages by their positions
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Posted and not completed.
    pub(super) sends: VecDeque<usize>,
    /// Of these, those with frames that have not left.
    pub(super) leaving: VecDeque<usize>,
    /// Frames of the first of them that have left.
    left: u64,
    /// The message whose frames left last.
    pub(super) current: Option<usize>,
    receives: VecDeque<Receive>,
    /// Messages whose receives are filled and have not completed.
    pub(super) filled: VecDeque<usize>,
    /// The open receive is damaged, by this fault.
    pub(super) damage: Option<Option<u32>>,
    /// The stall that has not ended.
    pub(super) stall: Option<usize>,
    credits: u64,
}

#[derive(Debug)]
struct Receive {
    posted: u64,
    /// Frames that it has room for.
    frames: u64,
}

impl Queue {
    /// A receive was posted; the credits
    pub(super) fn post_receive(&mut self, bytes: u64, now: u64) -> u64 {
        let frames = frames(bytes as usize) as u64;
        self.receives.push_back(Receive { posted: now, frames });
        self.credits += frames;
        self.credits
    }

    /// When the oldest open receive was posted
    pub(super) fn oldest_receive(&self) -> Option<u64> {
        self.receives.front().map(|receive| receive.posted)
    }

    /// A frame of the message `number` has left
    pub(super) fn frame_left(&mut self, number: usize, bytes: u64) {
        self.current = Some(number);
        self.left += 1;
        if self.left >= frames(bytes as usize) as u64 {
            self.left = 0;
            self.leaving.pop_front();
        }
    }

    /// A frame came into the oldest open receive; the credits
    pub(super) fn take_frame(&mut self) -> u64 {
        if let Some(receive) = self.receives.front_mut().filter(|receive| receive.frames > 0) {
            receive.frames -= 1;
            self.credits -= 1;
        }
        self.credits
    }

    /// The oldest open receive is filled: when it was posted, and the credits
    pub(super) fn fill(&mut self) -> (Option<u64>, u64) {
        let receive = self.receives.pop_front();
        self.credits -= receive.as_ref().map_or(0, |receive| receive.frames);
        (receive.map(|receive| receive.posted), self.credits)
    }

    /// Ends all requests; the messages that they belong to
    pub(super) fn clear(&mut self) -> Vec<usize> {
        let Self { sends, filled, .. } = std::mem::take(self);
        sends.into_iter().chain(filled).collect()
    }
}
