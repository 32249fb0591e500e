use super::bounds::lines;

/// Reads the bytes of wired memory from `vm_stat`: `page size of 16384 bytes`, `Pages wired down:  614400.`
pub fn vm_stat(text: &str) -> Option<u64> {
    let page = lines(text).find_map(|line| line.split_once("page size of "))?.1;
    let page: u64 = page.split_whitespace().next()?.parse().ok()?;
    let wired = lines(text).find_map(|line| line.trim().strip_prefix("Pages wired down:"))?;
    wired.trim().trim_end_matches('.').parse::<u64>().ok()?.checked_mul(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_in_the_size_that_the_heading_says() {
        let text = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:   1000.\n\
                    Pages wired down:                        614400.\n";
        assert_eq!(vm_stat(text), Some(614_400 * 16_384));
        let huge = "page size of 18446744073709551615 bytes\nPages wired down: 2.";
        for text in ["", "Pages wired down: 3.", "page size of many", "page size of 4096 bytes", huge] {
            assert_eq!(vm_stat(text), None, "{text:?}");
        }
    }
}
