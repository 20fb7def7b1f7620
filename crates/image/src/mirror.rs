//! The Debian mirror: the one that this machine's own apt uses.

use std::env;
use std::path::Path;

use crate::file::{self, FileError};
use crate::program::{Program, ProgramError};
use crate::progress::Cancel;

/// Names a mirror where apt's configuration has none, or instead of it.
const VARIABLE: &str = "HUTCH_DEBIAN_MIRROR";

/// What `apt-get indextargets` is asked for, one target a line.
const FORMAT: &str = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CREATED_BY)|$(REPO_URI)";

/// Settings of the host's apt without which it may not reach the mirror.
const PASSED_ON: [&str; 4] =
    ["Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::http::ProxyAutoDetect", "Acquire::https::CAInfo"];

/// Why there is no mirror.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// apt's configuration names no Debian mirror.
    #[error("apt on this machine knows no Debian mirror: run `apt-get update`, or set {VARIABLE} to a mirror's URL")]
    None,
    /// `HUTCH_DEBIAN_MIRROR` holds no URL.
    #[error("{VARIABLE} is {value:?}: expected a URL that begins with http:// or https://")]
    Variable {
        /// Its value.
        value: String,
    },
    /// apt could not be asked.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The file that apt's list of mirrors lies in could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where to take Debian packages from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// The URL of the archive.
    main: String,
    /// The URL of the security archive, if apt knows one.
    security: Option<String>,
    /// Settings to pass on, each a line of apt's configuration.
    pub(crate) settings: Vec<String>,
}

/// The URL of the mirror that builds take Debian packages from.
pub fn debian_mirror() -> Result<String, MirrorError> {
    Ok(Mirror::find(&Cancel::default())?.main)
}

impl Mirror {
    /// Asks the environment and apt.
    pub(crate) fn find(cancel: &Cancel) -> Result<Self, MirrorError> {
        let targets = Program::single("apt-get").args(["indextargets", "--format", FORMAT]).output(cancel)?;
        let named = env::var(VARIABLE).ok().filter(|url| !url.is_empty());
        if let Some(value) = named.clone().filter(|url| !is_url(url)) {
            return Err(MirrorError::Variable { value });
        }
        let main = named.or_else(|| archive(&targets, "Debian")).ok_or(MirrorError::None)?;
        let security = archive(&targets, "Debian-Security").map(|url| resolve(&url)).transpose()?.flatten();
        let dump = Program::single("apt-config").arg("dump").output(cancel)?;
        Ok(Self { main: resolve(&main)?.ok_or(MirrorError::None)?, security, settings: passed_on(&dump) })
    }

    /// The lines of `sources.list` for a release.
    pub(crate) fn sources(&self, suite: &str) -> Vec<String> {
        let main = &self.main;
        let mut lines = vec![format!("deb {main} {suite} main"), format!("deb {main} {suite}-updates main")];
        lines.extend(self.security.as_ref().map(|url| format!("deb {url} {suite}-security main")));
        lines
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// The first archive of Debian with this label among apt's targets.
fn archive(targets: &[String], label: &str) -> Option<String> {
    let wanted = |line: &String| {
        let fields: Vec<_> = line.splitn(5, '|').collect();
        let [origin, of, component, created_by, url] = fields[..] else { return None };
        let fits = origin == "Debian" && of == label && component == "main" && created_by == "Packages";
        fits.then(|| url.trim_end_matches('/').to_owned())
    };
    targets.iter().find_map(wanted)
}

/// A `mirror+file:` source, as cloud images have it, names a file of URLs, which exists only on this host: the first
/// of them is taken. Sources of other kinds than HTTP cannot be reached from a sandbox: `None`.
fn resolve(url: &str) -> Result<Option<String>, MirrorError> {
    let Some(list) = url.strip_prefix("mirror+file:") else {
        return Ok(Some(url.to_owned()).filter(|url| is_url(url)));
    };
    let text = file::read_text(Path::new(list))?;
    let urls = text.lines().filter_map(|line| line.split_whitespace().next());
    Ok(urls.filter(|url| is_url(url)).map(|url| url.trim_end_matches('/').to_owned()).next())
}

fn passed_on(dump: &[String]) -> Vec<String> {
    let wanted = |line: &&String| {
        let key = line.split_whitespace().next().unwrap_or_default();
        let is_empty = line.ends_with("\"\";");
        !is_empty && PASSED_ON.iter().any(|name| key == *name || key.starts_with(&format!("{name}::")))
    };
    dump.iter().filter(wanted).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_archives_are_told_apart_by_their_labels() {
        let targets = lines(
            "Node Source|x|main|Packages|https://packages.example/node/\n\
             Debian|Debian-Security|main|Packages|http://mirror.example/debian-security/\n\
             Debian|Debian|main|DEP-11|http://wrong.example/debian/\n\
             Debian|Debian|contrib|Packages|http://wrong.example/debian/\n\
             Debian|Debian|main|Packages|http://mirror.example/debian/\n",
        );
        let mirror = Mirror {
            main: archive(&targets, "Debian").expect("a mirror"),
            security: archive(&targets, "Debian-Security"),
            settings: Vec::new(),
        };
        assert_eq!(
            mirror.sources("trixie"),
            [
                "deb http://mirror.example/debian trixie main",
                "deb http://mirror.example/debian trixie-updates main",
                "deb http://mirror.example/debian-security trixie-security main",
            ]
        );
        assert_eq!(archive(&lines("Ubuntu|Ubuntu|main|Packages|http://u.example/"), "Debian"), None);
    }

    #[test]
    fn a_list_of_mirrors_is_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let list = directory.path().join("debian.list");
        std::fs::write(&list, "# mirrors\nhttps://one.example/debian/ priority:1\nhttps://two.example\n")
            .expect("a file");
        let url = format!("mirror+file:{}", list.display());
        assert_eq!(resolve(&url).expect("readable"), Some("https://one.example/debian".to_owned()));
        assert_eq!(resolve("cdrom:[Debian]").expect("no file to read"), None);
        assert!(resolve("mirror+file:/no/such/file").is_err());
    }

    #[test]
    fn only_what_reaches_the_mirror_is_passed_on() {
        let dump = lines(
            "APT::Install-Recommends \"1\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n\
             Acquire::https::Proxy \"\";\nAcquire::http::Proxy::mirror.example \"DIRECT\";\nAcquire::http::Proxying \"1\";",
        );
        assert_eq!(
            passed_on(&dump),
            ["Acquire::http::Proxy \"http://proxy.example:3128\";", "Acquire::http::Proxy::mirror.example \"DIRECT\";"]
        );
    }
}
