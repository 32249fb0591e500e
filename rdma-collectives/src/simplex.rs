/// A column of the constraint matrix: its entries that are not zero, and what a unit of its variable is worth
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) entries: Vec<(usize, f64)>,
    pub(crate) worth: f64,
}

/// A linear program "at most", whose columns come one by one: the revised simplex method with an explicit inverse
///
/// In floats: its answers are approximate, and callers have to check them exactly.
#[derive(Debug)]
pub(crate) struct Simplex {
    rows: usize,
    /// Of the basis, row after row
    inverse: Vec<f64>,
    /// The column of each row, or `None` for its slack
    basis: Vec<Option<usize>>,
    /// Of the basis, for the perturbed limits
    values: Vec<f64>,
    columns: Vec<Column>,
}

/// Smaller pivots are taken for rounding errors.
const SMALLEST_PIVOT: f64 = 1e-9;
/// By how much limits are perturbed, so that each step makes progress.
const PERTURBATION: f64 = 1e-6;

impl Simplex {
    /// Rows with these limits, at least zero, and no columns
    pub(crate) fn new(limits: &[f64]) -> Self {
        let rows = limits.len();
        let mut inverse = vec![0.0; rows * rows];
        (0..rows).for_each(|row| inverse[row * rows + row] = 1.0);
        let perturbed = (0..rows).map(|row| {
            let spread = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            limits[row] + PERTURBATION * (1.0 + spread as f64 / f64::from(1 << 24))
        });
        let values = perturbed.collect();
        Self { rows, inverse, basis: vec![None; rows], values, columns: Vec::new() }
    }

    /// The price of each row
    pub(crate) fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.rows];
        for (row, column) in self.basis.iter().enumerate() {
            let worth = column.map_or(0.0, |column| self.columns[column].worth);
            if worth != 0.0 {
                let weights = &self.inverse[row * self.rows..][..self.rows];
                prices.iter_mut().zip(weights).for_each(|(price, weight)| *price += worth * weight);
            }
        }
        prices
    }

    /// Adds a column and brings it into the basis; returns its index, or `None` if its variable has no limit
    pub(crate) fn enter(&mut self, column: Column) -> Option<usize> {
        let mut direction = vec![0.0; self.rows];
        for (row, value) in direction.iter_mut().enumerate() {
            let weights = &self.inverse[row * self.rows..][..self.rows];
            *value = column.entries.iter().map(|&(entry, factor)| weights[entry] * factor).sum();
        }
        let steps = (0..self.rows).filter(|&row| direction[row] > SMALLEST_PIVOT);
        let steps = steps.map(|row| (self.values[row].max(0.0) / direction[row], row));
        let (step, leaving) = steps.min_by(|(left, _), (right, _)| left.total_cmp(right))?;
        let (rows, pivot) = (self.rows, direction[leaving]);
        let mut pivot_row = self.inverse[leaving * rows..][..rows].to_vec();
        pivot_row.iter_mut().for_each(|weight| *weight /= pivot);
        for (row, &factor) in direction.iter().enumerate() {
            if row == leaving {
                self.values[row] = step;
                self.inverse[row * rows..][..rows].copy_from_slice(&pivot_row);
            } else if factor != 0.0 {
                self.values[row] -= step * factor;
                let weights = &mut self.inverse[row * rows..][..rows];
                weights.iter_mut().zip(&pivot_row).for_each(|(weight, pivot)| *weight -= factor * pivot);
            }
        }
        self.columns.push(column);
        self.basis[leaving] = Some(self.columns.len() - 1);
        Some(self.columns.len() - 1)
    }

    /// The values of the columns in the basis for these limits, which are those that were not perturbed
    pub(crate) fn values(&self, limits: &[f64]) -> Vec<(usize, f64)> {
        let value = |row: usize| -> f64 {
            let weights = &self.inverse[row * self.rows..][..self.rows];
            weights.iter().zip(limits).map(|(weight, limit)| weight * limit).sum()
        };
        let basic = self.basis.iter().enumerate();
        basic.filter_map(|(row, column)| column.map(|column| (column, value(row)))).collect()
    }
}
