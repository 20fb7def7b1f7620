//! Debian's archive, asked through an apt configuration of our own: the kernel that we build is newer than the release
//! that most machines run, and their own package lists stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Names a mirror where apt's configuration has none, or instead of it.
const MIRROR_VARIABLE: &str = "HUTCH_DEBIAN_MIRROR";

/// Signs Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where new kernels come from, in order of preference.
const SUITES: [&str; 2] = ["trixie-backports", "sid"];

/// What apt is asked for about each of its targets, one a line.
const TARGET_FORMAT: &str = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CREATED_BY)|$(REPO_URI)";

/// The oldest kernel whose user-mode port has what we need: the `seccomp=` mode.
const OLDEST: (u32, u32) = (7, 2);

/// One version of one source package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    /// `linux-source-7.2`.
    pub(super) package: String,
    /// `7.2.13-1`.
    pub(super) version: String,
}

/// A private apt under a directory of ours.
#[derive(Debug)]
pub(super) struct Archive {
    directory: PathBuf,
    configuration: PathBuf,
}

impl Archive {
    /// Sets it up and fetches the lists of packages.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        if !Path::new(KEYRING).exists() {
            bail!("{KEYRING} is missing: run `apt-get install debian-archive-keyring`, or give --source and --sha256");
        }
        let mirror = mirror()?;
        let archive = Self { directory: directory.to_owned(), configuration: directory.join("apt.conf") };
        for part in ["state/lists/partial", "cache/archives/partial", "empty"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        archive.write("status", "")?;
        archive.write("sources.list", &sources(&mirror))?;
        archive.write("apt.conf", &archive.settings())?;
        eprintln!("kernel: asking Debian's archive for kernel sources");
        archive.apt("apt-get", &["update", "-qq"])?;
        Ok(archive)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// apt's settings. Release files of rolling suites are taken although they have expired: what they lead to is
    /// checked against a digest of ours, or against theirs.
    fn settings(&self) -> String {
        let at = self.directory.display();
        format!(
            "Dir::Etc::sourcelist \"{at}/sources.list\";\n\
             Dir::Etc::sourceparts \"{at}/empty\";\n\
             Dir::Etc::preferencesparts \"{at}/empty\";\n\
             Dir::State \"{at}/state\";\n\
             Dir::State::status \"{at}/status\";\n\
             Dir::Cache \"{at}/cache\";\n\
             Acquire::Check-Valid-Until \"false\";\n\
             Acquire::Languages \"none\";\n\
             APT::Sandbox::User \"root\";\n"
        )
    }

    /// All that is offered, in no order.
    pub(super) fn offers(&self) -> Result<Vec<Offer>> {
        let names = self.apt("apt-cache", &["search", "--names-only", "^linux-source-[0-9]+\\.[0-9]+$"])?;
        let mut offers = Vec::new();
        for package in names.lines().filter_map(|line| line.split_whitespace().next()) {
            offers.extend(parse_versions(&self.apt("apt-cache", &["madison", package])?));
        }
        Ok(offers)
    }

    /// Downloads one; the path of the package.
    pub(super) fn download(&self, offer: &Offer) -> Result<PathBuf> {
        eprintln!("kernel: downloading {} {}", offer.package, offer.version);
        let into = self.directory.join("download");
        let _ = fs::remove_dir_all(&into);
        fs::create_dir_all(&into).with_context(|| format!("cannot make {}", into.display()))?;
        let named = format!("{}={}", offer.package, offer.version);
        let output = self.command("apt-get").args(["download", "-qq", &named]).current_dir(&into).output();
        finished("apt-get download", output)?;
        let listed = fs::read_dir(&into).with_context(|| format!("cannot list {}", into.display()))?;
        let package = listed.filter_map(Result::ok).map(|entry| entry.path()).next();
        package.with_context(|| format!("apt-get downloaded nothing for {named}"))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.configuration).env("LC_ALL", "C");
        command
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String> {
        finished(program, self.command(program).args(arguments).output())
    }
}

/// The newest that is new enough.
pub(super) fn newest(offers: &[Offer]) -> Option<&Offer> {
    let new_enough = offers.iter().filter(|offer| numbers(&offer.version)[..] >= [OLDEST.0, OLDEST.1][..]);
    new_enough.max_by_key(|offer| numbers(&offer.version))
}

