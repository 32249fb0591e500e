use std::net::Ipv4Addr;

use super::bounds::{keep, lines, short};
use crate::report::{Address, Interface};

/// Reads `ifconfig` of macOS, for one interface or for all
pub fn ifconfig(text: &str) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut kept = false;
    for line in lines(text) {
        if !line.starts_with([' ', '\t']) {
            let Some(interface) = heading(line) else { continue };
            kept = keep(&mut interfaces, interface);
        } else if let Some(interface) = interfaces.last_mut()
            && kept
        {
            detail(interface, line.trim());
        }
    }
    interfaces
}

/// `en3: flags=8963<UP,BROADCAST> mtu 1500`
fn heading(line: &str) -> Option<Interface> {
    let (name, rest) = line.split_once(':')?;
    let (_, flags) = rest.trim().strip_prefix("flags=")?.split_once('<')?;
    let (flags, _) = flags.split_once('>')?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    let mut interface = Interface { name: short(name), ..Interface::default() };
    for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
        keep(&mut interface.flags, short(flag));
    }
    Some(interface)
}

fn detail(interface: &mut Interface, line: &str) {
    let mut words = line.split_whitespace();
    let (Some(key), Some(value)) = (words.next(), words.next()) else { return };
    match key {
        "ether" => interface.ether = Some(short(value).to_ascii_lowercase()),
        "inet" => {
            if let Ok(address) = value.parse() {
                let mut rest = words.skip_while(|word| *word != "netmask");
                let prefix_len = rest.nth(1).and_then(netmask).unwrap_or(32);
                keep(&mut interface.ipv4, Address { address, prefix_len });
            }
        }
        "inet6" => {
            let address = value.split_once('%').map_or(value, |(address, _)| address);
            if let Ok(address) = address.parse() {
                keep(&mut interface.ipv6, address);
            }
        }
        "member:" => {
            keep(&mut interface.members, short(value));
        }
        "status:" => interface.status = Some(short(value)),
        _ => {}
    }
}

/// The prefix length of `0xffff0000` or `255.255.0.0`; `None` if the mask has gaps
fn netmask(text: &str) -> Option<u8> {
    let mask = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => text.parse::<Ipv4Addr>().ok()?.to_bits(),
    };
    let prefix_len = mask.leading_ones();
    (mask.count_ones() == prefix_len).then_some(prefix_len as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netmasks_come_in_both_forms() {
        let cases = [
            ("0xffff0000", Some(16)),
            ("255.255.255.252", Some(30)),
            ("0x00000000", Some(0)),
            ("0xffffffff", Some(32)),
            ("0xff00ff00", None),
            ("0x1ffffffff", None),
            ("mask", None),
        ];
        for (text, expected) in cases {
            assert_eq!(netmask(text), expected, "{text:?}");
        }
    }
}
