//! Pairs as people type them: `KEY=VALUE`, `LOCAL:REMOTE`.

use std::path::PathBuf;

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A file on this machine and one in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) local: PathBuf,
    pub(crate) remote: String,
}

/// Reads `KEY=VALUE`; the value may hold further `=`.
pub(crate) fn assignment(text: &str) -> Result<Assignment, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Assignment { name: name.to_owned(), value: value.to_owned() }),
        _ => Err(format!("{text:?} has no value: write KEY=VALUE")),
    }
}

/// Reads `LOCAL:REMOTE`. The remote path is absolute, so the last `:/` is where it begins.
pub(crate) fn push(text: &str) -> Result<Transfer, String> {
    let wrong =
        || format!("{text:?} is not LOCAL:REMOTE with an absolute path in the sandbox, like data.csv:/root/data.csv");
    let at = text.rfind(":/").filter(|at| *at > 0).ok_or_else(wrong)?;
    Ok(Transfer { local: text[..at].into(), remote: text[at + 1..].to_owned() })
}

/// Reads `REMOTE:LOCAL`; the last colon parts them.
pub(crate) fn pull(text: &str) -> Result<Transfer, String> {
    let wrong =
        || format!("{text:?} is not REMOTE:LOCAL with an absolute path in the sandbox, like /root/out.json:out.json");
    let (remote, local) = text.rsplit_once(':').ok_or_else(wrong)?;
    if !remote.starts_with('/') || local.is_empty() {
        return Err(wrong());
    }
    Ok(Transfer { local: local.into(), remote: remote.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(transfer: Result<Transfer, String>) -> Option<(String, String)> {
        transfer.ok().map(|transfer| (transfer.local.display().to_string(), transfer.remote))
    }

    #[test]
    fn pairs() {
        let pair = |local: &str, remote: &str| Some((local.to_owned(), remote.to_owned()));
        assert_eq!(both(push("a.csv:/root/a.csv")), pair("a.csv", "/root/a.csv"));
        assert_eq!(both(push("/x/a:b:/root/a")), pair("/x/a:b", "/root/a"));
        assert_eq!(both(pull("/root/r.json:r.json")), pair("r.json", "/root/r.json"));
        assert_eq!(both(pull("/a:b:c")), pair("c", "/a:b"));
        for wrong in ["", "a", "a:b", ":/root/a"] {
            assert!(push(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "/a", "/a:", "a:b"] {
            assert!(pull(wrong).is_err(), "{wrong}");
        }
        assert_eq!(assignment("B=1=2").map(|pair| pair.value), Ok("1=2".into()));
        assert!(assignment("NOVALUE").is_err() && assignment("=x").is_err());
    }
}
