//! What the program states of itself, as the script of a page reads it

use std::collections::HashMap;

use serde::Serialize;

use super::columns::differences;
use crate::trace::Mark;

/// States and statements by column, in the order of time
#[derive(Debug, Default, Serialize)]
pub(super) struct Marks {
    at: Vec<u64>,
    /// Plus one; zero if it is the test.
    host: Vec<u32>,
    /// The position of its text.
    text: Vec<usize>,
    texts: Vec<MarkText>,
}

#[derive(Debug, Serialize)]
struct MarkText {
    text: String,
    site: Option<String>,
    look: u8,
}

impl Marks {
    /// The marks from `cut` on
    pub(super) fn new(marks: &[Mark], cut: u64) -> Self {
        let shown: Vec<_> = marks.iter().filter(|mark| mark.time.as_nanos() >= cut).collect();
        let mut columns = Self {
            at: differences(shown.iter().map(|mark| mark.time.as_nanos())),
            host: shown.iter().map(|mark| mark.host.map_or(0, |host| host + 1)).collect(),
            ..Self::default()
        };
        let mut positions = HashMap::new();
        for Mark { content, .. } in shown {
            let text = *positions.entry(*content).or_insert_with(|| {
                let (text, site, look) = (content.text(), content.site(), content.look() as u8);
                columns.texts.push(MarkText { text, site, look });
                columns.texts.len() - 1
            });
            columns.text.push(text);
        }
        columns
    }
}
