//! Which of some names a misspelt one is most like

/// How many letters have to be inserted, removed or replaced to make `one` of `other`
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.chars().collect();
    let mut costs: Vec<_> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut costs[0], row + 1);
        for (column, different) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *different);
            diagonal = costs[column + 1];
            costs[column + 1] = replaced.min(diagonal + 1).min(costs[column] + 1);
        }
    }
    costs[other.len()]
}

/// The name that `name` probably is, as words that follow a list of names; nothing if none is like it
pub(crate) fn suggestion<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, names) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    }
}

/// The name that `name` probably is: at most half of its letters, or one, differ
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.map(|known| (distance(name, known), known)).min()?;
    (near.0 <= (name.chars().count() / 2).max(1)).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches each cost of the distance changed.
    #[test]
    fn the_distance_of_two_names_is_the_number_of_letters_to_change() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("frame", "fame", 1),
            ("unplug", "unplgu", 2),
            ("a b", "a-b", 1),
        ] {
            assert_eq!(distance(one, other), expected, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn only_a_name_that_is_near_is_suggested() {
        let names = ["unplug", "replug", "pause"];
        for (name, expected) in [
            ("unplugg", "; did you mean unplug?"),
            ("unplgu", "; did you mean unplug?"),
            ("pase", "; did you mean pause?"),
            ("pasue", "; did you mean pause?"),
            ("explode", ""),
            ("", ""),
        ] {
            assert_eq!(suggestion(name, names.into_iter()), expected, "{name}");
        }
    }
}
