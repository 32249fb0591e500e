//! The loops that combine elements, against scalars

mod all_types;

use std::fmt::Debug;

use proptest::prelude::*;

use half::{bf16, f16};

use super::element::sealed::Sealed as _;
use crate::{Complex64, Element, Reduction};

/// Combines bytes that begin at any address, and compares each element with what `oracle` makes of it
fn check<T: Element + Debug + Default>(
    reduction: Reduction,
    [left, right]: [&[T]; 2],
    offset: usize,
    oracle: impl Fn(T, T) -> T,
) -> Result<(), TestCaseError> {
    let kernel = T::kernel(reduction).expect("the reduction exists");
    let shifted = |elements: &[T]| [&vec![0; offset], T::bytes(elements)].concat();
    let (mut into, from) = (shifted(left), shifted(right));
    (kernel.combine)(&mut into[offset..], &from[offset..]);
    let expected: Vec<T> = left.iter().zip(right).map(|(left, right)| oracle(*left, *right)).collect();
    prop_assert_eq!(&into[offset..], T::bytes(&expected), "{} of {}", reduction, T::TYPE);
    Ok(())
}

fn half_of(bits: u16) -> f16 {
    // Numbers only: which bits of a NaN survive is not promised.
    Some(f16::from_bits(bits)).filter(|half| half.is_finite()).unwrap_or_default()
}

proptest! {
    /// Catches elements that are read from the wrong bytes, left out at the end, or combined by another reduction.
    #[test]
    fn loops_agree_with_scalars(pairs in prop::collection::vec(any::<(u16, u16)>(), 0..300), offset in 0..9_usize) {
        let (left, right): (Vec<u16>, Vec<u16>) = pairs.into_iter().unzip();
        let both = [&left[..], &right[..]];
        check(Reduction::Sum, both, offset, u16::wrapping_add)?;
        check(Reduction::Product, both, offset, u16::wrapping_mul)?;
        check(Reduction::Min, both, offset, u16::min)?;
        check(Reduction::Max, both, offset, u16::max)?;

        let signed = both.map(|side| side.iter().map(|bits| *bits as i8).collect::<Vec<_>>());
        let signed = [&signed[0][..], &signed[1]];
        check(Reduction::Sum, signed, offset, i8::wrapping_add)?;
        check(Reduction::Min, signed, offset, i8::min)?;

        let floats = both.map(|side| side.iter().map(|bits| f64::from(*bits) / 7.0 - 999.0).collect::<Vec<_>>());
        let floats = [&floats[0][..], &floats[1]];
        check(Reduction::Sum, floats, offset, |a, b| a + b)?;
        check(Reduction::Product, floats, offset, |a, b| a * b)?;
        check(Reduction::Max, floats, offset, f64::max)?;

        let halves = both.map(|side| side.iter().copied().map(half_of).collect::<Vec<_>>());
        let halves = [&halves[0][..], &halves[1]];
        check(Reduction::Sum, halves, offset, |a, b| f16::from_f32(a.to_f32() + b.to_f32()))?;
        check(Reduction::Product, halves, offset, |a, b| f16::from_f32(a.to_f32() * b.to_f32()))?;
        let rounded = both.map(|side| side.iter().map(|bits| bf16::from_f32(f32::from(*bits))).collect::<Vec<_>>());
        let sum = |a: bf16, b: bf16| bf16::from_f32(a.to_f32() + b.to_f32());
        check(Reduction::Sum, [&rounded[0][..], &rounded[1]], offset, sum)?;

        let complex = both.map(|side| {
            let number = |bits: &u16| Complex64 { re: f32::from(*bits), im: 3.0 - f32::from(bits >> 3) };
            side.iter().map(number).collect::<Vec<_>>()
        });
        let complex = [&complex[0][..], &complex[1]];
        check(Reduction::Sum, complex, offset, |a, b| Complex64 { re: a.re + b.re, im: a.im + b.im })?;
        let product = |a: Complex64, b: Complex64| Complex64 {
            re: a.re * b.re - a.im * b.im,
            im: a.re * b.im + a.im * b.re,
        };
        check(Reduction::Product, complex, offset, product)?;

        let flags = both.map(|side| side.iter().map(|bits| bits % 3 == 0).collect::<Vec<_>>());
        let flags = [&flags[0][..], &flags[1]];
        check(Reduction::Sum, flags, offset, |a, b| a | b)?;
        check(Reduction::Product, flags, offset, |a, b| a & b)?;
    }
}

