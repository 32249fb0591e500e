//! Structures that are zero by default

use crate::layout::{Context, Cq, DeviceAttr, Qp, QpInitAttr};

macro_rules! zeroed_by_default {
    ($($structure:ident),*) => {$(
        impl Default for $structure {
            fn default() -> Self {
                // SAFETY: zeros are valid for all fields: numbers, NULL, `None`, and locks that only the provider uses.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

zeroed_by_default!(Context, Cq, DeviceAttr, Qp, QpInitAttr);
