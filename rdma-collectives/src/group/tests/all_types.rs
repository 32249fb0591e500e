//! Every reduction of every type of element against a scalar oracle, over random bits and special values

use half::{bf16, f16};
use proptest::prelude::*;

use crate::{Complex64, Element, Reduction};

/// What a reduction makes of two elements, and what an average makes of their sum and a number of ranks
struct Oracle<T> {
    fold: fn(Reduction, T, T) -> T,
    quotient: fn(T, usize) -> T,
}

/// The same elements after `offset` other bytes
fn shifted<T: Element>(elements: &[T], offset: usize) -> Vec<u8> {
    [&vec![0; offset], T::bytes(elements)].concat()
}

/// Compares the loops with the oracle, for vectors that begin at any address
fn compare<T: Element>(
    pairs: &[(T, T)],
    [offset, ranks]: [usize; 2],
    reductions: &[Reduction],
    oracle: &Oracle<T>,
) -> Result<(), TestCaseError> {
    let (left, right): (Vec<T>, Vec<T>) = pairs.iter().copied().unzip();
    for &reduction in &Reduction::ALL {
        let kernel = T::kernel(reduction);
        prop_assert_eq!(kernel.is_some(), reductions.contains(&reduction), "{} of {}", reduction, T::TYPE);
        let Some(kernel) = kernel else { continue };
        let (mut into, from) = (shifted(&left, offset), shifted(&right, offset));
        (kernel.combine)(&mut into[offset..], &from[offset..]);
        kernel.divide.inspect(|divide| divide(&mut into[offset..], ranks));
        let is_average = reduction == Reduction::Average;
        let fold = if is_average { Reduction::Sum } else { reduction };
        let expected = pairs.iter().map(|&(left, right)| {
            let folded = (oracle.fold)(fold, left, right);
            if is_average { (oracle.quotient)(folded, ranks) } else { folded }
        });
        let expected: Vec<T> = expected.collect();
        let chunks = into[offset..].chunks(T::TYPE.size()).zip(T::bytes(&expected).chunks(T::TYPE.size()));
        for ((found, expected), (left, right)) in chunks.zip(pairs) {
            let inputs = [T::bytes(&[*left]).to_vec(), T::bytes(&[*right]).to_vec()];
            prop_assert_eq!(found, expected, "{} of {}: {:?} by {}", reduction, T::TYPE, inputs, ranks);
        }
    }
    Ok(())
}

/// Pairs of the special values, each with each, and of the random ones
fn pairs<T: Copy>(special: &[u64], random: &[(u64, u64)], from_bits: fn(u64) -> T) -> Vec<(T, T)> {
    let special = special.iter().flat_map(|left| special.iter().map(move |right| (*left, *right)));
    let mixed = random.iter().zip(special.clone()).map(|(random, special)| (random.0, special.1));
    let all = special.chain(mixed).chain(random.iter().copied());
    all.map(|(left, right)| (from_bits(left), from_bits(right))).collect()
}

/// The least and the largest integers of so many bits, with a sign and without, and their neighbours
fn special_integers(bits: u32) -> Vec<u64> {
    let half = 1 << (bits - 1);
    vec![0, 1, 2, 3, half - 1, half, half + 1, u64::MAX, u64::MAX - 1]
}

/// Zeros, infinities, NaNs, subnormals, the least normal and the largest numbers, and numbers around 1, with both signs
///
/// `mantissa` and `all` are the bits of the mantissa and of the number.
fn special_floats(mantissa: u32, all: u32) -> Vec<u64> {
    let infinity = ((1 << (all - 1 - mantissa)) - 1) << mantissa;
    let one = (infinity >> 1) & infinity;
    let quiet = infinity | 1 << (mantissa - 1);
    let numbers = [
        0,
        1,
        2,
        (1 << mantissa) - 1,
        1 << mantissa,
        (1 << mantissa) + 1,
        one - 1,
        one,
        one + 1,
        one + (3 << (mantissa - 1)),
        infinity - 1,
        infinity,
        infinity + 1,
        quiet,
        quiet + 5,
    ];
    numbers.into_iter().flat_map(|bits| [bits, bits | 1 << (all - 1)]).collect()
}

/// The larger or smaller one of two floats; a number beside a NaN wins
fn chosen<T: Copy>(
    reduction: Reduction,
    [left, right]: [T; 2],
    [is_nan, other_is_nan]: [bool; 2],
    order: std::cmp::Ordering,
    nan: T,
) -> T {
    match [is_nan, other_is_nan] {
        [true, true] => nan,
        [true, false] => right,
        [false, true] => left,
        [false, false] if (reduction == Reduction::Max) == order.is_gt() => left,
        [false, false] => right,
    }
}

