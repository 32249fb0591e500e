use super::bounds::lines;
use crate::report::Firewall;

/// Reads `socketfilterfw --getglobalstate`: `Firewall is enabled. (State = 1)`
pub fn firewall(text: &str) -> Option<Firewall> {
    let state = lines(text).find_map(|line| line.split_once("State = "))?.1;
    match state.trim().trim_end_matches(')') {
        "0" => Some(Firewall::Off),
        "1" => Some(Firewall::On),
        "2" => Some(Firewall::BlocksAll),
        _ => Some(Firewall::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_state_decides() {
        let cases = [
            ("Firewall is disabled. (State = 0)\n", Some(Firewall::Off)),
            ("Firewall is enabled. (State = 1)\n", Some(Firewall::On)),
            (
                "Firewall is blocking all non-essential incoming connections. (State = 2)",
                Some(Firewall::BlocksAll),
            ),
            ("(State = 7)", Some(Firewall::Unknown)),
            ("Firewall is disabled.", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(firewall(text), expected, "{text:?}");
        }
    }
}
