//! The loops that combine elements, on bytes: plain loops over slices, which the compiler vectorises

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::reduction::Reduction;

/// Combines elements with others, and makes the average of sums
#[derive(Clone, Copy, Debug)]
#[expect(unnameable_types, reason = "only the sealed part of a trait has it")]
pub struct Kernel {
    /// Combines each element of the first slice with that of the second
    pub(crate) combine: fn(&mut [u8], &[u8]),
    /// Divides each element by the number of ranks, if the reduction needs it
    pub(crate) divide: Option<fn(&mut [u8], usize)>,
}

/// Combines each two elements by `$fold`, read from memory of any alignment
macro_rules! combine {
    ($element:ty, $fold:expr) => {
        |into: &mut [u8], from: &[u8]| {
            const SIZE: usize = size_of::<$element>();
            let fold: fn($element, $element) -> $element = $fold;
            let (into, _) = into.as_chunks_mut::<SIZE>();
            let (from, _) = from.as_chunks::<SIZE>();
            for (into, from) in into.iter_mut().zip(from) {
                *into =
                    fold(<$element>::from_ne_bytes(*into), <$element>::from_ne_bytes(*from)).to_ne_bytes();
            }
        }
    };
}

macro_rules! divide {
    ($element:ty, $quotient:expr) => {
        Some(|into: &mut [u8], ranks: usize| {
            let quotient: fn($element, usize) -> $element = $quotient;
            for into in into.as_chunks_mut::<{ size_of::<$element>() }>().0 {
                *into = quotient(<$element>::from_ne_bytes(*into), ranks).to_ne_bytes();
            }
        })
    };
}

macro_rules! integers {
    ($($name:ident: $element:ty, $divide:expr;)*) => {$(
        pub(super) fn $name(reduction: Reduction) -> Option<Kernel> {
            let sum: fn(&mut [u8], &[u8]) = combine!($element, |a, b| a.wrapping_add(b));
            let (combine, divide): (fn(&mut [u8], &[u8]), Option<fn(&mut [u8], usize)>) = match reduction {
                Reduction::Average => (sum, divide!($element, $divide)),
                Reduction::Max => (combine!($element, |a, b| a.max(b)), None),
                Reduction::Min => (combine!($element, |a, b| a.min(b)), None),
                Reduction::Product => (combine!($element, |a, b| a.wrapping_mul(b)), None),
                Reduction::Sum => (sum, None),
            };
            Some(Kernel { combine, divide })
        }
    )*};
}

// The number of ranks may not fit into the narrow types.
integers! {
    of_i8: i8, |a, ranks| (i64::from(a) / ranks as i64) as i8;
    of_i16: i16, |a, ranks| (i64::from(a) / ranks as i64) as i16;
    of_i32: i32, |a, ranks| a / ranks as i32;
    of_i64: i64, |a, ranks| a / ranks as i64;
    of_u8: u8, |a, ranks| (usize::from(a) / ranks) as u8;
    of_u16: u16, |a, ranks| (usize::from(a) / ranks) as u16;
    of_u32: u32, |a, ranks| a / ranks as u32;
    of_u64: u64, |a, ranks| a / ranks as u64;
}

/// Folds of floats whose result has the same bits on each machine and in each build
///
/// IEEE 754 leaves open which NaN a computation yields, and Rust which zero is the larger one. So each NaN becomes that of the
/// type, and 0 is more than -0.
trait Fold: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// The larger one; a number beside a NaN wins
    fn larger(self, other: Self) -> Self;
    /// The smaller one; a number beside a NaN wins
    fn smaller(self, other: Self) -> Self;
    fn quotient(self, ranks: usize) -> Self;
}

macro_rules! floats {
    ($($name:ident: $element:ident;)*) => {$(
        impl Fold for $element {
            #[inline]
            fn sum(self, other: Self) -> Self {
                $name::canonical(self + other)
            }

            #[inline]
            fn product(self, other: Self) -> Self {
                $name::canonical(self * other)
            }

            #[inline]
            fn larger(self, other: Self) -> Self {
                // Equal numbers differ in the sign of a zero only.
                let equal = $element::from_bits(self.to_bits() & other.to_bits());
                let number = if self == other { equal } else if self > other { self } else { other };
                if other.is_nan() { $name::canonical(self) } else if self.is_nan() { other } else { number }
            }

            #[inline]
            fn smaller(self, other: Self) -> Self {
                let equal = $element::from_bits(self.to_bits() | other.to_bits());
                let number = if self == other { equal } else if self < other { self } else { other };
                if other.is_nan() { $name::canonical(self) } else if self.is_nan() { other } else { number }
            }

            #[inline]
            fn quotient(self, ranks: usize) -> Self {
                $name::canonical(self / ranks as Self)
            }
        }

        mod $name {
            #[inline]
            pub(super) fn canonical(number: $element) -> $element {
                if number.is_nan() { $element::NAN } else { number }
            }
        }

        pub(super) fn $name(reduction: Reduction) -> Option<Kernel> {
            let sum: fn(&mut [u8], &[u8]) = combine!($element, Fold::sum);
            let (combine, divide): (fn(&mut [u8], &[u8]), Option<fn(&mut [u8], usize)>) = match reduction {
                Reduction::Average => (sum, divide!($element, Fold::quotient)),
                Reduction::Max => (combine!($element, Fold::larger), None),
                Reduction::Min => (combine!($element, Fold::smaller), None),
                Reduction::Product => (combine!($element, Fold::product), None),
                Reduction::Sum => (sum, None),
            };
            Some(Kernel { combine, divide })
        }
    )*};
}

