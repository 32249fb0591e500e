//! A completion queue of the provider, which its queue pairs share
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use rdma_core::{Completion, Error, Invalid, Opcode, Qpn, Resource, Status, Verb, WrId};
use rdma_verbs_abi::{Cq, Wc, constants};
use spin::mutex::SpinMutex;
use spin::relax::Yield;

use crate::backoff::Backoff;
use crate::call_watch::CallCounter;
use crate::completion_channel::Channel;
use crate::errno;
use crate::port_watch::SILENCE;
use crate::posted_frames::PostedFrames;
use crate::shared::DeviceShared;
use crate::sync::Arc;

/// A completion queue of the provider; destroyed when its queue pairs are gone
pub(crate) struct PolledCq {
    pub(crate) device: Arc<DeviceShared>,
    cq: NonNull<Cq>,
    pub(crate) backoff: Backoff,
    /// Of polls, under `polling`.
    in_call: Arc<CallCounter>,
    /// Polls in a row without a completion; locked during a poll.
    ///
    /// Taken and freed by one atomic exchange: a mutex of std takes two, a third of the time of a poll that finds nothing.
    polling: SpinMutex<u32, Yield>,
    /// Of the queue pairs that complete here. Not locked during a poll: one that never returns would keep those that end paths and make them.
    in_flight: SpinMutex<Vec<Arc<InFlight>>, Yield>,
}

/// The frames in flight on both queues of a queue pair
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) qpn: u32,
    pub(crate) send: PostedFrames,
    pub(crate) recv: PostedFrames,
}

// SAFETY: verbs may be called on a completion queue from any thread; it is polled under `polling`.
unsafe impl Send for PolledCq {}
// SAFETY: as above.
unsafe impl Sync for PolledCq {}

/// Completions that are polled in one call of the provider.
const BATCH: usize = 32;

impl PolledCq {
    pub(crate) fn new(device: Arc<DeviceShared>, depth: u32) -> Result<Self, Error> {
        let fail = |cause| Err(Error::new(Verb::CreateCq, cause));
        let max = device.caps.max_cqe;
        if depth == 0 || depth > max {
            return fail(Invalid::CqDepth { depth, max }.into());
        }
        let context = &device.context;
        let channel = device.channel.as_ref().map_or(null_mut(), Channel::as_ptr);
        errno::clear();
        // SAFETY: the context is open, and the channel, if there is one, is of the same context.
        let cq = unsafe {
            (context.provider.ibv_create_cq)(context.as_ptr(), depth as c_int, null_mut(), channel, 0)
        };
        let Some(cq) = NonNull::new(cq) else {
            return fail(errno::creation_cause(
                errno::last(),
                Resource::CompletionQueues,
                device.caps.max_cq,
            ));
        };
        let backoff = Backoff::new(device.options.poll);
        let in_call = device.call_watch.queue(Verb::PollCq);
        let (polling, in_flight) = (SpinMutex::default(), SpinMutex::default());
        let queue = Self { device, cq, backoff, in_call, polling, in_flight };
        if let Some(channel) = &queue.device.channel {
            channel.arm(&queue.device.context, cq)?;
        }
        Ok(queue)
    }

    pub(crate) fn as_ptr(&self) -> *mut Cq {
        self.cq.as_ptr()
    }

    /// Counts the completions of a queue pair from now on
    pub(crate) fn add(&self, in_flight: Arc<InFlight>) {
        self.in_flight.lock().push(in_flight);
    }

    /// Counts the completions of a queue pair no longer
    ///
    /// One that a poll is just returning counts for the queue pair that has its number then.
    pub(crate) fn remove(&self, qpn: u32) {
        self.in_flight.lock().retain(|in_flight| in_flight.qpn != qpn);
    }

