//! Panics that are caught: their texts and places

use std::any::Any;
use std::cell::RefCell;
use std::mem;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};

/// The text of a panic, and its place in the source
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Panic {
    pub(crate) text: String,
    pub(crate) site: Option<String>,
}

const NO_TEXT: &str = "a panic without a text";

impl Panic {
    pub(crate) fn of(info: &PanicHookInfo<'_>) -> Self {
        let text = info.payload_as_str().unwrap_or(NO_TEXT).to_owned();
        Self { text, site: info.location().map(ToString::to_string) }
    }
}

/// The last panics of a thread
#[derive(Debug, Default)]
struct Panics {
    list: Vec<Panic>,
    /// The panics before this index belong to the code around the innermost [`catch`]
    start: usize,
}

thread_local! {
    static PANICS: RefCell<Panics> = RefCell::default();
}

/// Keeps a panic of this thread, for [`catch`] and [`last`]
pub(crate) fn keep(panic: Panic) {
    PANICS.with_borrow_mut(|Panics { list, start }| {
        // Programs may catch any number of panics themselves.
        if list.len() == *start + 2 {
            list.remove(*start);
        }
        list.push(panic);
    });
}

/// The last panics of this thread in the innermost [`alone`], those that are being handled among them
pub(crate) fn last() -> Vec<Panic> {
    PANICS.with_borrow(|panics| panics.list.clone())
}

/// Calls `f` as if the thread had not panicked before
pub(crate) fn alone<T>(f: impl FnOnce() -> T) -> T {
    let outer = PANICS.take();
    let value = f();
    PANICS.set(outer);
    value
}

/// A panic that was caught
#[derive(Debug)]
pub(crate) struct Caught {
    panic: Panic,
    payload: Box<dyn Any + Send>,
}

/// Calls `f`, also while the thread unwinds from another panic
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Caught> {
    let outer = PANICS.with_borrow_mut(|Panics { list, start }| mem::replace(start, list.len()));
    let outcome = catch_unwind(AssertUnwindSafe(f));
    let kept =
        PANICS.with_borrow_mut(|Panics { list, start }| list.drain(mem::replace(start, outer)..).next_back());
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or(NO_TEXT).to_owned();
        Caught { panic: Panic { text, site: kept.and_then(|panic| panic.site) }, payload }
    })
}

impl Caught {
    /// Panics again
    pub(crate) fn resume(self) -> ! {
        // The hook, which keeps other panics, is not called.
        keep(self.panic);
        resume_unwind(self.payload)
    }

    /// The panic, and that of the destructor of its payload if there was one
    pub(crate) fn into_panics(self) -> Vec<Panic> {
        let Self { panic, payload } = self;
        let of_payload = catch(|| drop(payload)).err().map(|caught| {
            // The destructor of this payload may do the same, and so on.
            mem::forget(caught.payload);
            caught.panic
        });
        std::iter::once(panic).chain(of_payload).collect()
    }
}
