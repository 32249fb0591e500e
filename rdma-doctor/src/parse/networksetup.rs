use super::bounds::{keep, lines, short};
use crate::report::HardwarePort;

/// Reads the Thunderbolt ports of `networksetup -listallhardwareports`
///
/// Blocks of `Hardware Port:`, `Device:`, `Ethernet Address:`. Only `Thunderbolt <number>` is a port: docks have adapters called
/// `Thunderbolt Ethernet Slot 1, Port 1`, and there is the `Thunderbolt Bridge`.
pub fn networksetup(text: &str) -> Vec<HardwarePort> {
    let mut ports = Vec::new();
    let mut receptacle = None;
    for line in lines(text) {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "Hardware Port" => {
                receptacle = value.trim().strip_prefix("Thunderbolt ").and_then(|number| number.parse().ok());
            }
            "Device" => {
                let interface = short(value);
                if let Some(receptacle) = receptacle.take()
                    && !interface.is_empty()
                {
                    keep(&mut ports, HardwarePort { receptacle, interface });
                }
            }
            _ => {}
        }
    }
    ports
}
