use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Time;

/// A call that may block its thread; what it returns is run when the call has returned
///
/// Two parts, because the verbs of a simulation return at once, and take virtual time all the same: the second part runs when that time
/// is over, and never if one of the verbs does not return.
///
/// ```
/// use rdma_core::{BlockingCall, Runtime as _};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let (sender, receiver) = std::sync::mpsc::channel();
///     let (device, runtime) = (net.open("a", "rdma_en2")?, net.runtime());
///     let call: BlockingCall = Box::new(move || {
///         let port = rdma_core::Device::port(&device);
///         Box::new(move || drop(sender.send(port)))
///     });
///     runtime.spawn_blocking(call);
///     net.sleep(std::time::Duration::from_millis(1)).await;
///     receiver.try_recv().expect("the verb has returned").map(drop)
/// })
/// .value
/// .unwrap();
/// ```
pub type BlockingCall = Box<dyn FnOnce() -> Box<dyn FnOnce() + Send> + Send>;

/// The clock, the timers and the task spawner that `rdma-async` runs on
///
/// The simulator implements it over virtual time, `rdma-async` over tokio. No crate of the workspace asks a global
/// clock.
///
/// ```
/// use std::time::Duration;
/// use std::future::poll_fn;
/// use rdma_core::{Runtime as _, Timer as _};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let runtime = net.runtime();
///     let deadline = runtime.now() + Duration::from_secs(3600);
///     let mut timer = runtime.timer();
///     timer.as_mut().reset(deadline);
///     poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
///     assert!(runtime.now() >= deadline, "an hour of virtual time has passed");
/// });
/// ```
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The time by this runtime's clock, which never goes backwards
    fn now(&self) -> Time;

    /// Starts `task`, which runs until it returns or the runtime is dropped
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Runs `call` where it may block its thread, for ever if need be, without keeping a task of this runtime from running
    ///
    /// Also the end of the runtime does not wait for it.
    fn spawn_blocking(&self, call: BlockingCall);

    /// Whether the time of this runtime is that of the system: then a [blocking call](Self::spawn_blocking) may sleep
    ///
    /// The default is no, as in a simulation, where time passes only while all threads wait for it.
    fn is_real_time(&self) -> bool {
        false
    }

    /// Whether the destructor that runs is one of a process that was killed: a real process runs none, so it must send others nothing
    ///
    /// The default is no; a simulation that kills processes knows.
    fn is_killed(&self) -> bool {
        false
    }

    /// Creates a timer without a deadline
    fn timer(&self) -> Pin<Box<dyn Timer>>;

    /// A number that no peer can guess, different each time; in a simulation, the same in each run
    ///
    /// The default draws it from the keys that the standard library draws for its hash maps, which are those of the system.
    fn random(&self) -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(self.now())
    }

    /// The task that runs has copied or combined memory; a simulation that models processors lets time pass for it
    ///
    /// The default does nothing: a real processor has taken the time already.
    fn spend(&self, work: Work) {
        let _ = work;
    }
}

/// What a processor does to memory, see [`Runtime::spend`]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Work {
    /// Copies so many bytes
    Copy {
        /// How many
        bytes: usize,
    },
    /// Combines so many bytes with as many others, such as a sum of vectors
    Reduce {
        /// How many
        bytes: usize,
    },
}

/// Wakes a task at a point in time; see the example of [`Runtime`]
pub trait Timer: fmt::Debug + Send {
    /// Replaces the deadline
    fn reset(self: Pin<&mut Self>, deadline: Time);

    /// Ready once the deadline has passed; pending before, and while none is set
    fn poll_expired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
}
