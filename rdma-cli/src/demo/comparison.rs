//! A result beside its limit

use serde::Serialize;

use crate::html::html_table;
use crate::report::table;

#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) name: &'static str,
    pub(super) result: String,
    pub(super) limit: String,
    pub(super) verdict: String,
}

const HEAD: [&str; 4] = ["", "result", "limit", ""];

impl Comparison {
    fn cells(&self) -> [String; 4] {
        [self.name.to_owned(), self.result.clone(), self.limit.clone(), self.verdict.clone()]
    }

    /// Results as text
    pub(super) fn text(results: &[Self]) -> String {
        let rows = results.iter().map(Self::cells);
        table(std::iter::once(HEAD.map(str::to_owned)).chain(rows))
    }

    /// Results as a part of a page
    pub(super) fn html(results: &[Self]) -> String {
        html_table(&HEAD, &results.iter().map(|comparison| comparison.cells().to_vec()).collect::<Vec<_>>())
    }
}
