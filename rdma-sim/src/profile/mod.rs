//! Profiles: models with names, built in or in files
//!
//! A file names the profile that it begins with, the fields that differ, and how each was decided:
//!
//! ```
//! use rdma_sim::profile::{Decided, Profile};
//!
//! let profile = Profile::parse("found.toml", r#"
//!     format = 1
//!     base = "tb5"
//!
//!     [rules]
//!     queue_grant = { value = "at-least 511", decided = "measured" }
//!     crashes = { decided = "undecided", why = "to decide it ends the process" }
//!
//!     [timing]
//!     jitter_ns = 90
//! "#)?;
//! assert_eq!(profile.model.timing.jitter_ns, 90);
//! assert_eq!(profile.decided("rules.crashes"), Some(Decided::Undecided));
//! # Ok::<(), rdma_sim::profile::ProfileError>(())
//! ```

mod error;
mod field;
mod text;
mod value;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use self::error::{FORMAT, ProfileError, ProfileReason};
pub(crate) use self::field::FIELDS;
use self::field::{Field, field};
use crate::model::Model;

/// A model with a name, and how each of its fields was decided
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Its name: of a profile of the simulator, or of a file
    pub name: String,
    /// The model
    pub model: Model,
    base: &'static str,
    entries: Vec<(&'static str, Entry)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    decided: Decided,
    why: Option<String>,
}

/// How a field of a profile was decided
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Decided {
    /// The file states it, without a measurement
    Given,
    /// It was measured
    Measured,
    /// It is a part of a sum that was measured as a whole
    Sum,
    /// It was not decided: the value is that of the base
    Undecided,
}

impl Decided {
    const WORDS: [(Self, &'static str); 4] = [
        (Self::Given, "given"),
        (Self::Measured, "measured"),
        (Self::Sum, "sum"),
        (Self::Undecided, "undecided"),
    ];

    /// The word that files write for it: `measured`
    pub fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(decided, _)| *decided == self);
        known.map_or("given", |(_, word)| word)
    }
}

impl Profile {
    /// The length of the longest file that is read, in bytes: a longer one, such as /dev/zero, would take all memory
    pub const MAX_LEN: u64 = 1 << 20;

    /// A profile of the simulator: one of [`Model::PROFILES`]
    pub fn named(name: &str) -> Option<Self> {
        let base = Model::PROFILES.into_iter().find(|known| *known == name)?;
        Some(Self { name: base.to_owned(), model: Model::profile(base)?, base, entries: Vec::new() })
    }

    /// A profile of the simulator, or else that of a file
    ///
    /// # Errors
    ///
    /// [`ProfileError::Unknown`] if there is neither, and the text does not look like a path; those of [`load`](Self::load).
    pub fn find(text: &str) -> Result<Self, ProfileError> {
        match Self::named(text) {
            Some(profile) => Ok(profile),
            None if Path::new(text).exists() || is_path(text) => Self::load(Path::new(text)),
            None => Err(ProfileError::Unknown(text.to_owned())),
        }
    }

    /// The profile of a file
    ///
    /// # Errors
    ///
    /// [`ProfileError::Read`] if the file cannot be read; [`ProfileError::At`] with the line if it describes no profile.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let refuse = |why| ProfileError::Read { path: path.to_owned(), why };
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(Self::MAX_LEN + 1).read_to_end(&mut text));
        if read.map_err(|error| refuse(error.to_string()))? as u64 > Self::MAX_LEN {
            return Err(refuse(format!("it is longer than {} bytes", Self::MAX_LEN)));
        }
        let text = String::from_utf8(text).map_err(|_| refuse("it is not UTF-8 text".to_owned()))?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// The profile that it began with
    pub fn base(&self) -> &'static str {
        self.base
    }

    /// The names of all fields, as files write them: `rules.alignment`
    pub fn fields() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|field| field.name)
    }

    /// The value of the field called `name`, as files write it; `None` if there is no such field
    pub fn value(&self, name: &str) -> Option<String> {
        field(name).map(|field| (field.value)(&self.model))
    }

    /// How the field called `name` was decided; `None` if it is that of the base
    pub fn decided(&self, name: &str) -> Option<Decided> {
        self.entry(name).map(|entry| entry.decided)
    }

    /// The reason or remark of the field called `name`
    pub fn why(&self, name: &str) -> Option<&str> {
        self.entry(name)?.why.as_deref()
    }

    /// Sets the field called `name` to a value as files write it
    ///
    /// # Errors
    ///
    /// [`ProfileReason::Unknown`] if there is no such field; [`ProfileReason::Value`] if it cannot have the value.
    pub fn set(&mut self, name: &str, value: &str, decided: Decided) -> Result<(), ProfileReason> {
        let field = require(name)?;
        (field.set)(&mut self.model, value).map_err(|expected| ProfileReason::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected,
        })?;
        self.enter(field, decided, None);
        Ok(())
    }

    /// Leaves the field called `name` at the value of the base, and says why it was not decided
    ///
    /// # Errors
    ///
    /// [`ProfileReason::Unknown`] if there is no such field.
    pub fn leave(&mut self, name: &str, why: &str) -> Result<(), ProfileReason> {
        let field = require(name)?;
        let base = Model::profile(self.base).unwrap_or_default();
        let of_base = (field.set)(&mut self.model, &(field.value)(&base));
        of_base.expect("a field can have the value of a base");
        self.enter(field, Decided::Undecided, Some(why.to_owned()));
        Ok(())
    }

    /// Adds a remark to the field called `name`, if it was entered
    pub fn remark(&mut self, name: &str, why: &str) {
        if let Some((_, entry)) = self.entries.iter_mut().find(|(known, _)| *known == name) {
            entry.why = Some(why.to_owned());
        }
    }

    /// The fields that differ from the base, with their values as files write them
    pub fn differences(&self) -> impl Iterator<Item = (&'static str, String)> {
        let base = Model::profile(self.base).unwrap_or_default();
        let all = FIELDS.iter().map(move |field| (field, (field.value)(&base), (field.value)(&self.model)));
        all.filter(|(_, base, value)| base != value).map(|(field, _, value)| (field.name, value))
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|(known, _)| *known == name).map(|(_, entry)| entry)
    }

    fn enter(&mut self, field: &Field, decided: Decided, why: Option<String>) {
        self.entries.retain(|(known, _)| *known != field.name);
        self.entries.push((field.name, Entry { decided, why }));
    }
}

impl Model {
    /// The model of a profile file
    ///
    /// # Errors
    ///
    /// Those of [`Profile::load`]: [`ProfileError::Read`] and [`ProfileError::At`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        Profile::load(path.as_ref()).map(|profile| profile.model)
    }
}

/// Whether a text names a file that may be missing, rather than a profile: it has a slash, or the extension of a file
fn is_path(text: &str) -> bool {
    text.contains('/') || text.ends_with(".toml")
}

/// The field called `name`
fn require(name: &str) -> Result<&'static Field, ProfileReason> {
    field(name).ok_or_else(|| {
        let part = name.split_once('.').map_or(name, |(part, _)| part);
        let known: Vec<_> = Profile::fields().filter(|known| known.starts_with(part)).collect();
        let remedy = match &known[..] {
            [] => "write [caps], [rules] or [timing]".to_owned(),
            known => format!("there are: {}", known.join(", ")),
        };
        ProfileReason::Unknown { name: name.to_owned(), remedy }
    })
}

#[cfg(test)]
mod tests;
