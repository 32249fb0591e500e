//! What was used of late

use std::collections::BTreeMap;

/// The values that were used last, by key: no more than `MAX`, by default those of a program with layers of many shapes
#[derive(Debug)]
pub(crate) struct Recent<K, V, const MAX: usize = 64> {
    /// With the time of their last use
    values: BTreeMap<K, (u64, V)>,
    uses: u64,
}

impl<K, V, const MAX: usize> Default for Recent<K, V, MAX> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), uses: 0 }
    }
}

impl<K: Clone + Ord, V, const MAX: usize> Recent<K, V, MAX> {
    /// How many values are kept
    #[cfg(test)]
    pub(crate) const MAX: usize = MAX;

    /// A value that was kept, which is used now
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.uses += 1;
        let (used, value) = self.values.get_mut(key)?;
        *used = self.uses;
        Some(value)
    }

    /// Keeps a value, and gives up the one that was not used for the longest time if there are too many
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.values.len() == MAX && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.values.remove(&key));
        }
        self.values.insert(key, (self.uses, value));
    }
}
