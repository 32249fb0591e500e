use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A fraction that is not negative, exact and in lowest terms
///
/// Times per byte, shares of a payload and bounds are of this type, so that two of them are equal or not, without a tolerance.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ratio {
    numerator: u128,
    denominator: u128,
}

impl Ratio {
    /// One
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };
    /// Zero
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };

    /// `numerator / denominator`, reduced; `None` if the denominator is zero
    #[must_use]
    pub fn new(numerator: u128, denominator: u128) -> Option<Self> {
        let divisor = gcd(numerator, denominator);
        (denominator != 0)
            .then(|| Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// Numerator in lowest terms
    #[must_use]
    pub fn numerator(self) -> u128 {
        self.numerator
    }

    /// Denominator in lowest terms, at least 1
    #[must_use]
    pub fn denominator(self) -> u128 {
        self.denominator
    }

    /// The sum, or `None` if it does not fit
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let divisor = gcd(self.denominator, other.denominator);
        let (left, right) = (other.denominator / divisor, self.denominator / divisor);
        let sum = self.numerator.checked_mul(left)?.checked_add(other.numerator.checked_mul(right)?)?;
        Self::new(sum, self.denominator.checked_mul(left)?)
    }

    /// The product, or `None` if it does not fit
    #[must_use]
    pub fn checked_mul(self, other: Self) -> Option<Self> {
        // Reduced crosswise first, so that only results that do not fit are refused.
        let (left, right) = (gcd(self.numerator, other.denominator), gcd(other.numerator, self.denominator));
        let numerator = (self.numerator / left).checked_mul(other.numerator / right)?;
        Self::new(numerator, (self.denominator / right).checked_mul(other.denominator / left)?)
    }

    /// One divided by this; `None` for zero
    #[must_use]
    pub fn inverse(self) -> Option<Self> {
        Self::new(self.denominator, self.numerator)
    }

    /// The nearest number that a float holds
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl Ord for Ratio {
    /// Compares by continued fractions: cross products may not fit.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (*self, *other);
        let mut reversed = false;
        loop {
            let whole = (left.numerator / left.denominator).cmp(&(right.numerator / right.denominator));
            let rest = (left.numerator % left.denominator, right.numerator % right.denominator);
            let order = match (whole, rest) {
                (Ordering::Equal, (0, 0)) => Ordering::Equal,
                (Ordering::Equal, (0, _)) => Ordering::Less,
                (Ordering::Equal, (_, 0)) => Ordering::Greater,
                (Ordering::Equal, (a, b)) => {
                    left = Self { numerator: left.denominator, denominator: a };
                    right = Self { numerator: right.denominator, denominator: b };
                    reversed = !reversed;
                    continue;
                }
                (order, _) => order,
            };
            return if reversed { order.reverse() } else { order };
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

/// A text that is not a fraction such as `3/8`
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a fraction: write two whole numbers such as 3/8, the second one not 0")]
pub struct RatioError;

impl FromStr for Ratio {
    type Err = RatioError;

    fn from_str(text: &str) -> Result<Self, RatioError> {
        let (numerator, denominator) = text.split_once('/').ok_or(RatioError)?;
        let number = |text: &str| match text.as_bytes() {
            // `u128::from_str` also takes a sign.
            [b'0'..=b'9', ..] => text.parse().ok(),
            _ => None,
        };
        let numerator = number(numerator).ok_or(RatioError)?;
        Self::new(numerator, number(denominator).ok_or(RatioError)?).ok_or(RatioError)
    }
}

/// Greatest common divisor; that of zero and a number is the number
pub(crate) fn gcd(mut left: u128, mut right: u128) -> u128 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio(numerator: u128, denominator: u128) -> Ratio {
        Ratio::new(numerator, denominator).unwrap()
    }

    #[test]
    fn fractions_are_reduced_and_print_as_they_parse() {
        assert_eq!(ratio(6, 8), ratio(3, 4));
        assert_eq!(ratio(0, 8), Ratio::ZERO);
        assert_eq!("6/8".parse(), Ok(ratio(3, 4)));
        assert_eq!(ratio(6, 8).to_string(), "3/4");
        for wrong in ["", "1", "/", "1/", "/2", "1/0", "+1/2", "1/-2", "1/2/3", "a/b", " 1/2"] {
            assert_eq!(wrong.parse::<Ratio>(), Err(RatioError), "{wrong:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_not_wrapped() {
        let large = ratio(u128::MAX, 1);
        assert_eq!(large.checked_add(Ratio::ONE), None);
        assert_eq!(large.checked_mul(ratio(2, 1)), None);
        assert_eq!(large.checked_mul(ratio(2, u128::MAX)), Some(ratio(2, 1)));
        assert!(large > ratio(u128::MAX - 1, 1));
        assert!(ratio(u128::MAX - 1, u128::MAX) < Ratio::ONE);
        assert!(ratio(u128::MAX - 2, u128::MAX - 1) < ratio(u128::MAX - 1, u128::MAX));
    }

    proptest! {
        /// Catches a comparison that forgets to reverse at each step of the continued fraction.
        #[test]
        fn comparison_is_that_of_cross_products(a in 0u64.., b in 1u64.., c in 0u64.., d in 1u64..) {
            let [a, b, c, d] = [a, b, c, d].map(u128::from);
            prop_assert_eq!(ratio(a, b).cmp(&ratio(c, d)), (a * d).cmp(&(c * b)));
            prop_assert_eq!(ratio(a, b).checked_mul(ratio(c, d)), Ratio::new(a * c, b * d));
        }

        #[test]
        fn sums_are_exact(a in 0u32.., b in 1u32.., c in 0u32.., d in 1u32..) {
            let [a, b, c, d] = [a, b, c, d].map(u128::from);
            prop_assert_eq!(ratio(a, b).checked_add(ratio(c, d)), Ratio::new(a * d + c * b, b * d));
        }
    }
}
