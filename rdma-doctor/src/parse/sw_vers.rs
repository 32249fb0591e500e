use super::bounds::{lines, short};

/// Version and build of macOS
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct MacosVersion {
    /// Such as `26.5.1`
    pub version: Option<String>,
    /// Such as `25F80`
    pub build: Option<String>,
}

/// Reads `sw_vers`, or `sw_vers -productVersion` alone
pub fn sw_vers(text: &str) -> MacosVersion {
    let mut found = MacosVersion::default();
    for line in lines(text) {
        match line.split_once(':') {
            Some((key, value)) => match key.trim() {
                "BuildVersion" => found.build = Some(short(value)),
                "ProductVersion" => found.version = Some(short(value)),
                _ => {}
            },
            None if line.trim().starts_with(|c: char| c.is_ascii_digit()) && line.contains('.') => {
                found.version.get_or_insert_with(|| short(line));
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let all = sw_vers("ProductName:\t\tmacOS\nProductVersion:\t\t26.5.1\nBuildVersion:\t\t25F80\n");
        assert_eq!((all.version.as_deref(), all.build.as_deref()), (Some("26.5.1"), Some("25F80")));
        assert_eq!(sw_vers("26.2\n").version.as_deref(), Some("26.2"));
        assert_eq!(sw_vers("sw_vers: not found"), MacosVersion::default());
    }
}