floats! {
    of_f32: f32;
    of_f64: f64;
}

/// How many 16-bit floats are converted at once, on the stack.
const AT_ONCE: usize = 64;

/// Computes in `f32`, a piece at a time
macro_rules! halves {
    ($($name:ident: $half:ty;)*) => {$(
        pub(super) fn $name(reduction: Reduction) -> Option<Kernel> {
            fn fold(into: &mut [u8], from: &[u8], fold: impl Fn(f32, f32) -> f32) {
                let (mut halves, mut left, mut right) = ([<$half>::ZERO; AT_ONCE], [0.0; AT_ONCE], [0.0; AT_ONCE]);
                let size = AT_ONCE * size_of::<$half>();
                for (into, from) in into.chunks_mut(size).zip(from.chunks(size)) {
                    let count = from.len() / size_of::<$half>();
                    let (halves, left, right) = (&mut halves[..count], &mut left[..count], &mut right[..count]);
                    for (bytes, floats) in [(from, &mut *right), (&*into, &mut *left)] {
                        halves.as_mut_bytes().copy_from_slice(bytes);
                        halves.convert_to_f32_slice(floats);
                    }
                    left.iter_mut().zip(&*right).for_each(|(left, right)| *left = fold(*left, *right));
                    halves.convert_from_f32_slice(left);
                    into.copy_from_slice(halves.as_bytes());
                }
            }
            let sum: fn(&mut [u8], &[u8]) = |into, from| fold(into, from, Fold::sum);
            let divide: fn(&mut [u8], usize) = |into, ranks| {
                for half in into.as_chunks_mut::<{ size_of::<$half>() }>().0 {
                    *half = <$half>::from_f32(<$half>::from_ne_bytes(*half).to_f32().quotient(ranks)).to_ne_bytes();
                }
            };
            let (combine, divide): (fn(&mut [u8], &[u8]), _) = match reduction {
                Reduction::Average => (sum, Some(divide)),
                Reduction::Max => (|into, from| fold(into, from, Fold::larger), None),
                Reduction::Min => (|into, from| fold(into, from, Fold::smaller), None),
                Reduction::Product => (|into, from| fold(into, from, Fold::product), None),
                Reduction::Sum => (sum, None),
            };
            Some(Kernel { combine, divide })
        }
    )*};
}

halves! {
    of_bf16: bf16;
    of_f16: f16;
}

pub(super) fn of_complex64(reduction: Reduction) -> Option<Kernel> {
    match reduction {
        // Complex numbers are added and divided part by part.
        Reduction::Average | Reduction::Sum => of_f32(reduction),
        Reduction::Max | Reduction::Min => None,
        Reduction::Product => Some(Kernel {
            combine: |into, from| {
                let parts = |bytes: &[u8; 8]| <[f32; 2]>::read_from_bytes(bytes).unwrap_or_default();
                let (into, _) = into.as_chunks_mut::<8>();
                for (into, from) in into.iter_mut().zip(from.as_chunks::<8>().0) {
                    let ([a, b], [c, d]) = (parts(into), parts(from));
                    let product = [(a * c - b * d), (a * d + b * c)].map(of_f32::canonical);
                    into.copy_from_slice(product.as_bytes());
                }
            },
            divide: None,
        }),
    }
}

pub(super) fn of_bool(reduction: Reduction) -> Option<Kernel> {
    let combine: fn(&mut [u8], &[u8]) = match reduction {
        Reduction::Average => return None,
        Reduction::Max | Reduction::Sum => |into, from| into.iter_mut().zip(from).for_each(|(a, b)| *a |= b),
        Reduction::Min | Reduction::Product => {
            |into, from| into.iter_mut().zip(from).for_each(|(a, b)| *a &= b)
        }
    };
    Some(Kernel { combine, divide: None })
}
