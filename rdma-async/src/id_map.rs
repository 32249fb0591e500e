//! Maps from the numbers of sessions and paths

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from numbers of sessions or of paths, of 32 bits
///
/// Sessions that are there at once differ in the low bits of their numbers, which are their places in a table of limited size, and
/// this hash keeps them apart: a peer that chooses the places cannot make many of them collide.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by an odd number: different low bits stay different, and reach the high bits, of which the map makes tags
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(8) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
