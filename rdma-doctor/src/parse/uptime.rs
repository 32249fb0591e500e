use super::bounds::lines;

/// Reads the seconds since the host started from `uptime`, which prints no more than minutes
///
/// `19:58  up 3 days,  4:05, 2 users, load averages: 1.20 1.10 1.00`; also `up 12 mins`, `up 1 day, 2 hrs`, `up 30 secs`.
pub fn uptime(text: &str) -> Option<u64> {
    let (_, rest) = lines(text).find_map(|line| line.split_once(" up "))?;
    let mut seconds: u64 = 0;
    let mut is_known = false;
    for part in rest.split(',') {
        let mut words = part.split_whitespace();
        let (first, unit) = (words.next()?, words.next());
        let factor = match unit {
            None => {
                let (hours, minutes) = first.split_once(':')?;
                let (hours, minutes) = (hours.parse::<u64>().ok()?, minutes.parse::<u64>().ok()?);
                return hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?.checked_add(seconds);
            }
            Some("day" | "days") => 86_400,
            Some("hr" | "hrs") => 3600,
            Some("min" | "mins") => 60,
            Some("sec" | "secs") => 1,
            // The number of users follows.
            Some(_) => break,
        };
        seconds = first.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(seconds)?;
        is_known = true;
    }
    is_known.then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_uptime_is_read() {
        let cases = [
            (
                "19:58  up 3 days,  4:05, 2 users, load averages: 1.20 1.10 1.00",
                Some(3 * 86_400 + 4 * 3600 + 300),
            ),
            ("19:58  up  4:05, 1 user, load averages: 1.20 1.10 1.00\n", Some(4 * 3600 + 300)),
            ("19:58  up 12 mins, 1 user, load averages: 1.20", Some(720)),
            ("19:58  up 1 day, 2 hrs, 1 user", Some(86_400 + 7200)),
            ("19:58  up 1 day, 1 user", Some(86_400)),
            ("19:58  up 30 secs, 1 user", Some(30)),
            ("19:58  up 99999999999999999999 days, 1 user", None),
            ("19:58  up 18446744073709551615 days, 1 user", None),
            ("19:58  up 1 day, 18446744073709551615:59, 1 user", None),
            ("19:58  up 2 users", None),
            ("up", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(uptime(text), expected, "{text:?}");
        }
    }
}