/// Catches a NaN with bits of an input or of the machine, and a zero whose sign depends on the order: x86 and ARM, and loops that are
/// vectorised or not, differ there.
#[test]
fn every_bit_of_a_reduction_of_floats_is_defined() {
    use Reduction::{Average, Max, Min, Product, Sum};
    let (nan, other_nan, signalling) = (0x7fc0_0000_u32, 0xffc1_2345_u32, 0x7f80_0001_u32);
    let (zero, minus_zero, one, infinity) = (0_u32, 1 << 31, 1_f32.to_bits(), f32::INFINITY.to_bits());
    let cases = [
        (Sum, other_nan, one, nan),
        (Sum, one, signalling, nan),
        (Sum, other_nan, signalling, nan),
        (Sum, infinity, f32::NEG_INFINITY.to_bits(), nan),
        (Sum, zero, minus_zero, zero),
        (Sum, minus_zero, minus_zero, minus_zero),
        (Average, other_nan, one, nan),
        (Product, zero, infinity, nan),
        (Product, one, other_nan, nan),
        (Product, minus_zero, one, minus_zero),
        (Max, zero, minus_zero, zero),
        (Max, other_nan, signalling, nan),
        (Max, other_nan, one, one),
        (Max, minus_zero, other_nan, minus_zero),
        (Min, zero, minus_zero, minus_zero),
        (Min, signalling, other_nan, nan),
        (Min, signalling, infinity, infinity),
        (Min, zero, one, zero),
    ];
    for (reduction, left, right, expected) in cases {
        for [left, right] in [[left, right], [right, left]] {
            // In the middle of a vector, and in its rest.
            for len in [1, 67] {
                let kernel = f32::kernel(reduction).expect("a reduction");
                let bytes = |bits: u32| bits.to_ne_bytes().repeat(len);
                let mut into = bytes(left);
                (kernel.combine)(&mut into, &bytes(right));
                kernel.divide.inspect(|divide| divide(&mut into, 1));
                assert_eq!(into, bytes(expected), "{reduction} of {left:#x} and {right:#x}");

                // The upper half of each of these numbers is a bf16, except that of the signalling NaN.
                let half = |bits: u32| ((bits >> 16) | u32::from(bits == signalling)) as u16;
                let bytes = |bits: u32| half(bits).to_ne_bytes().repeat(len);
                let kernel = bf16::kernel(reduction).expect("a reduction");
                let mut into = bytes(left);
                (kernel.combine)(&mut into, &bytes(right));
                kernel.divide.inspect(|divide| divide(&mut into, 1));
                assert_eq!(into, bytes(expected), "{reduction} of bf16 {left:#x} and {right:#x}");
            }
        }
    }
    let kernel = Complex64::kernel(Product).expect("a reduction");
    let bytes = |re: u32, im: u32| [re.to_ne_bytes(), im.to_ne_bytes()].concat();
    let mut into = bytes(other_nan, one);
    (kernel.combine)(&mut into, &bytes(one, signalling));
    assert_eq!(into, bytes(nan, nan));
}

/// Catches a quotient that is computed in the type of the elements, where the number of ranks does not fit.
#[test]
fn averages_of_narrow_integers_divide_by_many_ranks() {
    let divide = i8::kernel(Reduction::Average).and_then(|kernel| kernel.divide).expect("an average");
    let mut bytes = [120_u8, 200, 0];
    divide(&mut bytes, 3);
    assert_eq!(bytes.map(|byte| byte as i8), [40, -18, 0]);
    divide(&mut bytes, 300);
    assert_eq!(bytes, [0; 3]);
}
