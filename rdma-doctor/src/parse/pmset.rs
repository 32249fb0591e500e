use super::bounds::{lines, number};

/// Reads the minutes until the host sleeps by itself from `pmset -g`
///
/// The line ` sleep 1 (sleep prevented by powerd)`; `disksleep` and `displaysleep` are others.
pub fn pmset(text: &str) -> Option<u32> {
    lines(text).find_map(|line| {
        let minutes = line.trim().strip_prefix("sleep")?;
        minutes.starts_with([' ', '\t']).then(|| number(minutes)?.try_into().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sleep_of_the_system_counts() {
        let text =
            "Currently in use:\n displaysleep 10\n disksleep 10\n sleep 1 (sleep prevented by powerd)\n";
        assert_eq!(pmset(text), Some(1));
        assert_eq!(pmset(" sleep\t\t0\n"), Some(0));
        for text in ["", " sleep", " sleep on", " sleepless 4", " displaysleep 3"] {
            assert_eq!(pmset(text), None, "{text:?}");
        }
    }
}
