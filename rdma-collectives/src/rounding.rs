use crate::Ratio;
use crate::ratio::gcd;

/// The largest denominator of shares and prices that are taken to be meant exactly
const MAX_DENOMINATOR: f64 = 100_000.0;
/// How near a fraction has to be: fractions with such denominators are further apart
const NEAR: f64 = 1e-11;
/// The denominator of shares and prices otherwise
pub(crate) const FINE: u64 = 1 << 36;

/// The parts of a whole as fractions with small denominators, if they add up to exactly 1
pub(crate) fn exact_shares(values: &[f64]) -> Option<Vec<Ratio>> {
    let sum: f64 = values.iter().sum();
    let parts: Vec<f64> = values.iter().map(|value| value / sum).collect();
    let (whole, denominator) = common_denominator(&parts)?;
    let exact = whole.iter().sum::<u64>() == denominator;
    exact.then(|| whole.iter().filter_map(|&part| Ratio::new(part.into(), denominator.into())).collect())
}

/// The parts of a whole as fractions with a large denominator, which add up to exactly 1
pub(crate) fn fine_shares(values: &[f64]) -> Option<Vec<Ratio>> {
    let sum: f64 = values.iter().sum();
    let mut whole: Vec<u64> = values.iter().map(|value| (value / sum * FINE as f64) as u64).collect();
    let missing = FINE.checked_sub(whole.iter().sum())?;
    *whole.iter_mut().max()? += missing;
    Some(whole.iter().filter_map(|&part| Ratio::new(part.into(), FINE.into())).collect())
}

/// Numbers from 0 to 1 as whole multiples of one fraction `1 / d`, with `d`, if they are near to such
pub(crate) fn common_denominator(values: &[f64]) -> Option<(Vec<u64>, u64)> {
    let mut common = 1_u64;
    for &value in values {
        let denominator = denominator(value)?;
        common = common.checked_mul(denominator / gcd(common.into(), denominator.into()) as u64)?;
        if common > FINE {
            return None;
        }
    }
    Some((values.iter().map(|value| (value * common as f64).round() as u64).collect(), common))
}

/// The denominator of the simplest continued fraction that is near to a number from 0 to 1
fn denominator(value: f64) -> Option<u64> {
    let (mut rest, mut before, mut denominator) = (value, 0.0, 1.0);
    while (value * denominator - (value * denominator).round()).abs() > NEAR * denominator {
        rest = (rest - rest.floor()).recip();
        (before, denominator) = (denominator, rest.floor() * denominator + before);
        if denominator > MAX_DENOMINATOR {
            return None;
        }
    }
    Some(denominator as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_that_do_not_add_up_are_only_rounded_finely() {
        let values = [0.3, 0.3, 0.400_001];
        assert_eq!(exact_shares(&values), None);
        let sum =
            fine_shares(&values).unwrap().into_iter().reduce(|sum, share| sum.checked_add(share).unwrap());
        assert_eq!(sum, Some(Ratio::ONE));
    }

    proptest! {
        /// Catches a continued fraction that stops early or misses the fraction.
        #[test]
        fn fractions_survive_floats(parts in prop::collection::vec(1_u64..300, 1..20), scale in 0.01..100.0) {
            let sum: u64 = parts.iter().sum();
            let values: Vec<f64> = parts.iter().map(|&part| part as f64 * scale).collect();
            let shares = parts.iter().map(|&part| Ratio::new(part.into(), sum.into()).unwrap()).collect();
            prop_assert_eq!(exact_shares(&values), Some(shares));
        }
    }
}
