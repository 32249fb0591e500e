//! In real time: nanoseconds of the fabric are nanoseconds of the wall clock
//!
//! A thread fires the events. It sleeps until the next one is due, for ever if nothing is scheduled, and a verb or a timer that
//! brings about an earlier one wakes it; the last 60 µs before an event, which is how late a system may end a sleep, it spins. A
//! verb takes place at the time of the wall clock. A poll fires what is due by itself, so that a program that spins needs no other
//! thread.
//!
//! ```
//! use rdma_core::Time;
//! use rdma_sim::{Sim, driver::realtime};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! // A runtime of the caller runs the tasks; this program has none.
//! let running = realtime::start(Sim::new(), drop)?;
//! running.net().sleep(std::time::Duration::from_millis(1)).await;
//! assert!(running.net().now() >= Time::from_nanos(1_000_000));
//! # Ok::<(), rdma_sim::FaultError>(())
//! # }).unwrap();
//! ```

use std::sync::Arc;

use rdma_core::Time;

use super::{Driver, Task};
use crate::fault::FaultError;
use crate::net::Net;
use crate::sim::Sim;
use crate::wall_clock::WallClock;

/// A simulation that a thread keeps in step with the wall clock, until it is dropped
#[derive(Debug)]
pub struct Running {
    net: Net,
    clock: Arc<WallClock>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Runs `sim` in real time; `spawn` runs its tasks
///
/// # Errors
///
/// [`FaultError`] with [`FaultReason::UnknownHost`](crate::fault::FaultReason::UnknownHost) or
/// [`FaultReason::UnknownDevice`](crate::fault::FaultReason::UnknownDevice) if the topology lacks the target of a fault.
#[expect(clippy::disallowed_methods, reason = "this driver runs on the wall clock")]
pub fn start(sim: Sim, spawn: impl Fn(Task) + Send + Sync + 'static) -> Result<Running, FaultError> {
    let clock = Arc::new(WallClock::start());
    let driver = Driver::build(sim, spawn, Some(Arc::clone(&clock)))?;
    let (net, follows) = (driver.net().clone(), Arc::clone(&clock));
    let thread = std::thread::spawn(move || {
        while !follows.is_over() {
            driver.advance_to(follows.now());
            follows.rest(|| driver.next().unwrap_or(Time::MAX));
        }
    });
    Ok(Running { net, clock, thread: Some(thread) })
}

impl Running {
    /// The simulated Macs and cables
    pub fn net(&self) -> &Net {
        &self.net
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.clock.end();
        // The thread has printed its panic, if it had one.
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::mem::ManuallyDrop;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use rdma_core::{Completion, CompletionQueue as _, Device as _, PortState};

    use super::*;
    use crate::{Fault, FaultKind};

    const DEVICE: &str = "rdma_en2";

    /// Waits for what another thread does, however slow the machine is
    fn eventually(is_true: impl Fn() -> bool) {
        for _ in 0..60_000 {
            if is_true() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it does not come");
    }

    /// A simulation in which nothing is scheduled, and whose thread sleeps
    fn resting() -> Running {
        let running = start(Sim::new(), drop).unwrap();
        eventually(|| running.clock.sleeps_until() == Time::MAX);
        running
    }

    /// A simulation whose clock no thread follows
    fn without_a_thread() -> (Driver, Arc<WallClock>) {
        let clock = Arc::new(WallClock::start());
        (Driver::build(Sim::new(), drop, Some(Arc::clone(&clock))).unwrap(), clock)
    }

    fn unplug() -> Fault {
        Fault::at_port(Time::ZERO, "a", DEVICE, FaultKind::Unplug)
    }

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Catches a thread that looks now and then: an idle simulation took 5 % of a core.
    #[test]
    fn the_thread_sleeps_for_ever_while_nothing_is_scheduled() {
        let running = resting();
        let sleeps = running.clock.sleeps();
        let device = running.net().open("a", DEVICE).unwrap();
        assert!(device.create_cq(4).unwrap().poll(&mut [Completion::default()]).is_ok());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((running.clock.sleeps(), running.clock.sleeps_until()), (sleeps, Time::MAX));
    }

    /// Catches `Locked` without its look at the next event: the thread would sleep past it.
    #[test]
    fn an_event_that_is_added_ends_the_sleep() {
        let running = resting();
        running.net().inject(unplug());
        eventually(|| running.net().port("a", DEVICE).unwrap().state == PortState::Down);
    }

    /// Catches `WallTimer::reset` that does not wake the thread.
    #[test]
    fn a_timer_that_is_set_ends_the_sleep() {
        let running = resting();
        let flag = Arc::<Flag>::default();
        let (runtime, waker) = (running.net().runtime(), Waker::from(Arc::clone(&flag)));
        let mut timer = runtime.timer();
        timer.as_mut().reset(runtime.now() + Duration::from_millis(1));
        let mut expired = pin!(poll_fn(|cx| timer.as_mut().poll_expired(cx)));
        let mut poll = || expired.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if !poll() {
            eventually(|| flag.0.load(Ordering::SeqCst));
            assert!(poll());
        }
    }

    /// Catches verbs at the time of the last event: their doorbells rang, and their timeouts ended, as long ago as nothing happened.
    #[test]
    fn a_verb_takes_place_at_the_time_of_the_wall_clock() {
        let (driver, clock) = without_a_thread();
        std::thread::sleep(Duration::from_millis(2));
        let before = clock.now();
        let _device = driver.net().open("a", DEVICE).unwrap();
        assert!(driver.net().shared().lock().fabric.schedule.now() >= before);
        assert!(driver.net().now() >= before);
    }

    /// Catches a lock that a thread holds while a verb keeps it: the clock, and every other thread, waited for it.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "one of the threads never ends")]
    fn a_verb_that_hangs_keeps_its_thread_alone() {
        for verb in ["create_cq", "poll_cq"] {
            // If the test fails, the thread of the clock does not end.
            let running = ManuallyDrop::new(start(Sim::new(), drop).unwrap());
            let net = running.net().clone();
            let of_thread = net.open("a", DEVICE).unwrap();
            let queue = of_thread.create_cq(4).unwrap();
            net.inject(format!("at 0s a:{DEVICE} hang {verb}").parse::<Fault>().unwrap());
            std::thread::sleep(Duration::from_millis(5));
            let [has_returned, is_done] = [(); 2].map(|()| Arc::<Flag>::default());
            let of_hung = Arc::clone(&has_returned);
            std::thread::spawn(move || {
                match verb {
                    "create_cq" => drop(of_thread.create_cq(4)),
                    _ => drop(queue.poll(&mut [Completion::default()])),
                }
                of_hung.0.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            let of_other = Arc::clone(&is_done);
            std::thread::spawn(move || {
                let other = net.open("b", DEVICE).unwrap();
                assert!(other.create_cq(4).unwrap().poll(&mut [Completion::default()]).is_ok());
                net.inject(unplug());
                eventually(|| net.port("a", DEVICE).unwrap().state == PortState::Down);
                of_other.0.store(true, Ordering::SeqCst);
            });
            eventually(|| is_done.0.load(Ordering::SeqCst));
            assert!(!has_returned.0.load(Ordering::SeqCst), "{verb}");
            drop(ManuallyDrop::into_inner(running));
        }
    }

    /// Catches a program that spins on the core of the thread that it waits for, and a verb that fires events: its caller may hold
    /// locks that a waker takes.
    #[test]
    fn a_poll_fires_what_is_due_and_another_verb_does_not() {
        let (driver, _) = without_a_thread();
        let device = driver.net().open("a", DEVICE).unwrap();
        let queue = device.create_cq(4).unwrap();
        driver.net().inject(unplug());
        let state = || driver.net().port("a", DEVICE).unwrap().state;
        drop(device.create_cq(4));
        assert_eq!(state(), PortState::Active);
        let _ = queue.poll(&mut [Completion::default()]);
        assert_eq!(state(), PortState::Down);
    }
}
