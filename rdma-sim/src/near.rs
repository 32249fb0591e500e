//! Which of some names a misspelt one is most like

use strsim::osa_distance;

/// The name that `name` probably is, as words that follow a list of names; nothing if none is like it
pub(crate) fn suggestion<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, names) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    }
}

/// The name that `name` probably is: at most a third of its letters, or one, differ; two that were exchanged are one
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.map(|known| (osa_distance(name, known), known)).min()?;
    (near.0 <= (name.chars().count() / 3).max(1)).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_is_near_is_suggested() {
        let names = ["unplug", "replug", "pause"];
        for (name, expected) in [
            ("unplugg", "; did you mean unplug?"),
            ("unplgu", "; did you mean unplug?"),
            ("pase", "; did you mean pause?"),
            ("pasue", "; did you mean pause?"),
            ("explode", ""),
            ("pull", ""),
            ("", ""),
        ] {
            assert_eq!(suggestion(name, names.into_iter()), expected, "{name}");
        }
    }
}
