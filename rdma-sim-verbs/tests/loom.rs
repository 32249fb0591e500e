//! Every interleaving of hosts that send and a host that goes to sleep
//!
//! The file of the crate is compiled again here, against loom's primitives instead of the standard ones. A lost wake-up is a
//! deadlock of the model. Mutants that these tests have caught:
//!
//! * `Doorbell::sleep_unless` that looks for news before it says that it sleeps, or without the fence between both;
//! * `Doorbell::must_wake` without the fence between the record and the look at the sleeper.
#![allow(dead_code)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

#[path = "../src/shared/doorbell.rs"]
mod doorbell;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::doorbell::Doorbell;
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
    doorbell: Doorbell,
    pipe: Pipe,
}

impl<const N: usize> Host<N> {
    fn new() -> Arc<Self> {
        let heads = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self { heads, doorbell: Doorbell::default(), pipe: Pipe::default() })
    }

    /// What `Senders::send` does, after the record is written
    fn send(&self, from: usize, head: u64) {
        self.heads[from].store(head, Ordering::Release);
        if self.doorbell.must_wake() {
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
            self.doorbell.sleep_unless(|| self.received() > received, || self.pipe.wait());
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