    /// Polls at most `out.len()` completions; finds none while another thread polls
    #[inline]
    pub(crate) fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let mut wcs = [const { MaybeUninit::<Wc>::uninit() }; BATCH];
        let wanted = out.len().min(BATCH);
        let device = &*self.device;
        let Some(mut silent) = self.polling.try_lock() else { return Ok(0) };
        let in_call = self.in_call.enter();
        // SAFETY: the queue exists as long as `self`, only the holder of the lock polls it, and there is space for `wanted` entries.
        let n = unsafe { (device.poll_cq)(self.cq.as_ptr(), wanted as c_int, wcs.as_mut_ptr().cast()) };
        drop(in_call);
        let Ok(n) = usize::try_from(n) else {
            device.port_watch.suspect();
            return Err(Error::new(Verb::PollCq, errno::cause(n)));
        };
        if n == 0 {
            *silent += 1;
            if *silent == SILENCE {
                *silent = 0;
                device.port_watch.suspect();
            }
            return Ok(0);
        }
        *silent = 0;
        let queue_pairs = self.in_flight.lock();
        for (slot, wc) in out.iter_mut().zip(&wcs[..n.min(wanted)]) {
            // SAFETY: the provider has filled the first `n` entries.
            *slot = unsafe { completion(wc) };
            if slot.status != Status::Success {
                // Which queue it is of is not known: its frames stay taken, rather than those of a request that is under way.
                device.port_watch.suspect();
                continue;
            }
            device.port_watch.completed();
            if let Some(in_flight) = queue_pairs.iter().find(|in_flight| in_flight.qpn == slot.qpn.0) {
                if slot.opcode == Opcode::Recv {
                    in_flight.recv.complete()
                } else {
                    in_flight.send.complete()
                }
            }
        }
        Ok(n.min(wanted))
    }
}

/// Reads a completion, of which a failed one has only its name, its status and its queue pair (libibverbs manual, `ibv_poll_cq`)
///
/// # Safety
///
/// The provider must have filled `wc`.
#[inline]
unsafe fn completion(wc: &MaybeUninit<Wc>) -> Completion {
    let wc = wc.as_ptr();
    // SAFETY: the caller promises that this field is there.
    let id = WrId(unsafe { (*wc).wr_id });
    // SAFETY: as above.
    let status = Status::from_code(unsafe { (*wc).status });
    // SAFETY: as above.
    let qpn = Qpn(unsafe { (*wc).qp_num });
    if status != Status::Success {
        return Completion { id, status, qpn, ..Completion::default() };
    }
    // SAFETY: of a completion without an error, every field is there.
    let wc = unsafe { &*wc };
    let opcode = match wc.opcode {
        opcode if opcode & constants::WC_RECV != 0 => Opcode::Recv,
        constants::WC_RDMA_WRITE => Opcode::Write,
        constants::WC_RDMA_READ => Opcode::Read,
        constants::WC_COMP_SWAP | constants::WC_FETCH_ADD => Opcode::Atomic,
        _ => Opcode::Send,
    };
    let byte_len = if opcode == Opcode::Recv { wc.byte_len } else { 0 };
    Completion { id, status, opcode, byte_len, qpn }
}

impl Drop for PolledCq {
    fn drop(&mut self) {
        // SAFETY: the queue pairs of the queue keep this, and are gone; it is destroyed once.
        let failed = unsafe { (self.device.context.provider.ibv_destroy_cq)(self.cq.as_ptr()) };
        if failed != 0 {
            tracing::warn!(errno = failed, "a completion queue could not be destroyed");
        }
    }
}

