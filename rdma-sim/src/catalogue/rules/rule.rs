use std::fmt;

use crate::model::Model;

/// Behaviour of the device that a program can observe through the verbs
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// Its name
    pub name: &'static str,
    /// What happens
    pub description: &'static str,
    /// The publications that the rule is taken from
    pub source: &'static str,
    /// How well it is known
    pub status: RuleStatus,
    /// What decides it
    pub switch: Switch,
    /// The test that shows it
    pub test: &'static str,
    /// Why a report does not count how often it was exercised, if it does not
    pub uncounted: Option<&'static str>,
    /// Whether some program can make a device of this model follow the rule
    pub(crate) applies: fn(&Model) -> bool,
}

impl Rule {
    /// Whether a simulation of `model` can exercise the rule
    ///
    /// ```
    /// use rdma_sim::{Model, catalogue};
    ///
    /// let rule = catalogue::rules().find(|rule| rule.name == "roce-drops").unwrap();
    /// assert!(rule.applies_to(&Model::roce()) && !rule.applies_to(&Model::tb5()));
    /// ```
    pub fn applies_to(&self, model: &Model) -> bool {
        (self.applies)(model)
    }
}

/// What decides a rule
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Switch {
    /// A fault of this name brings it about
    Fault(&'static str),
    /// A field of the [`Model`]
    Field {
        /// The path of the field, such as `Rules::multi_sge`
        name: &'static str,
        /// Its value in a model, as text
        value: fn(&Model) -> String,
    },
    /// The simulator always follows the rule
    None,
}

impl Switch {
    /// Its name, as `MODEL.md` writes it; `–` if there is none
    pub fn name(&self) -> String {
        match self {
            Self::Fault(name) => format!("fault {name}"),
            Self::Field { name, .. } => (*name).to_owned(),
            Self::None => "–".to_owned(),
        }
    }

    /// Its value in `model`; `–` if it is not a field
    pub fn value(&self, model: &Model) -> String {
        match self {
            Self::Field { value, .. } => value(model),
            Self::Fault(_) | Self::None => "–".to_owned(),
        }
    }
}

/// How well a rule is known
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RuleStatus {
    /// No source states it: it was chosen
    Assumed,
    /// Sources disagree
    Disputed,
    /// Apple, or the vendor, states it
    Documented,
    /// A source measured it, and says how
    Measured,
    /// A report from the field, or programs that rely on it
    Reported,
}

impl fmt::Display for RuleStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

/// Makes `RULES` of a file
macro_rules! rules {
    ($(
        $(#[doc = $description:literal])+
        $name:literal, $status:ident by $source:literal
        $(, set by $group:ident::$field:ident)? $(, caused by $fault:literal)?
        $(, uncounted as $uncounted:literal)? $(, applies if $applies:expr)?, shown by $test:ident;
    )+) => {
        pub(super) const RULES: &[$crate::catalogue::rules::rule::Rule] = &[$($crate::catalogue::rules::rule::Rule {
            name: $name,
            description: concat!($($description),+).trim_ascii_start(),
            source: $source,
            status: $crate::catalogue::rules::rule::RuleStatus::$status,
            switch: [
                $(super::rule::field!($group $field),)?
                $($crate::catalogue::rules::rule::Switch::Fault($fault),)?
                $crate::catalogue::rules::rule::Switch::None,
            ][0],
            test: stringify!($test),
            uncounted: [$(Some($uncounted),)? None][0],
            applies: [$($applies as fn(&$crate::Model) -> bool,)? |_: &$crate::Model| true][0],
        }),+];
    };
}

/// The switch that is a field of a part of the model
macro_rules! field {
    (Caps $field:ident) => { super::rule::field!(@ "Caps", caps, $field) };
    (Rules $field:ident) => { super::rule::field!(@ "Rules", rules, $field) };
    (Timing $field:ident) => { super::rule::field!(@ "Timing", timing, $field) };
    (@ $group:literal, $part:ident, $field:ident) => {
        $crate::catalogue::rules::rule::Switch::Field {
            name: concat!($group, "::", stringify!($field)),
            value: |model| format!("{:?}", model.$part.$field),
        }
    };
}

pub(super) use {field, rules};