/// In whole numbers that are large enough, cut to the type
macro_rules! integers {
    ($random:expr, $both:expr; $($element:ident)*) => {$(
        let oracle = Oracle::<$element> {
            fold: |reduction, left, right| {
                let [left, right] = [left, right].map(i128::from);
                (match reduction {
                    Reduction::Max if left > right => left,
                    Reduction::Min if left < right => left,
                    Reduction::Max | Reduction::Min => right,
                    // The lower 64 bits are those of the product.
                    Reduction::Product => left.wrapping_mul(right),
                    _ => left + right,
                }) as $element
            },
            quotient: |sum, ranks| (i128::from(sum) / ranks as i128) as $element,
        };
        let special = special_integers($element::BITS);
        compare(&pairs(&special, $random, |bits| bits as $element), $both, &Reduction::ALL, &oracle)?;
    )*};
}

/// In `f64`, rounded to `f32`, which yields the nearest `f32`, and then to the type
macro_rules! floats {
    ($random:expr, $both:expr; $($element:ident: $bits:ident, $mantissa:expr, $all:expr, $round:expr;)*) => {$(
        let oracle = Oracle::<$element> {
            fold: |reduction, left, right| {
                let round: fn(f64) -> $element = $round;
                let wide = [left, right].map(f64::from);
                match reduction {
                    Reduction::Product => round(wide[0] * wide[1]),
                    Reduction::Sum => round(wide[0] + wide[1]),
                    _ => {
                        let are_nan = wide.map(f64::is_nan);
                        chosen(reduction, [left, right], are_nan, wide[0].total_cmp(&wide[1]), $element::NAN)
                    }
                }
            },
            quotient: |sum, ranks| {
                let round: fn(f64) -> $element = $round;
                round(f64::from(sum) / ranks as f64)
            },
        };
        let both_bits = pairs(&special_floats($mantissa, $all), $random, |bits| $element::from_bits(bits as $bits));
        compare(&both_bits, $both, &Reduction::ALL, &oracle)?;
    )*};
}

fn f32_of(wide: f64) -> f32 {
    if wide.is_nan() { f32::NAN } else { wide as f32 }
}

fn f64_of(wide: f64) -> f64 {
    if wide.is_nan() { f64::NAN } else { wide }
}

fn f16_of(wide: f64) -> f16 {
    if wide.is_nan() { f16::NAN } else { f16::from_f32(wide as f32) }
}

fn bf16_of(wide: f64) -> bf16 {
    if wide.is_nan() { bf16::NAN } else { bf16::from_f32(wide as f32) }
}

fn complex_of(bits: u64) -> Complex64 {
    Complex64 { re: f32::from_bits(bits as u32), im: f32::from_bits((bits >> 32) as u32) }
}

/// Each operation on parts is rounded to `f32`
fn folded_complex(reduction: Reduction, left: Complex64, right: Complex64) -> Complex64 {
    let times = |a: f32, b: f32| f64::from(f32_of(f64::from(a) * f64::from(b)));
    let plus = |a: f64, b: f64| f32_of(a + b);
    match reduction {
        Reduction::Product => Complex64 {
            re: plus(times(left.re, right.re), -times(left.im, right.im)),
            im: plus(times(left.re, right.im), times(left.im, right.re)),
        },
        _ => {
            Complex64 { re: plus(left.re.into(), right.re.into()), im: plus(left.im.into(), right.im.into()) }
        }
    }
}

fn complex_quotient(sum: Complex64, ranks: usize) -> Complex64 {
    let part = |part: f32| f32_of(f64::from(part) / ranks as f64);
    Complex64 { re: part(sum.re), im: part(sum.im) }
}

proptest! {
    /// Catches a type whose sums do not wrap, whose signs are ignored or whose quotients are rounded away from zero, a float whose subnormals
    /// are taken for zero, whose infinities or NaNs get lost or whose zeros have the wrong sign, and a reduction that a type should not have.
    #[test]
    fn every_reduction_of_every_type_agrees_with_a_scalar_oracle(
        random in prop::collection::vec(any::<(u64, u64)>(), 0..150),
        offset in 0..9_usize,
        ranks in 1..65_usize,
    ) {
        use Reduction::{Average, Max, Min, Product, Sum};
        let both = [offset, ranks];
        integers!(&random, both; i8 i16 i32 i64 u8 u16 u32 u64);
        floats! {
            &random, both;
            f16: u16, 10, 16, f16_of;
            bf16: u16, 7, 16, bf16_of;
            f32: u32, 23, 32, f32_of;
            f64: u64, 52, 64, f64_of;
        }

        let parts = special_floats(23, 32);
        let special: Vec<_> = parts.iter().zip(parts.iter().rev()).map(|(re, im)| im << 32 | re).collect();
        let complex = pairs(&special, &random, complex_of);
        let oracle = Oracle { fold: folded_complex, quotient: complex_quotient };
        compare(&complex, both, &[Average, Product, Sum], &oracle)?;

        let flags = pairs(&[0, 1], &random, |bits| bits & 1 == 1);
        let fold = |reduction, left, right| {
            if matches!(reduction, Max | Sum) { left || right } else { left && right }
        };
        compare(&flags, both, &[Max, Min, Product, Sum], &Oracle { fold, quotient: |sum, _| sum })?;
    }
}
