//! Every interleaving of hosts that send and a host that goes to sleep
//!
//! The file of the crate is compiled again here, against loom's primitives instead of the standard ones. A lost wake-up is a
//! deadlock of the model. Mutants that these tests have caught:
//!
//! * `SleepFlag::sleep_unless` that checks the rings before it sets the flag, or without the fence between both;
//! * `SleepFlag::must_wake` without the fence between the record and the test of the flag.
#![allow(dead_code)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

#[path = "../src/shared/sleep_flag.rs"]
mod sleep_flag;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::sleep_flag::SleepFlag;
use self::sync::Ordering;

/// A wake pipe: a notification stays until a wait takes it
#[derive(Default)]
struct Pipe {
    notified: Mutex<u32>,
    changed: Condvar,
}

impl Pipe {
    fn notify(&self) {
        *self.notified.lock().unwrap() += 1;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut notified = self.notified.lock().unwrap();
        while *notified == 0 {
            notified = self.changed.wait(notified).unwrap();
        }
        *notified = 0;
    }
}

/// A host with a ring from each of `N` others, of which only the heads matter
struct Host<const N: usize> {
    heads: [AtomicU64; N],
    sleep_flag: SleepFlag,
    pipe: Pipe,
}

impl<const N: usize> Host<N> {
    fn new() -> Arc<Self> {
        let heads = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self { heads, sleep_flag: SleepFlag::default(), pipe: Pipe::default() })
    }

    /// What `Senders::send` does, after the record is written
    fn send(&self, from: usize, head: u64) {
        self.heads[from].store(head, Ordering::Release);
        if self.sleep_flag.must_wake() {
            self.pipe.notify();
        }
    }

    fn received(&self) -> u64 {
        self.heads.iter().map(|head| head.load(Ordering::Acquire)).sum()
    }

    /// What the thread beside the program does, until it has received `wanted` records
    fn receive(&self, wanted: u64) {
        let mut received = self.received();
        while received < wanted {
            self.sleep_flag.sleep_unless(|| self.received() > received, || self.pipe.wait());
            received = self.received();
        }
    }
}

#[test]
fn a_record_is_never_missed_by_a_host_that_goes_to_sleep() {
    loom::model(|| {
        let host = Host::<1>::new();
        let sender = Arc::clone(&host);
        let sending = thread::spawn(move || (1..=2).for_each(|head| sender.send(0, head)));
        host.receive(2);
        sending.join().unwrap();
    });
}

#[test]
fn records_of_two_hosts_are_never_missed_by_a_third() {
    let mut model = loom::model::Builder::new();
    // All interleavings would take minutes.
    model.preemption_bound = Some(2);
    model.check(|| {
        let host = Host::<2>::new();
        let senders = [0, 1].map(|from| {
            let sender = Arc::clone(&host);
            thread::spawn(move || sender.send(from, 1))
        });
        host.receive(2);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}
