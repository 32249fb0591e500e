use super::bounds::{lines, short};

/// Reads the interface of `route -n get ADDRESS`
pub fn route_get(text: &str) -> Option<String> {
    lines(text).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "interface").then(|| short(value)).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_one_of_several_lines() {
        let text = "   route to: 192.168.30.2\ndestination: 192.168.30.0\n       mask: 255.255.255.252\n  \
                    interface: en4\n      flags: <UP,DONE,CLONING>\n";
        assert_eq!(route_get(text).as_deref(), Some("en4"));
        for text in ["", "interface:", "route: writing to routing socket: not in table"] {
            assert_eq!(route_get(text), None, "{text:?}");
        }
    }
}
