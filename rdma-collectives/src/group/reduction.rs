use std::fmt;

/// How elements of several ranks become one
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reduction {
    /// The [`Sum`](Self::Sum), which wraps around in integers, divided by the number of ranks; integers round towards zero
    Average,
    /// The largest; a number beside a NaN wins, and 0 is more than -0
    Max,
    /// The smallest; a number beside a NaN wins, and -0 is less than 0
    Min,
    /// The product, which wraps around in integers; of booleans, whether all are true
    Product,
    /// The sum, which wraps around in integers; of booleans, whether any is true
    Sum,
}

impl Reduction {
    pub(super) const ALL: [Self; 5] = [Self::Average, Self::Max, Self::Min, Self::Product, Self::Sum];
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Average => "average",
            Self::Max => "max",
            Self::Min => "min",
            Self::Product => "product",
            Self::Sum => "sum",
        })
    }
}