/// The numbers in a version before its Debian revision: enough to compare kernels.
fn numbers(version: &str) -> Vec<u32> {
    let upstream = version.split('-').next().unwrap_or_default();
    upstream.split('.').map_while(|number| number.parse().ok()).collect()
}

/// What `apt-cache madison` prints: `package | version | where from`.
fn parse_versions(text: &str) -> Vec<Offer> {
    let offer = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        let offer = Offer { package: fields.next()?.to_owned(), version: fields.next()?.to_owned() };
        fields.next().filter(|from| from.ends_with("Packages")).map(|_| offer)
    };
    text.lines().filter_map(offer).collect()
}

/// The mirror that this machine's own apt uses for Debian.
fn mirror() -> Result<String> {
    if let Some(named) = std::env::var(MIRROR_VARIABLE).ok().filter(|url| !url.is_empty()) {
        return Ok(named);
    }
    let output = Command::new("apt-get").args(["indextargets", "--format", TARGET_FORMAT]).output();
    let targets = finished("apt-get indextargets", output)?;
    debian_site(&targets).with_context(|| {
        format!(
            "apt on this machine knows no Debian mirror: run `apt-get update`, set {MIRROR_VARIABLE} to a mirror's \
             URL, or give --source and --sha256"
        )
    })
}

/// The first archive of Debian itself among apt's targets.
fn debian_site(targets: &str) -> Option<String> {
    let site = |line: &str| {
        let fields: Vec<_> = line.splitn(5, '|').collect();
        let [origin, label, component, created_by, url] = fields[..] else { return None };
        let fits = origin == "Debian" && label == "Debian" && component == "main" && created_by == "Packages";
        fits.then(|| url.trim_end_matches('/').to_owned())
    };
    targets.lines().find_map(site)
}

fn sources(mirror: &str) -> String {
    SUITES.iter().map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n")).collect()
}

fn finished(what: &str, output: std::io::Result<std::process::Output>) -> Result<String> {
    let output = output.with_context(|| format!("cannot run {what}"))?;
    if !output.status.success() {
        bail!("{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(package: &str, version: &str) -> Offer {
        Offer { package: package.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn the_mirror_is_debians_own_archive() {
        let targets = "Node Source|x|main|Packages|https://packages.example/node/\n\
                       Debian|Debian-Security|main|Packages|http://mirror.example/debian-security/\n\
                       Debian|Debian|contrib|Packages|http://wrong.example/debian/\n\
                       Debian|Debian|main|DEP-11|http://wrong.example/debian/\n\
                       Debian|Debian|main|Packages|http://mirror.example/debian/\n";
        assert_eq!(debian_site(targets).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(debian_site("Ubuntu|Ubuntu|main|Packages|http://u.example/"), None);
        assert_eq!(debian_site(""), None);
    }

    #[test]
    fn the_sources_are_signed() {
        let lines = sources("http://mirror.example/debian");
        assert_eq!(lines.lines().count(), SUITES.len());
        assert!(lines.lines().all(|line| line.contains("[signed-by=") && line.ends_with(" main")), "{lines}");
    }

    #[test]
    fn versions_are_read_from_what_apt_prints() {
        let text = "linux-source-7.2 |   7.2.13-1 | http://m.example/debian sid/main amd64 Packages\n\
                    linux-source-7.2 | 7.2.12-1~bpo13+1 | http://m.example/debian trixie-backports/main amd64 Packages\n\
                    linux-source-7.2 |   7.2.13-1 | http://m.example/debian sid/main Sources\n";
        let expected = [offer("linux-source-7.2", "7.2.13-1"), offer("linux-source-7.2", "7.2.12-1~bpo13+1")];
        assert_eq!(parse_versions(text), expected);
    }

    #[test]
    fn the_newest_new_enough_kernel_is_taken() {
        let offers = [
            offer("linux-source-6.12", "6.12.99-1"),
            offer("linux-source-7.2", "7.2.9-1"),
            offer("linux-source-7.10", "7.10.2-1~bpo13+1"),
            offer("linux-source-7.3", "7.3.4-1"),
        ];
        assert_eq!(newest(&offers), Some(&offers[2]));
        assert_eq!(newest(&offers[..1]), None);
    }
}
