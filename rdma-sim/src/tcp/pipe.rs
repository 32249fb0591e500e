//! The two directions of a TCP connection

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use rdma_core::Time;

use crate::sync::lock;

/// One end of a connection: closes both directions when it is dropped
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) outgoing: Arc<Mutex<Pipe>>,
    pub(super) incoming: Arc<Mutex<Pipe>>,
}

impl Pipes {
    /// Both ends
    pub(super) fn pair() -> [Self; 2] {
        let (there, back) = (Arc::<Mutex<Pipe>>::default(), Arc::<Mutex<Pipe>>::default());
        let end = |outgoing: &Arc<_>, incoming: &Arc<_>| Self {
            outgoing: Arc::clone(outgoing),
            incoming: Arc::clone(incoming),
        };
        [end(&there, &back), end(&back, &there)]
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        close(&self.outgoing);
        close(&self.incoming);
    }
}

/// One direction
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// Bytes with the time at which they arrive
    pub(super) chunks: VecDeque<(Time, VecDeque<u8>)>,
    pub(super) len: usize,
    /// When the byte before the next one arrives
    pub(super) last_arrival: Time,
    pub(super) busy_until: Time,
    pub(super) is_closed: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// Closes `pipe`, and wakes the tasks that wait at its ends
pub(super) fn close(pipe: &Mutex<Pipe>) {
    let mut pipe = lock(pipe);
    pipe.is_closed = true;
    let wakers = [pipe.reader.take(), pipe.writer.take()];
    drop(pipe);
    wakers.into_iter().flatten().for_each(Waker::wake);
}
