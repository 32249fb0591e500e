//! Elements of the vectors that are measured

use half::{bf16, f16};
use rdma_collectives::Element;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The type of elements
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum NumberType {
    Bf16,
    F16,
    #[default]
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// A type of elements that represents the sums of the measurement exactly
pub(super) trait Number: Element + Default + FromBytes + Immutable + IntoBytes + PartialEq {
    /// A whole number up to 127
    fn of(value: u8) -> Self;
    /// Adds elements to others, both as bytes
    fn add(sums: &mut [u8], bytes: &[u8]);
}

macro_rules! numbers {
    ($($number:ident: $of:expr, $sum:expr);* $(;)?) => {$(
        impl Number for $number {
            #[inline]
            fn of(value: u8) -> Self {
                $of(value)
            }

            fn add(sums: &mut [u8], bytes: &[u8]) {
                let ((sums, _), (bytes, _)) = (sums.as_chunks_mut(), bytes.as_chunks());
                for (sum, bytes) in sums.iter_mut().zip(bytes) {
                    *sum = $sum(Self::from_ne_bytes(*sum), Self::from_ne_bytes(*bytes)).to_ne_bytes();
                }
            }
        }
    )*};
}

numbers! {
    bf16: |value| bf16::from_f32(f32::from(value)), |a, b| a + b;
    f16: |value| f16::from_f32(f32::from(value)), |a, b| a + b;
    f32: f32::from, |a, b| a + b;
    f64: f64::from, |a, b| a + b;
    i8: |value| value as i8, i8::wrapping_add;
    i16: i16::from, i16::wrapping_add;
    i32: i32::from, i32::wrapping_add;
    i64: i64::from, i64::wrapping_add;
    u8: |value| value, u8::wrapping_add;
    u16: u16::from, u16::wrapping_add;
    u32: u32::from, u32::wrapping_add;
    u64: u64::from, u64::wrapping_add;
}
