use serde_json::{Map, Value};

use super::bounds::{MAX_INPUT, MAX_ITEMS, ParseError, keep, short};
use crate::report::{Bus, Peer};

/// Reads `system_profiler SPThunderboltDataType -json`
///
/// One element per bus. A bus without a receptacle is internal and left out. Connected devices are the `_items` of a bus; docks nest
/// them. A peer computer has a domain of its own, docks and displays have none.
///
/// # Errors
///
/// [`ParseError::TooLong`] above [`MAX_INPUT`](super::MAX_INPUT) bytes, [`ParseError::NotJson`] if the output is not JSON, and
/// [`ParseError::Missing`] if it has no list of buses.
///
/// ```
/// use rdma_doctor::parse::{self, ParseError};
///
/// let json = r#"{"SPThunderboltDataType": [
///     {"domain_uuid_key": "A", "receptacle_1_tag": {"receptacle_id_key": "1", "current_speed_key": "80 Gb/s"}}
/// ]}"#;
/// assert_eq!(parse::system_profiler(json)?[0].receptacle, Some(1));
/// assert_eq!(parse::system_profiler("{}"), Err(ParseError::Missing("SPThunderboltDataType")));
/// # Ok::<(), ParseError>(())
/// ```
pub fn system_profiler(json: &str) -> Result<Vec<Bus>, ParseError> {
    if json.len() > MAX_INPUT {
        return Err(ParseError::TooLong);
    }
    let root: Value = serde_json::from_str(json).map_err(|error| ParseError::NotJson(error.to_string()))?;
    let Some(Value::Array(elements)) = root.get("SPThunderboltDataType") else {
        return Err(ParseError::Missing("SPThunderboltDataType"));
    };
    Ok(elements.iter().filter_map(Value::as_object).filter_map(bus).take(MAX_ITEMS).collect())
}

fn bus(element: &Map<String, Value>) -> Option<Bus> {
    let is_tag = |key: &str| key.starts_with("receptacle_") && key.ends_with("_tag");
    let receptacle = element.iter().find(|(key, _)| is_tag(key)).and_then(|(_, tag)| tag.as_object())?;
    let mut peers = Vec::new();
    connected(element, &mut peers);
    Some(Bus {
        name: text(element, "_name").unwrap_or_default(),
        device_name: text(element, "device_name_key"),
        domain_uuid: text(element, "domain_uuid_key"),
        receptacle: receptacle.get("receptacle_id_key").and_then(whole),
        receptacle_status: text(receptacle, "receptacle_status_key"),
        speed: text(receptacle, "current_speed_key"),
        peers,
    })
}

/// Adds the items of an element, and those of its items; `serde_json` bounds how deep they nest
fn connected(element: &Map<String, Value>, peers: &mut Vec<Peer>) {
    let Some(Value::Array(items)) = element.get("_items") else { return };
    for item in items.iter().filter_map(Value::as_object) {
        let peer = Peer {
            name: text(item, "_name").unwrap_or_default(),
            model: text(item, "device_name_key"),
            domain_uuid: text(item, "domain_uuid_key"),
            rdma_service: advertised(item),
        };
        keep(peers, peer);
        connected(item, peers);
    }
}

/// Whether `rdma` is among the services of an item
///
/// The name of the key in JSON is not publicly known; the text form says `Services`, `Service Key: rdma`, `Protocol ID: 64087`.
fn advertised(item: &Map<String, Value>) -> Option<bool> {
    let mut listed = item.iter().filter(|(key, _)| key.to_ascii_lowercase().contains("service")).peekable();
    listed.peek()?;
    Some(listed.any(|(_, services)| names_rdma(services)))
}

fn names_rdma(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(names_rdma),
        Value::Number(number) => number.as_u64() == Some(64087),
        Value::Object(values) => values.values().any(names_rdma),
        Value::String(text) => text.eq_ignore_ascii_case("rdma") || text == "64087",
        Value::Bool(_) | Value::Null => false,
    }
}

fn text(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key)?.as_str().map(short).filter(|text| !text.is_empty())
}

fn whole(value: &Value) -> Option<u32> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64()?.try_into().ok(),
    }
}
