use super::bounds::lines;
use crate::report::KernelObjects;

/// Reads the counts of the RDMA driver from `ioclasscount`
///
/// `AppleThunderboltRDMAProtectionDomain = 3`, one class per line. The count of a class that is not listed stays `None`.
pub fn ioclasscount(text: &str) -> KernelObjects {
    let mut objects = KernelObjects::default();
    for line in lines(text) {
        let mut words = line.split([' ', '\t', '=', ',', ':']).filter(|word| !word.is_empty());
        let (Some(class), Some(count)) = (words.next(), words.next()) else { continue };
        match class {
            "AppleThunderboltRDMAProtectionDomain" => objects.protection_domains = count.parse().ok(),
            "AppleThunderboltRDMAQueuePair" => objects.queue_pairs = count.parse().ok(),
            _ => {}
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_every_separator() {
        let text = "AppleThunderboltRDMAProtectionDomain = 3\nAppleThunderboltRDMAQueuePair: 12\n";
        let objects = ioclasscount(text);
        assert_eq!((objects.protection_domains, objects.queue_pairs), (Some(3), Some(12)));
        assert_eq!(ioclasscount("AppleThunderboltRDMAQueuePair = many"), KernelObjects::default());
    }
}
