//! What was used of late

use std::collections::BTreeMap;

/// The values that were used last, by key
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    /// With the time of their last use
    values: BTreeMap<K, (u64, V)>,
    uses: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), uses: 0 }
    }
}

impl<K, V> Recent<K, V> {
    /// How many values are kept: those of a program with layers of many shapes
    pub(crate) const MAX: usize = 64;
}

impl<K: Clone + Ord, V> Recent<K, V> {
    /// A value that was kept, which is used now
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.uses += 1;
        let (used, value) = self.values.get_mut(key)?;
        *used = self.uses;
        Some(value)
    }

    /// Keeps a value, and gives up the one that was not used for the longest time if there are too many
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.values.len() == Self::MAX {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.values.remove(&key));
        }
        self.values.insert(key, (self.uses, value));
    }
}
