//! The elements of vectors

use std::fmt;

use half::{bf16, f16};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::kernels::{self, Kernel};
use super::reduction::Reduction;

/// A complex number of two `f32`: 64 bits in all, as `complex64` of NumPy, PyTorch and MLX
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, PartialEq)]
#[repr(C)]
pub struct Complex64 {
    /// The real part
    pub re: f32,
    /// The imaginary part
    pub im: f32,
}

/// The type of the elements of a vector
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ElementType {
    /// [`half::bf16`]
    Bf16,
    /// `bool`
    Bool,
    /// [`Complex64`]
    Complex64,
    /// [`half::f16`]
    F16,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
}

impl ElementType {
    pub(super) const ALL: [Self; 14] = [
        Self::Bf16,
        Self::Bool,
        Self::Complex64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];
}

impl ElementType {
    /// The bytes of an element
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::Bf16 | Self::F16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::Complex64 | Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        f.write_str(&name.to_lowercase())
    }
}

/// A type whose vectors a group combines and passes on
///
/// The integers from 8 to 64 bits, `f32`, `f64`, [`half::f16`], [`half::bf16`], [`Complex64`] and `bool`. Minimum and maximum of
/// complex numbers and the average of booleans do not exist. Sums and products of 16-bit floats are computed in `f32` and rounded
/// after each rank. All ranks must have the same byte order: elements are sent as they are in memory.
///
/// The trait is sealed.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type, for messages and errors
    const TYPE: ElementType;
}

/// The elements that an operation changes, of any type: what changes them is compiled once, and not for each type
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the sealed part of a trait has it")]
pub enum Output<'a> {
    /// All bytes are elements
    Bytes(&'a mut [u8]),
    /// Not all bytes are elements: they are changed in a copy
    Booleans(&'a mut [bool]),
}

/// Takes elements from bytes of the same length
pub(super) fn store(elements: &mut [bool], bytes: &[u8]) {
    elements.iter_mut().zip(bytes).for_each(|(element, byte)| *element = *byte != 0);
}

pub(crate) mod sealed {
    use super::{Kernel, Output, Reduction};

    #[expect(unnameable_types, reason = "no other crate implements it")]
    pub trait Sealed: Sized {
        /// The bytes of elements
        fn bytes(elements: &[Self]) -> &[u8];
        /// Elements, to be changed as bytes
        fn output(elements: &mut [Self]) -> Output<'_>;
        /// The function that combines bytes of elements; `None` if there is no such reduction
        fn kernel(reduction: Reduction) -> Option<Kernel>;
    }
}

macro_rules! plain {
    ($($element:ty: $name:ident, $kernels:path);* $(;)?) => {$(
        impl Element for $element {
            const TYPE: ElementType = ElementType::$name;
        }

        impl sealed::Sealed for $element {
            fn bytes(elements: &[Self]) -> &[u8] {
                elements.as_bytes()
            }

            fn output(elements: &mut [Self]) -> Output<'_> {
                Output::Bytes(elements.as_mut_bytes())
            }

            fn kernel(reduction: Reduction) -> Option<Kernel> {
                $kernels(reduction)
            }
        }
    )*};
}

plain! {
    bf16: Bf16, kernels::of_bf16;
    f16: F16, kernels::of_f16;
    f32: F32, kernels::of_f32;
    f64: F64, kernels::of_f64;
    i8: I8, kernels::of_i8;
    i16: I16, kernels::of_i16;
    i32: I32, kernels::of_i32;
    i64: I64, kernels::of_i64;
    u8: U8, kernels::of_u8;
    u16: U16, kernels::of_u16;
    u32: U32, kernels::of_u32;
    u64: U64, kernels::of_u64;
    Complex64: Complex64, kernels::of_complex64;
}

impl Element for bool {
    const TYPE: ElementType = ElementType::Bool;
}

impl sealed::Sealed for bool {
    fn bytes(elements: &[Self]) -> &[u8] {
        elements.as_bytes()
    }

    fn output(elements: &mut [Self]) -> Output<'_> {
        Output::Booleans(elements)
    }

    fn kernel(reduction: Reduction) -> Option<Kernel> {
        kernels::of_bool(reduction)
    }
}
