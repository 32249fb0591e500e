//! `HOST:`, as all commands write another machine

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The name or the address of a machine
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Host(String);

impl Host {
    /// A machine called `name`, without the colon of `HOST:` and without brackets; nothing if no machine can be called so
    pub(super) fn named(name: &str) -> Option<Self> {
        let is_name = !name.is_empty() && !name.contains(['/', '[', ']', ':']);
        (is_name || is_ipv6(name)).then(|| Self(name.to_owned()))
    }

    /// The name, as the system resolves it
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// Whether `text` is an IPv6 address, with or without the name of an interface behind it
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && !zone.contains(['/', '[', ']', ':'])
}

impl fmt::Display for Host {
    /// With brackets around an address that has colons, so that a colon may follow
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(&self.0) }
    }
}

impl FromStr for Host {
    type Err = String;

    /// Reads `HOST:`; brackets around an address may be left out
    fn from_str(text: &str) -> Result<Self, String> {
        let without_brackets = |text: &str| {
            Self::named(text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text))
        };
        if let Some(host) = text.strip_suffix(':').and_then(without_brackets) {
            return Ok(host);
        }
        // The last colon of an address such as `fe80::` is its own.
        if let Some(host) = without_brackets(text) {
            return Err(format!("write {host}: with a colon behind it"));
        }
        let with_port = text
            .rsplit_once(':')
            .and_then(|(host, port)| Some((without_brackets(host)?, port.parse::<u16>().ok()?)));
        match with_port {
            Some((host, port)) => Err(format!("write {host}: and --port {port}")),
            None => Err("write the name or the address of a machine, such as mini:".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_with_a_colon_behind_it() {
        for (text, name, shown) in [
            ("mini:", "mini", "mini"),
            ("studio.local:", "studio.local", "studio.local"),
            ("10.0.0.2:", "10.0.0.2", "10.0.0.2"),
            ("::1:", "::1", "[::1]"),
            (":::", "::", "[::]"),
            ("fe80:::", "fe80::", "[fe80::]"),
            ("[::1]:", "::1", "[::1]"),
            ("[fe80::1%en5]:", "fe80::1%en5", "[fe80::1%en5]"),
        ] {
            let host: Host = text.parse().unwrap();
            assert_eq!((host.name(), &*host.to_string()), (name, shown), "{text}");
            assert_eq!(format!("{host}:").parse(), Ok(host), "{text}");
        }
    }

    /// Catches a local file or another word that is taken for a machine: `copy` takes the same text for a file.
    #[test]
    fn a_machine_without_a_colon_is_refused() {
        for (text, shown) in [
            ("mini", "mini"),
            ("10.0.0.2", "10.0.0.2"),
            ("::1", "[::1]"),
            ("::", "[::]"),
            ("fe80::", "[fe80::]"),
            ("[::1]", "[::1]"),
            ("fe80::1%en5", "[fe80::1%en5]"),
        ] {
            let why = text.parse::<Host>().unwrap_err();
            assert_eq!(why, format!("write {shown}: with a colon behind it"), "{text}");
        }
    }

    /// Catches a port that is taken for a part of the name.
    #[test]
    fn a_port_is_refused_with_its_option() {
        for (text, why) in [
            ("mini:7465", "write mini: and --port 7465"),
            ("10.0.0.2:0", "write 10.0.0.2: and --port 0"),
            ("[::1]:7465", "write [::1]: and --port 7465"),
        ] {
            assert_eq!(text.parse::<Host>().unwrap_err(), why);
        }
        for text in
            ["", ":", "[]:", ":7465", "a/b", "[a]b:", "mini:x", "mini:99999", "a:b:c", "fe80::1%", "[::1"]
        {
            let why = text.parse::<Host>().unwrap_err();
            assert_eq!(why, "write the name or the address of a machine, such as mini:", "{text}");
        }
    }
}
