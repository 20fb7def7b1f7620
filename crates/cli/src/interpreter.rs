//! What runs a script.

use std::path::Path;

use crate::failure::Failure;

/// The program for each kind of script that says nothing itself.
const BY_EXTENSION: [(&str, &str); 9] = [
    ("py", "python3"),
    ("sh", "sh"),
    ("bash", "bash"),
    ("pl", "perl"),
    ("js", "node"),
    ("mjs", "node"),
    ("cjs", "node"),
    ("ts", "bun"),
    ("mts", "bun"),
];

/// The words that stand before the arguments to run the script at `remote` in a sandbox. One that begins with `#!` is
/// executed as it is.
pub(crate) fn command(local: &Path, content: &[u8], remote: &str) -> Result<Vec<String>, Failure> {
    if content.starts_with(b"#!") {
        return Ok(vec![remote.to_owned()]);
    }
    let extension = local.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match BY_EXTENSION.iter().find(|(known, _)| *known == extension) {
        Some((_, program)) => Ok(vec![(*program).to_owned(), remote.to_owned()]),
        None => Err(Failure::new(format!("what runs {}? It has no #! line and no known extension", local.display()))
            .with_hint(
                "begin it with a line like #!/usr/bin/env python3, or push it: \
                hutch run --push FILE:/root/FILE -- PROGRAM /root/FILE",
            )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_decides_before_an_extension() {
        let command = |name: &str, content: &str| command(Path::new(name), content.as_bytes(), "/root/x").ok();
        assert_eq!(command("a.py", "#!/bin/sh\n"), Some(vec!["/root/x".into()]));
        assert_eq!(command("a.py", "print()"), Some(vec!["python3".into(), "/root/x".into()]));
        assert_eq!(command("a", "print()"), None);
    }
}
