use rdma_sim::topology::{TopologyError, toml_message};
use toml::Spanned;

/// An invalid value in the text, and its offset
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) offset: usize,
    pub(super) why: String,
}

impl Invalid {
    pub(super) fn in_line(text: &str, error: &TopologyError) -> Self {
        let line = error.line().unwrap_or(1);
        let offset = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        // The line is printed with the path.
        let why = error.to_string();
        let why = why.strip_prefix(&format!("line {line}: ")).unwrap_or(&why).to_owned();
        Self { offset, why }
    }

    /// The error of a parser of `text`
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        Self { offset, why: toml_message(text, offset, error.message()) }
    }

    pub(super) fn at<T>(place: &Spanned<T>, why: impl Into<String>) -> Self {
        Self { offset: place.span().start, why: why.into() }
    }
}
