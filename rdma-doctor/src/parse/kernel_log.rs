use super::bounds::{MAX_ITEMS, lines, short};
use crate::report::KernelLog;

/// Counts the messages about RDMA and Thunderbolt in the output of `log show`
///
/// The words are those that field notes quote: `TX already started`, `inet_arp_lookup failed`, `InvalidSTE`. That the kernel says
/// `link down` with the name of an interface is assumed.
pub fn kernel_log(text: &str) -> KernelLog {
    let mut log = KernelLog::default();
    // `log` repeats the predicate, with the words, above its messages; each of these begins with a date.
    for line in lines(text).filter(|line| line.starts_with(|first: char| first.is_ascii_digit())) {
        let has = |words: &str| line.to_ascii_lowercase().contains(words);
        if has("link down") || has("link is down") {
            let interface = line
                .split(|c: char| !c.is_ascii_alphanumeric())
                .find(|word| word.strip_prefix("en").is_some_and(is_number));
            if let Some(interface) = interface
                && (log.links_down.contains_key(interface) || log.links_down.len() < MAX_ITEMS)
            {
                increase(log.links_down.entry(short(interface)).or_default());
            }
        }
        if has("tx already started") {
            increase(&mut log.tx_already_started);
        }
        if has("inet_arp_lookup failed") {
            increase(&mut log.arp_lookup_failed);
        }
        if has("invalidste") {
            increase(&mut log.invalid_dma);
        }
    }
    log
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

fn increase(count: &mut u32) {
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_their_words() {
        let text = "Filtering the log data using \"eventMessage CONTAINS 'inet_arp_lookup failed'\"\n\
                    Timestamp  Ty Process[PID:TID]\n\
                    2026-09-05 10:00:00 Df kernel[0:1] (AppleThunderboltIP) en4: Link down\n\
                    2026-09-05 10:00:09 Df kernel[0:1] (AppleThunderboltIP) en4: link down\n\
                    2026-09-05 10:00:10 Df kernel[0:1] (AppleThunderboltRDMA) TX already started\n\
                    2026-09-05 10:00:11 Df kernel[0:1] (AppleThunderboltRDMA) inet_arp_lookup failed: 1\n\
                    2026-09-05 10:00:12 E  kernel[0:1] (AppleT8110DART) dart: InvalidSTE at 0x0\n\
                    2026-09-05 10:00:13 Df kernel[0:1] link down of endless\n";
        let log = kernel_log(text);
        assert_eq!(log.links_down.into_iter().collect::<Vec<_>>(), [("en4".to_owned(), 2)]);
        assert_eq!((log.tx_already_started, log.arp_lookup_failed, log.invalid_dma), (1, 1, 1));
    }
}
