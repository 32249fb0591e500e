use super::bounds::{keep, lines, short};

/// Reads the names of the devices from `ibv_devices`, in its order
///
/// A heading, a line of dashes, then a name and a node GUID per line. The order means nothing: on an M3 Ultra `rdma_en5` was
/// listed before `rdma_en4` (MLX documentation).
pub fn ibv_devices(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(guid), None) = (words.next(), words.next(), words.next()) else { continue };
        if guid.len() == 16 && guid.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            keep(&mut names, short(name));
        }
    }
    names
}
