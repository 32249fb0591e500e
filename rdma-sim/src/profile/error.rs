use std::path::PathBuf;

use crate::model::Model;
use crate::near::suggestion;

/// The version of the format of files
pub const FORMAT: i64 = 1;

/// Why there is no such profile
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The text names no profile of the simulator, and no file
    #[error("there is no profile {0:?}, and no such file; there are: {known}{near}", known = Model::PROFILES.join(", "), near = suggestion(.0, Model::PROFILES.into_iter()))]
    Unknown(String),
    /// The file cannot be read
    #[error("{}: cannot be read: {why}", path.display())]
    Read {
        /// The file
        path: PathBuf,
        /// What the system says
        why: String,
    },
    /// The text describes no profile
    #[error("{file}:{line}: {reason}")]
    At {
        /// The name of the profile, which is that of its file
        file: String,
        /// The line, from 1
        line: usize,
        /// What is wrong there
        reason: ProfileReason,
    },
}

/// What is wrong in a line of a profile file
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileReason {
    /// It is not TOML
    #[error("{0}")]
    Syntax(String),
    /// The file does not begin with a format
    #[error("the file has no format; write format = {FORMAT} into its first line")]
    NoFormat,
    /// The format is that of another version
    #[error(
        "format {0} is not known; this version reads format {FORMAT}: use the tb5 that wrote the file, or calibrate again"
    )]
    Format(String),
    /// The base is not a profile of the simulator
    #[error("there is no profile {0:?} to begin with; there are: {known}", known = Model::PROFILES.join(", "))]
    Base(String),
    /// A part of a model that is written as a field
    #[error("{0} has no value of its own; write [{0}] in a line, and its fields below")]
    NotTable(String),
    /// Neither a field nor a part of a model
    #[error("{name} is not known; {remedy}")]
    Unknown {
        /// Its name
        name: String,
        /// What to write instead
        remedy: String,
    },
    /// A value that the field cannot have
    #[error("{name} cannot be {value}; write {expected}")]
    Value {
        /// The field
        name: String,
        /// The value
        value: String,
        /// What may be written
        expected: String,
    },
    /// An entry says neither its value nor that it is undecided
    #[error("{0} has no value; write one, or decided = \"undecided\"")]
    NoValue(String),
}
