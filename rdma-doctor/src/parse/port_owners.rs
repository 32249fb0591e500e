use super::bounds::{keep, lines, short};
use crate::report::PortOwners;

/// Reads the processes that have the driver open, by port, from `ioreg -r -l -w0 -c AppleThunderboltIPPort`
///
/// Below each port are its network interface (`"BSD Name"`) and the user clients of the RDMA interface (`"IOUserClientCreator"`
/// of `IORDMAUserClient`). Class names are those of field notes.
pub fn port_owners(text: &str) -> Vec<PortOwners> {
    let mut ports: Vec<PortOwners> = Vec::new();
    let mut kept = false;
    let mut is_client = false;
    for line in lines(text) {
        let entry = line.trim_start_matches(['|', ' ']);
        if let Some(object) = entry.strip_prefix("+-o ") {
            if line.starts_with("+-o ") {
                kept = keep(&mut ports, PortOwners::default());
            }
            is_client = object.contains("<class IORDMAUserClient,");
            continue;
        }
        let Some(port) = ports.last_mut().filter(|_| kept) else { continue };
        let Some((key, value)) = entry.split_once('=') else { continue };
        let value = || short(value.trim().trim_matches('"'));
        match key.trim() {
            "\"BSD Name\"" if port.interface.is_empty() => port.interface = value(),
            "\"IOUserClientCreator\"" if is_client => {
                keep(&mut port.owners, value());
            }
            _ => {}
        }
    }
    for port in &mut ports {
        port.owners.sort();
        port.owners.dedup();
    }
    ports.retain(|port| !port.interface.is_empty());
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_belong_to_the_port_above_them() {
        let text = r#"
+-o AppleThunderboltIPPort  <class AppleThunderboltIPPort, id 0x1, registered>
  +-o en3  <class IOEthernetInterface, id 0x2, registered>
    | {
    |   "BSD Name" = "en3"
    | }
    +-o IONetworkUserClient  <class IONetworkUserClient, id 0x3>
        "IOUserClientCreator" = "pid 9, configd"
+-o AppleThunderboltIPPort  <class AppleThunderboltIPPort, id 0x4, registered>
  +-o en4  <class IOEthernetInterface, id 0x5, registered>
    | "BSD Name" = "en4"
    +-o AppleThunderboltRDMAInterface  <class AppleThunderboltRDMAInterface, id 0x6>
      +-o IORDMAUserClient  <class IORDMAUserClient, id 0x7>
      |   "IOUserClientCreator" = "pid 412, python3"
      +-o IORDMAUserClient  <class IORDMAUserClient, id 0x8>
          "IOUserClientCreator" = "pid 412, python3"
"#;
        let found = port_owners(text);
        let found: Vec<_> = found.iter().map(|it| (it.interface.as_str(), &it.owners[..])).collect();
        assert_eq!(found, [("en3", &[][..]), ("en4", &["pid 412, python3".to_owned()][..])]);
        assert!(port_owners("\"BSD Name\" = \"en4\"").is_empty());
    }
}
