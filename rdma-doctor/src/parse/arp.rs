use super::bounds::{ether, keep, lines, short};
use crate::report::Neighbour;

/// Reads the ARP table of `arp -an`
///
/// `? (192.168.30.2) at 2:0:0:0:2:83 on en4 ifscope [ethernet]`; `(incomplete)` stands for a hardware address that is not known.
pub fn arp(text: &str) -> Vec<Neighbour> {
    let mut neighbours = Vec::new();
    for line in lines(text) {
        let Some((_, rest)) = line.split_once('(') else { continue };
        let Some((address, rest)) = rest.split_once(')') else { continue };
        let mut words = rest.split_whitespace();
        let (Some("at"), Some(link), Some("on"), Some(interface)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if let Ok(address) = address.trim().parse::<std::net::Ipv4Addr>() {
            keep(&mut neighbours, Neighbour::new(address.into(), ether(link), short(interface)));
        }
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_and_without_hardware_address_are_read() {
        let text = "? (192.168.30.2) at 2:0:0:0:2:83 on en4 ifscope [ethernet]\n\
                    mini.local (192.168.40.2) at (incomplete) on en3 [ethernet]\n\
                    ? (no address) at 1:2 on\n? (1.2.3.4) is at home\n";
        let found = arp(text);
        let found: Vec<_> = found.iter().map(|it| (it.interface.as_str(), it.ether.as_deref())).collect();
        assert_eq!(found, [("en4", Some("02:00:00:00:02:83")), ("en3", None)]);
    }
}
