use super::bounds::{ether, keep, lines, short};
use crate::report::Neighbour;

/// Reads the table of neighbour discovery of `ndp -an`
///
/// A heading, then `fe80::ff:fe00:283%en4  2:0:0:0:2:83  en4  23h59m58s S  R` per line.
pub fn ndp(text: &str) -> Vec<Neighbour> {
    let mut neighbours = Vec::new();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        let (Some(address), Some(link), Some(interface)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let address = address.split_once('%').map_or(address, |(address, _)| address);
        if let Ok(address) = address.parse::<std::net::Ipv6Addr>() {
            keep(&mut neighbours, Neighbour::new(address.into(), ether(link), short(interface)));
        }
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_is_no_neighbour() {
        let text = "Neighbor                Linklayer Address  Netif Expire    St Flgs Prbs\n\
                    fe80::ff:fe00:283%en4   2:0:0:0:2:83       en4 23h59m58s S  R\n\
                    fe80::1%lo0             (incomplete)       lo0 permanent R\n";
        let found = ndp(text);
        let found: Vec<_> = found.iter().map(|it| (it.interface.as_str(), it.ether.as_deref())).collect();
        assert_eq!(found, [("en4", Some("02:00:00:00:02:83")), ("lo0", None)]);
    }
}
