//! The kernel's configuration: a fragment of ours over `allnoconfig`, and whether it held.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// Checks that every line of the fragment is in the final configuration. The configuration tool drops silently what it
/// does not know and what lacks a dependency; a kernel without it would fail much later, somewhere else.
pub(super) fn check(fragment: &str, config: &str) -> Result<()> {
    let wanted = parse(fragment)?;
    let found = parse(config)?;
    for (name, value) in &wanted {
        let found = found.get(name).copied().unwrap_or("n");
        if found != *value {
            bail!(
                "the configuration does not hold: {name} is {found} where usermode.config wants {value}; \
                 it was renamed, or something that it depends on is not set"
            );
        }
    }
    Ok(())
}

/// The options with their values; an option that is not set is `n`.
fn parse(text: &str) -> Result<BTreeMap<&str, &str>> {
    let mut options = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let unset = line.strip_prefix("# ").and_then(|line| line.strip_suffix(" is not set"));
        let option = match unset {
            Some(name) => (name, "n"),
            None if line.is_empty() || line.starts_with('#') => continue,
            None => match line.split_once('=') {
                Some(option) => option,
                None => bail!("line {} of the configuration is no option: {line}", number + 1),
            },
        };
        if !option.0.starts_with("CONFIG_") {
            bail!("line {} of the configuration is no option: {line}", number + 1);
        }
        if options.insert(option.0, option.1).is_some() {
            bail!("line {} of the configuration sets {} a second time", number + 1, option.0);
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINAL: &str = "#\n# Automatically generated file\n#\nCONFIG_UML=y\nCONFIG_NAME=\"a=b\"\n\
                         # CONFIG_MODULES is not set\nCONFIG_HZ=100\n";

    fn message(fragment: &str) -> String {
        check(fragment, FINAL).expect_err("the configuration does not hold").to_string()
    }

    #[test]
    fn what_is_there_holds() {
        check("# Why.\nCONFIG_UML=y\nCONFIG_NAME=\"a=b\"\n\n# CONFIG_MODULES is not set\n", FINAL).expect("it holds");
        // What the tool does not mention is not set.
        check("# CONFIG_HOSTFS is not set\n", FINAL).expect("it holds");
        check("CONFIG_HOSTFS=n\n", FINAL).expect("it holds");
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(message("CONFIG_UML=y\nCONFIG_EROFS_FS=y\n").contains("CONFIG_EROFS_FS is n"));
        assert!(message("# CONFIG_UML is not set\n").contains("CONFIG_UML is y where usermode.config wants n"));
        assert!(message("CONFIG_HZ=250\n").contains("CONFIG_HZ is 100"));
    }

    #[test]
    fn nonsense_is_named_by_its_line() {
        assert!(message("CONFIG_UML=y\nCONFIG_X\n").contains("line 2"));
        assert!(message("UML=y\n").contains("line 1"));
        assert!(message("CONFIG_UML=y\nCONFIG_UML=n\n").contains("a second time"));
    }
}
