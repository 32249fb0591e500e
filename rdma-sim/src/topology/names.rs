//! Mac models and shapes by name

use std::str::FromStr;

use super::error::TopologyError;
use super::mac::{GENERIC, MacModel};
use super::shape::Shape;

impl FromStr for MacModel {
    type Err = TopologyError;

    /// Reads the name of a model
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownModel`].
    fn from_str(name: &str) -> Result<Self, TopologyError> {
        let sold = Self::ALL.into_iter().find(|model| model.name() == name);
        let generic = || name.strip_prefix(GENERIC)?.parse().ok().map(|ports| Self::Generic { ports });
        sold.or_else(generic).ok_or_else(|| TopologyError::UnknownModel { model: name.to_owned() })
    }
}

impl FromStr for Shape {
    type Err = TopologyError;

    /// Reads the name of a shape
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownShape`].
    fn from_str(name: &str) -> Result<Self, TopologyError> {
        let found = Self::ALL.into_iter().find(|shape| shape.name() == name);
        found.ok_or_else(|| TopologyError::UnknownShape { shape: name.to_owned() })
    }
}
