use serde_json::Value;

use super::bounds::{MAX_INPUT, MAX_ITEMS, ParseError, short};
use crate::report::{NetworkService, NetworkSettings, VirtualBridge};

/// Reads `preferences.plist` of SystemConfiguration as JSON, as `plutil -convert json` prints it
///
/// Only the services of the current location that are switched on count.
///
/// # Errors
///
/// [`ParseError::TooLong`] above [`MAX_INPUT`](super::MAX_INPUT) bytes, [`ParseError::NotJson`] if the output is not JSON, and
/// [`ParseError::Missing`] if it has no services.
pub fn network_settings(json: &str) -> Result<NetworkSettings, ParseError> {
    if json.len() > MAX_INPUT {
        return Err(ParseError::TooLong);
    }
    let root: Value = serde_json::from_str(json).map_err(|error| ParseError::NotJson(error.to_string()))?;
    let Some(Value::Object(all)) = root.get("NetworkServices") else {
        return Err(ParseError::Missing("NetworkServices"));
    };
    // `/Sets/UUID`
    let current = root.get("CurrentSet").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let set = current.and_then(|id| root.get("Sets")?.get(id));
    let listed = set.and_then(|set| set.pointer("/Network/Service")?.as_object());
    let is_listed = |id: &str| {
        let Some(listed) = listed else { return true };
        listed.get(id).is_some_and(|service| service.get("__INACTIVE__").is_none())
    };
    let services = all
        .iter()
        .filter(|(id, service)| is_listed(id) && service.get("__INACTIVE__").is_none())
        .filter_map(|(_, entry)| service(entry))
        .take(MAX_ITEMS)
        .collect();
    let bridges = root.pointer("/VirtualNetworkInterfaces/Bridge").and_then(Value::as_object);
    let bridges = bridges.into_iter().flatten().take(MAX_ITEMS).map(|(name, bridge)| VirtualBridge {
        name: short(name),
        members: texts(bridge.get("Interfaces")).map(short).collect(),
    });
    Ok(NetworkSettings {
        location: set.and_then(|set| set.get("UserDefinedName")?.as_str()).map(short),
        services,
        bridges: bridges.collect(),
    })
}

fn service(entry: &Value) -> Option<NetworkService> {
    Some(NetworkService {
        interface: short(entry.pointer("/Interface/DeviceName")?.as_str()?),
        ipv4_method: entry.pointer("/IPv4/ConfigMethod").and_then(Value::as_str).map(short),
        ipv4: texts(entry.pointer("/IPv4/Addresses")).filter_map(|text| text.parse().ok()).collect(),
    })
}

fn texts(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).take(MAX_ITEMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_other_locations_and_those_switched_off_are_left_out() {
        let json = r#"{"CurrentSet": "/Sets/S1", "Sets": {
            "S1": {"UserDefinedName": "exo", "Network": {"Service": {"A": {"__LINK__": "/x"}, "C": {"__INACTIVE__": 1}}}},
            "S2": {"Network": {"Service": {"B": {}}}}},
          "NetworkServices": {
            "A": {"Interface": {"DeviceName": "en4"}, "IPv4": {"ConfigMethod": "Manual", "Addresses": ["192.168.30.1", 7]}},
            "B": {"Interface": {"DeviceName": "en3"}}, "C": {"Interface": {"DeviceName": "en2"}}},
          "VirtualNetworkInterfaces": {"Bridge": {"bridge0": {"Interfaces": ["en2", "en3"]}}}}"#;
        let found = network_settings(json).unwrap();
        assert_eq!(found.location.as_deref(), Some("exo"));
        let [service] = &found.services[..] else { panic!("{found:?}") };
        assert_eq!((service.interface.as_str(), service.ipv4_method.as_deref()), ("en4", Some("Manual")));
        assert_eq!(service.ipv4, [std::net::Ipv4Addr::new(192, 168, 30, 1)]);
        assert_eq!(found.bridges[0].members, ["en2", "en3"]);
    }

    #[test]
    fn settings_without_services_are_an_error() {
        assert_eq!(network_settings("{}"), Err(ParseError::Missing("NetworkServices")));
        assert!(matches!(network_settings("<plist>"), Err(ParseError::NotJson(_))));
    }
}