// The tests of `Backoff` that run without loom, which compiles that file a second time.
#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;
    use crate::PollPolicy;

    /// Catches a lone completion after which a task spins for long, and a conversation that does not make it spin longer.
    #[test]
    fn a_task_spins_longer_the_more_completes_while_it_spins() {
        let hour = Duration::from_secs(3600);
        let backoff = Backoff::new(PollPolicy { spins: 64, nap: hour, longest_nap: hour });
        let cx = Context::from_waker(Waker::noop());
        // Polls without a completion until the task sleeps, after so many with one
        let spins_after = |found: u32| {
            (0..found).for_each(|_| assert!(!backoff.wait(&cx, true), "there may be more"));
            (1..).find(|_| backoff.wait(&cx, false))
        };
        assert_eq!([0, 1, 2, 3, 5, 6, 1].map(spins_after), [64, 4, 8, 16, 64, 64, 4].map(Some));
        backoff.posted();
        assert!(!backoff.wait(&cx, false), "a post ends the nap");
        let none = Backoff::new(PollPolicy { spins: 0, nap: hour, longest_nap: hour });
        assert!(none.wait(&cx, true) && none.wait(&cx, false), "it never spins");
    }

    /// Catches naps that begin anew after each heartbeat, which cost more than a percent of a core, and those that stay long in a conversation.
    #[test]
    fn the_naps_after_a_lone_completion_begin_at_a_quarter_of_the_one_before() {
        let hours = |count| Duration::from_hours(count);
        let backoff = Backoff::new(PollPolicy { spins: 64, nap: hours(1), longest_nap: hours(100) });
        let cx = Context::from_waker(Waker::noop());
        let rest = || (0..200).for_each(|_| _ = backoff.wait(&cx, false));
        let first_nap_after = |found: u32| {
            (0..found).for_each(|_| assert!(!backoff.wait(&cx, true), "there may be more"));
            while !backoff.wait(&cx, false) {}
            backoff.next_nap()
        };
        rest();
        assert_eq!([1, 1, 1].map(first_nap_after), [32, 8, 2].map(hours));
        rest();
        assert_eq!(
            [4, 5].map(first_nap_after),
            [32, 1].map(hours),
            "the task spins for all polls after the fifth"
        );
        rest();
        backoff.posted();
        assert_eq!(first_nap_after(1), hours(32), "a send and its completion");
    }

    /// Catches naps that begin anew after upkeep, and a rest that ends the spinning of a conversation, or that forgets what another thread has
    /// posted: an application that sends while a heartbeat passes would wait for the end of a nap.
    #[test]
    fn a_task_at_rest_sleeps_on_after_a_completion() {
        let hours = |count| Duration::from_hours(count);
        let backoff = Backoff::new(PollPolicy { spins: 64, nap: hours(1), longest_nap: hours(100) });
        let cx = Context::from_waker(Waker::noop());
        let polls_until_nap = || (1..).find(|_| backoff.wait(&cx, false));
        assert!(!backoff.wait(&cx, false), "it has not slept yet");
        backoff.rest();
        backoff.rest();
        assert_eq!(polls_until_nap(), Some(63), "it has not slept yet");
        (0..200).for_each(|_| _ = backoff.wait(&cx, false));
        // The thread that polls is another one than before, which was none.
        backoff.rest();
        for is_post in [false, true] {
            if is_post {
                backoff.posted();
            } else {
                assert!(!backoff.wait(&cx, true), "there may be more");
            }
            backoff.rest();
            assert!(backoff.wait(&cx, false), "the task sleeps");
            assert_eq!(backoff.next_nap(), hours(100), "as long as before");
        }
        std::thread::scope(|scope| _ = scope.spawn(|| backoff.posted()));
        backoff.await_cut();
        backoff.rest();
        assert!(!backoff.wait(&cx, false), "another thread has posted");
        (0..7).for_each(|_| _ = backoff.wait(&cx, true));
        backoff.rest();
        assert_eq!(polls_until_nap(), Some(64), "a conversation goes on");
    }

    /// Catches a failed completion of which more is read than its name, its status and its queue pair: the rest may be that of an older one.
    #[test]
    fn a_failed_completion_names_neither_operation_nor_length() {
        let stale =
            Wc { wr_id: 5, status: 0, opcode: constants::WC_RECV, byte_len: 77, qp_num: 3, ..Wc::default() };
        let read = |wc: Wc| {
            // SAFETY: all of it is there.
            unsafe { completion(&MaybeUninit::new(wc)) }
        };
        assert_eq!((read(stale).opcode, read(stale).byte_len), (Opcode::Recv, 77));
        let failed =
            Completion { id: WrId(5), status: Status::Flushed, qpn: Qpn(3), ..Completion::default() };
        assert_eq!(read(Wc { status: 5, ..stale }), failed);
    }
}
