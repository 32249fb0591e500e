use crate::model::Model;
use crate::profile::FIELDS;

/// Every field of a model by name, with its value as text
pub(super) fn switches(model: &Model) -> Vec<(&'static str, String)> {
    FIELDS.iter().map(|field| (field.path, (field.debug)(model))).collect()
}
