//! Verbs that take time

use crate::engine::Engine;
use crate::errno::{Errno, guarded};

/// As [`guarded`], for a verb of connecting or teardown: returns when the verb has taken its time, in which the calling thread does nothing
/// else
pub(super) fn blocking<T>(fail: impl FnOnce(Errno) -> T, f: impl FnOnce() -> Result<T, Errno>) -> T {
    guarded(fail, || {
        let result = f();
        Engine::get()?.spend_blocked();
        result
    })
}
