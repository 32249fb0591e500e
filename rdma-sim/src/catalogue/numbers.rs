//! Numbers of rules, for tables without names

use super::rules::SECTIONS;

/// How many rules there are
pub(crate) const RULES: usize = find("");

/// The number of the rule `name` in the order of [`rules`]; for use in constants, where it fails if no such rule is counted
pub(crate) const fn number(name: &str) -> usize {
    let number = find(name);
    assert!(number < RULES, "no rule has this name");
    number
}

/// The position of the rule `name` in the order of [`rules`], or how many there are
const fn find(name: &str) -> usize {
    let (mut number, mut section) = (0, 0);
    while section < SECTIONS.len() {
        let (rules, mut position) = (SECTIONS[section].1, 0);
        while position < rules.len() {
            if are_equal(rules[position].name, name) {
                assert!(
                    rules[position].uncounted.is_none(),
                    "the catalogue says that this rule is not counted"
                );
                return number;
            }
            (number, position) = (number + 1, position + 1);
        }
        section += 1;
    }
    number
}

const fn are_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut position = 0;
    while position < one.len() && position < other.len() && one[position] == other[position] {
        position += 1;
    }
    position == one.len() && position == other.len()
}

/// The number of a rule that is counted, by its name
macro_rules! rule {
    ($name:literal) => {
        const { $crate::catalogue::number($name) }
    };
}

pub(crate) use rule;
