use super::bounds::lines;
use crate::report::RdmaCtl;

/// Reads `rdma_ctl status`: `enabled` or `disabled`, perhaps in a sentence
pub fn rdma_ctl(text: &str) -> RdmaCtl {
    for line in lines(text) {
        let has = |wanted: &str| {
            line.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.eq_ignore_ascii_case(wanted))
        };
        if has("disabled") || has("not") && has("enabled") {
            return RdmaCtl::Disabled;
        }
        if has("enabled") {
            return RdmaCtl::Enabled;
        }
    }
    RdmaCtl::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_found_in_a_word_or_a_sentence() {
        let cases = [
            ("enabled\n", RdmaCtl::Enabled),
            ("disabled", RdmaCtl::Disabled),
            ("RDMA is Enabled.", RdmaCtl::Enabled),
            ("status: not enabled", RdmaCtl::Disabled),
            ("\n\nrdma: DISABLED", RdmaCtl::Disabled),
            ("", RdmaCtl::Unknown),
            ("usage: rdma_ctl <enable|disable|status>", RdmaCtl::Unknown),
        ];
        for (text, expected) in cases {
            assert_eq!(rdma_ctl(text), expected, "{text:?}");
        }
    }
}
