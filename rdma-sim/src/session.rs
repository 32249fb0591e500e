//! Several steps of a simulation under one lock
#![allow(unsafe_code, reason = "posts are unsafe, as those of the trait")]

use std::panic::Location;
use std::task::Waker;

use rdma_core::{Completion, Error, RecvRequest, SendRequest, Time, Verb};

use crate::device::{SimCompletionQueue, SimQueuePair};
use crate::executor::SimRuntime;
use crate::fabric::{CableStats, DeviceRef, Process};
use crate::fault::{Fault, FaultError, FaultPlan};
use crate::remote::{LinkMessage, ProcessName};
use crate::shared::{Locked, Shared, State};
use crate::topology::Topology;
use crate::verb_time;

/// Exclusive access to a simulation for one verb of a foreign program: look what has come, post, let time pass
///
/// The verbs of [`SimQueuePair`] and [`SimCompletionQueue`] lock the simulation once per step; a session locks it once for
/// all. A post or poll that a fault makes [slow](Self::takes_time) counts once for the session. Wakers are called when the session
/// [ends](Self::end): they may use the simulation.
#[derive(Debug)]
pub struct Session<'a> {
    shared: &'a Shared,
    runtime: &'a SimRuntime,
    /// `None` once the session has ended.
    input: Option<RemoteInput<'a>>,
    woken: Vec<Waker>,
    has_host_news: bool,
    /// A fault makes the verb of this session slow.
    takes_time: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(shared: &'a Shared, runtime: &'a SimRuntime) -> Self {
        let input = Some(RemoteInput(shared.lock()));
        Self { shared, runtime, input, woken: Vec::new(), has_host_news: false, takes_time: false }
    }

    /// The side of the simulation that takes what other hosts have sent
    pub fn remote_input(&mut self) -> &mut RemoteInput<'a> {
        self.input.as_mut().expect("the session has not ended")
    }

    fn state(&mut self) -> &mut State {
        &mut self.remote_input().0
    }

    /// The virtual time
    pub fn now(&mut self) -> Time {
        self.state().fabric.schedule.now()
    }

    /// When the next event is due, if one is scheduled
    pub fn next_event(&mut self) -> Option<Time> {
        self.state().fabric.schedule.next()
    }

    /// Advances time to `time`, unless it has passed, and runs the events that are due
    pub fn advance_to(&mut self, time: Time) {
        loop {
            let State { fabric, .. } = self.state();
            let time = time.max(fabric.schedule.now());
            if fabric.advance(time, Some(time)) {
                return;
            }
            self.has_host_news |= self.state().fabric.world.take_processes_changed();
            let ports = self.state().take_port_wakers();
            self.woken.extend(ports.into_iter().flatten());
            while self.state().fabric.cqs.has_woken() {
                let waker = self.state().pop_woken();
                self.woken.extend(waker);
            }
        }
    }

    /// Begins `verb` of `device`; false if it never returns, and so has no effect
    #[inline]
    fn begin(&mut self, device: DeviceRef, verb: Verb) -> bool {
        !self.state().fabric.world.has_slow_verbs() || self.begin_slow(device, verb)
    }

    #[cold]
    fn begin_slow(&mut self, device: DeviceRef, verb: Verb) -> bool {
        let ns = self.state().fabric.world.slow_verb_ns(device.index, verb);
        if ns > 0 && !std::mem::replace(&mut self.takes_time, true) {
            verb_time::add(ns);
        }
        !verb_time::is_stuck()
    }

    /// Whether a fault makes the post or poll of this session slow, or keeps it for ever: the thread that has called it
    /// [waits](crate::Driver::take_blocked) when the session has ended
    pub fn takes_time(&self) -> bool {
        self.takes_time
    }

    /// Posts a send, as [`QueuePair::post_send`](rdma_core::QueuePair::post_send) does
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_send`](rdma_core::QueuePair::post_send).
    ///
    /// # Panics
    ///
    /// If the queue pair is of another simulation.
    ///
    /// # Safety
    ///
    /// As [`QueuePair::post_send`](rdma_core::QueuePair::post_send).
    #[track_caller]
    pub unsafe fn post_send(&mut self, pair: &SimQueuePair, request: &SendRequest<'_>) -> Result<(), Error> {
        let key = pair.key_in(self.shared, Verb::PostSend)?;
        if !self.begin(pair.device(), Verb::PostSend) {
            return Ok(());
        }
        self.state().fabric.post_send(key, request, Location::caller())
    }

    /// Posts a receive, as [`QueuePair::post_recv`](rdma_core::QueuePair::post_recv) does
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_recv`](rdma_core::QueuePair::post_recv).
    ///
    /// # Panics
    ///
    /// If the queue pair is of another simulation.
    ///
    /// # Safety
    ///
    /// As [`QueuePair::post_recv`](rdma_core::QueuePair::post_recv).
    #[track_caller]
    pub unsafe fn post_recv(&mut self, pair: &SimQueuePair, request: &RecvRequest<'_>) -> Result<(), Error> {
        let key = pair.key_in(self.shared, Verb::PostRecv)?;
        if !self.begin(pair.device(), Verb::PostRecv) {
            return Ok(());
        }
        self.state().fabric.post_recv(key, request, Location::caller())
    }

    /// Takes completions, as [`CompletionQueue::poll`](rdma_core::CompletionQueue::poll) does; none if a fault lets the poll hang
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`](rdma_core::CompletionQueue::poll).
    ///
    /// # Panics
    ///
    /// If the completion queue is of another simulation.
    pub fn poll(&mut self, queue: &SimCompletionQueue, out: &mut [Completion]) -> Result<usize, Error> {
        let key = queue.key_in(self.shared);
        if !self.begin(queue.device(), Verb::PollCq) {
            return Ok(0);
        }
        self.state().fabric.cqs.poll(key, out)
    }

    /// What each port of `host` has sent, in the order of the topology; `None` if nothing was sent since the last call
    pub fn take_sent(&mut self, host: u32) -> Option<impl Iterator<Item = CableStats>> {
        let fabric = &mut self.state().fabric;
        if !fabric.links.take_counted() {
            return None;
        }
        let devices = fabric.world.devices_of(host);
        Some(devices.map(|device| {
            fabric.world.link(device).map_or_else(CableStats::default, |link| fabric.links.stats(link)[0])
        }))
    }

    /// The state of the processes of `host` according to the faults that have fired
    pub fn process(&mut self, host: u32) -> Process {
        self.state().fabric.world.process(host).0
    }

    /// Unlocks the simulation and calls the wakers; returns whether faults have stopped or started processes meanwhile
    pub fn end(self) -> bool {
        self.has_host_news
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let now = self.now();
        drop(self.input.take());
        self.runtime.expire(now);
        self.woken.drain(..).for_each(Waker::wake);
    }
}

/// Exclusive access to the simulation of one host, to apply what other hosts have sent
#[derive(Debug)]
pub struct RemoteInput<'a>(pub(crate) Locked<'a>);

impl RemoteInput<'_> {
    /// Applies a message from `process`; a message that makes no sense changes nothing
    pub fn apply(&mut self, process: ProcessName, message: &LinkMessage<'_>) {
        self.0.fabric.apply_remote(process, message);
    }

    /// Forgets what an earlier process of that name has sent, and announces the queue pairs and receives that concern it to the new one
    pub fn announce_all_to(&mut self, process: ProcessName) {
        self.0.fabric.announce_all_to(process);
    }

    /// Forgets what `process` has sent: it has ended
    pub fn forget(&mut self, process: ProcessName) {
        self.0.fabric.forget_process(process);
    }

    /// Retries the queue pairs that wait for room in the transport
    pub fn resume(&mut self) {
        self.0.fabric.resume_blocked();
    }

    /// Schedules `fault`; it fires at once if its time has passed
    ///
    /// # Errors
    ///
    /// [`FaultError`] with [`FaultReason::UnknownHost`](crate::fault::FaultReason::UnknownHost) or
    /// [`FaultReason::UnknownDevice`](crate::fault::FaultReason::UnknownDevice) if the topology lacks the target.
    pub fn plan(&mut self, fault: Fault, topology: &Topology) -> Result<(), FaultError> {
        FaultPlan(vec![fault.clone()]).check(topology)?;
        self.0.fabric.plan(fault);
        Ok(())
    }

    /// The state of the processes of `host` according to the faults that have fired, and how often they were started
    pub fn process(&self, host: u32) -> (Process, u32) {
        self.0.fabric.world.process(host)
    }

    /// How often `host` has restarted according to the faults that have fired: each time its kernel freed every object
    pub fn boots(&self, host: u32) -> u32 {
        self.0.fabric.world.boots(host)
    }
}
