//! The Debian part of a tree, made with mmdebstrap.

use crate::build::Site;
use crate::error::BuildError;
use crate::mirror::Mirror;
use crate::program::Program;
use crate::progress::Reporter;
use crate::recipe::Recipe;

/// The keys that Debian signs its archives with.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Settings of dpkg during the build. What they leave out is of use to nobody in a sandbox; copyright stays.
const DPKG: [&str; 6] = [
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

/// Installs the recipe's packages into the site's tree, which must not exist or be empty.
pub(crate) fn install(
    recipe: &Recipe,
    suite: &str,
    site: &Site<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<(), BuildError> {
    let mirror = Mirror::find(site.cancel)?;
    let sources = mirror.sources(suite);
    reporter.detail(format!("from {}", sources[0].trim_start_matches("deb ")));
    let program = Program::enclosed("mmdebstrap")
        .args(["--verbose", "--mode=root", "--format=directory", "--variant=apt"])
        .arg(format!("--keyring={KEYRING}"))
        .arg("--aptopt=Acquire::Languages \"none\"")
        .args(DPKG.map(|option| format!("--dpkgopt={option}")))
        .args(mirror.settings.iter().map(|setting| format!("--aptopt={setting}")))
        .arg(format!("--include={}", recipe.packages.join(",")))
        .arg(suite)
        .arg(site.tree)
        .args(sources)
        .env("TMPDIR", site.scratch)
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive");
    let mut meter = Meter::default();
    program.run(site.cancel, |line| {
        if let Some((text, percent)) = meter.read(line) {
            reporter.advance(text, percent);
        }
    })?;
    Ok(())
}

/// Reads how far mmdebstrap is from what it prints. It installs in two rounds, first the essential packages; in each
/// round every package is downloaded, unpacked and set up.
#[derive(Debug, Default)]
struct Meter {
    round: u32,
    /// Three times the packages of this round.
    actions: u32,
    done: u32,
}

/// The share of the first round, in per cent: it has fewer packages than the second.
const FIRST_ROUND: u32 = 25;

impl Meter {
    /// A line to show and the per cent of the whole; `None` for lines that say nothing to people.
    fn read(&mut self, line: &str) -> Option<(String, u8)> {
        let mut words = line.split_whitespace();
        let text = match (words.next()?, words.next()?) {
            ("I:", _) => line[2..].trim().to_owned(),
            (get, _) if get.starts_with("Get:") => {
                self.done += u32::from(self.round > 0);
                // After the URL: the release, the architecture and the package, or the release and a file.
                let rest: Vec<_> = words.collect();
                let what = rest.get(2).filter(|word| !word.starts_with('[')).or(rest.get(1))?;
                format!("downloading {what}")
            }
            ("Unpacking", package) => self.next(format!("unpacking {package}")),
            ("Setting", "up") => self.next(format!("setting up {}", words.next()?)),
            (_, "upgraded,") => {
                self.round += 1;
                self.done = 0;
                self.actions = words.next()?.parse::<u32>().ok()?.saturating_mul(3);
                return None;
            }
            _ => return None,
        };
        Some((text, self.percent()))
    }

    fn next(&mut self, text: String) -> String {
        self.done += 1;
        text
    }

    fn percent(&self) -> u8 {
        let share = |of: u32| (of * self.done.min(self.actions)).checked_div(self.actions).unwrap_or(0);
        let percent = match self.round {
            0 => 0,
            1 => share(FIRST_ROUND),
            _ => FIRST_ROUND + share(100 - FIRST_ROUND),
        };
        u8::try_from(percent.min(100)).expect("at most 100")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_the_output() {
        let mut meter = Meter::default();
        let mut read = |line: &str| meter.read(line);
        let shown = |text: &str, percent| Some((text.to_owned(), percent));
        assert_eq!(read("I: running apt-get update..."), shown("running apt-get update...", 0));
        assert_eq!(read("Get:1 http://m.example/debian trixie InRelease [140 kB]"), shown("downloading InRelease", 0));
        assert_eq!(read("Reading package lists..."), None);
        assert_eq!(read("0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."), None);
        let get = "Get:1 http://m.example/debian trixie/main amd64 bash amd64 5.2 [1 kB]";
        assert_eq!(read(get), shown("downloading bash", 4));
        assert_eq!(read("Unpacking bash (5.2) ..."), shown("unpacking bash", 8));
        assert_eq!(read("Setting up bash (5.2) ..."), shown("setting up bash", 12));
        assert_eq!(read("0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded."), None);
        for _ in 0..5 {
            read("Setting up git (2) ...");
        }
        assert_eq!(read("Setting up git (2) ..."), shown("setting up git", 100));
        assert_eq!(read(""), None);
        assert_eq!(read("Get:1"), None);
    }
}
