//! Profiles as files

use std::fmt::Write as _;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ProfileError, ProfileReason};
use super::field::FIELDS;
use super::{Decided, FORMAT, Profile, require};
use crate::model::Model;
use crate::topology::toml_message;

/// A reason, and where in the text
struct Invalid(usize, ProfileReason);

impl Profile {
    /// The profile of the text of a file; `name` is that of the file
    ///
    /// # Errors
    ///
    /// [`ProfileError::At`] with the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        read(name, text).map_err(|Invalid(offset, reason)| {
            let line =
                1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
            ProfileError::At { file: name.to_owned(), line, reason }
        })
    }

    /// The text of a file that [`parse`](Self::parse) reads as this profile
    pub fn to_toml(&self) -> String {
        let mut text = format!("format = {FORMAT}\nbase = {}\n", quoted(self.base));
        let differing: Vec<_> = self.differences().map(|(name, _)| name).collect();
        let mut part = "";
        for field in FIELDS {
            let entry = self.entry(field.name);
            if entry.is_none() && !differing.contains(&field.name) {
                continue;
            }
            let (of, name) = field.name.split_once('.').unwrap_or_default();
            if part != of {
                part = of;
                // Writing to a string does not fail.
                let _ = write!(text, "\n[{part}]\n");
            }
            let (decided, why) =
                entry.map_or((Decided::Given, None), |entry| (entry.decided, entry.why.as_deref()));
            let mut cells = Vec::new();
            if decided != Decided::Undecided || differing.contains(&field.name) {
                cells.push(format!("value = {}", scalar(&(field.value)(&self.model))));
            }
            cells.push(format!("decided = {}", quoted(decided.word())));
            cells.extend(why.map(|why| format!("why = {}", quoted(why))));
            let _ = writeln!(text, "{name} = {{ {} }}", cells.join(", "));
        }
        text
    }
}

/// A value in TOML: numbers and truth values as they are, all else as a string
fn scalar(text: &str) -> String {
    if is_bare(text) { text.to_owned() } else { quoted(text) }
}

fn is_bare(text: &str) -> bool {
    text.parse::<i64>().is_ok() || text.parse::<bool>().is_ok()
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn read(name: &str, text: &str) -> Result<Profile, Invalid> {
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Invalid(offset, ProfileReason::Syntax(toml_message(text, offset, error.message())))
    })?;
    let table = table.get_ref();
    let format = table.get("format").ok_or(Invalid(0, ProfileReason::NoFormat))?;
    let is_number = format.get_ref().is_integer();
    if !is_number || text_of(format.get_ref()).as_deref() != Some(&*FORMAT.to_string()) {
        return Err(Invalid(format.span().start, ProfileReason::Format(shown(format.get_ref()))));
    }
    let base = match table.get("base") {
        None => Model::PROFILES[0].to_owned(),
        Some(base) => text_of(base.get_ref()).unwrap_or_default(),
    };
    let mut profile = Profile::named(&base).ok_or_else(|| {
        let offset = table.get("base").map_or(0, |base| base.span().start);
        Invalid(offset, ProfileReason::Base(base))
    })?;
    name.clone_into(&mut profile.name);
    for (part, fields) in table.iter().filter(|(key, _)| !["format", "base"].contains(&&**key.get_ref())) {
        let name = part.get_ref().to_string();
        if !["caps", "rules", "timing"].contains(&&*name) {
            let remedy = "write format, base, [caps], [rules] or [timing]".to_owned();
            return Err(Invalid(part.span().start, ProfileReason::Unknown { name, remedy }));
        }
        let fields = fields.get_ref().as_table();
        let fields = fields.ok_or_else(|| Invalid(part.span().start, ProfileReason::NotTable(name)))?;
        for (key, value) in fields {
            let name = format!("{}.{}", part.get_ref(), key.get_ref());
            require(&name).map_err(|reason| Invalid(key.span().start, reason))?;
            enter(&mut profile, &name, value)?;
        }
    }
    Ok(profile)
}

/// Takes an entry: a value, or a table with `value`, `decided` and `why`
fn enter(profile: &mut Profile, name: &str, value: &Spanned<DeValue<'_>>) -> Result<(), Invalid> {
    let (mut given, mut decided, mut why) = (None, None, None);
    match value.get_ref().as_table() {
        None => given = Some(value),
        Some(table) => {
            for (key, cell) in table {
                match &**key.get_ref() {
                    "value" => given = Some(cell),
                    "decided" => decided = Some(decision(name, cell)?),
                    "why" => why = Some(text_of(cell.get_ref()).unwrap_or_default()),
                    other => {
                        let name = format!("{name}.{other}");
                        let remedy = "write value, decided or why".to_owned();
                        return Err(Invalid(key.span().start, ProfileReason::Unknown { name, remedy }));
                    }
                }
            }
        }
    }
    let invalid = |at: &Spanned<DeValue<'_>>, reason| Invalid(at.span().start, reason);
    if let Some(cell) = given {
        let text = text_of(cell.get_ref()).unwrap_or_else(|| shown(cell.get_ref()));
        if cell.get_ref().is_str() && is_bare(&text) {
            let expected = format!("{text}, without quotation marks");
            return Err(invalid(
                cell,
                ProfileReason::Value { name: name.to_owned(), value: shown(cell.get_ref()), expected },
            ));
        }
        let decided = decided.unwrap_or(Decided::Given);
        if decided == Decided::Undecided {
            let expected = "no value, because it is undecided".to_owned();
            return Err(invalid(cell, ProfileReason::Value { name: name.to_owned(), value: text, expected }));
        }
        profile.set(name, &text, decided).map_err(|reason| invalid(cell, reason))?;
    } else if decided == Some(Decided::Undecided) {
        profile.leave(name, "").map_err(|reason| invalid(value, reason))?;
    } else {
        return Err(invalid(value, ProfileReason::NoValue(name.to_owned())));
    }
    if let Some((_, entry)) = profile.entries.iter_mut().find(|(known, _)| *known == name) {
        entry.why = why;
    }
    Ok(())
}

fn decision(name: &str, cell: &Spanned<DeValue<'_>>) -> Result<Decided, Invalid> {
    let word = text_of(cell.get_ref()).unwrap_or_default();
    let known = Decided::WORDS.iter().find(|(_, known)| *known == word);
    known.map(|(decided, _)| *decided).ok_or_else(|| {
        let expected = Decided::WORDS.map(|(_, word)| word).join(" or ");
        let name = format!("{name}.decided");
        Invalid(cell.span().start, ProfileReason::Value { name, value: word, expected })
    })
}

/// The text of a scalar
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Integer(value) if value.radix() == 10 => Some(value.as_str().to_owned()),
        DeValue::String(value) => Some(value.to_string()),
        _ => None,
    }
}

/// A value for a message; a string that looks like a number has its quotation marks
fn shown(value: &DeValue<'_>) -> String {
    match text_of(value) {
        Some(text) if value.is_str() && is_bare(&text) => quoted(&text),
        Some(text) => text,
        None => format!("a value of type {}", value.type_str()),
    }
}
