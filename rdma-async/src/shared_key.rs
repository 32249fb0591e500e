use std::fmt;
use std::str::FromStr;

use crate::error::InvalidKey;

/// A secret that the nodes of a group share; see [`NodeOptions::shared_key`](crate::NodeOptions::shared_key)
///
/// ```
/// use rdma_async::{InvalidKey, NodeOptions, SharedKey};
///
/// // Made once, with `openssl rand -hex 32`, and kept where only the nodes read it.
/// let key = "6f1d9b0ab6a5a1f1f2cbb6d4a0e3c2f95b7e0d7a4f7f5a0c4f1e6a1b2c3d4e5f".parse::<SharedKey>()?;
/// let options = NodeOptions::new().shared_key(key);
/// assert!("a password".parse::<SharedKey>().is_err());
/// # Ok::<_, InvalidKey>(())
/// ```
///
/// 32 bytes of a good random number generator. A program that guesses the key is a member of the group.
#[derive(Clone)]
pub struct SharedKey(pub(crate) [u8; Self::LEN]);

impl SharedKey {
    /// Its length in bytes
    pub const LEN: usize = 32;

    /// The key with these bytes
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

impl FromStr for SharedKey {
    type Err = InvalidKey;

    /// From 64 hexadecimal digits, with white space around them or without
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim();
        let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if text.len() != 2 * Self::LEN || !is_hex {
            return Err(InvalidKey);
        }
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..][..2], 16).map_err(|_| InvalidKey);
        let mut key = [0; Self::LEN];
        for (at, place) in key.iter_mut().enumerate() {
            *place = byte(at)?;
        }
        Ok(Self(key))
    }
}

impl fmt::Debug for SharedKey {
    /// Without the bytes
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}
