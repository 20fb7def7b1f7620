//! Unpacking, patching, configuring and compiling, with its progress on standard error.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Patch, config};

/// Changes when the way of building does, so that kernels built the old way are built again.
const RECIPE: u32 = 1;

/// What would otherwise tell one build of the same source from another.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("LOCALVERSION", ""),
    ("KBUILD_BUILD_TIMESTAMP", "1970-01-01 00:00:00 UTC"),
    ("KBUILD_BUILD_USER", "hutch"),
    ("KBUILD_BUILD_HOST", "hutch"),
    ("KBUILD_BUILD_VERSION", "1"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
];

/// Lines of the log to show when something failed.
const TAIL: usize = 40;

/// How often progress is shown where it cannot be shown in place.
const REPORT: Duration = Duration::from_secs(15);

/// The build's own part of the key.
pub(super) fn recipe() -> String {
    let environment: String = ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("{RECIPE}\n{environment}")
}

/// One build.
#[derive(Debug)]
pub(super) struct Job<'a> {
    /// The Debian package with the source.
    pub(super) package: &'a Path,
    /// In the order in which they apply.
    pub(super) patches: &'a [Patch],
    /// The configuration's fragment.
    pub(super) fragment: &'a Path,
    /// A directory that this build has to itself.
    pub(super) work: &'a Path,
    /// How many compilers run at once.
    pub(super) jobs: usize,
    /// How many steps there are, about.
    pub(super) steps: usize,
}

impl Job<'_> {
    /// Builds; the path of the stripped program in the work directory.
    pub(super) fn run(&self) -> Result<PathBuf> {
        // What a killed build left.
        let _ = fs::remove_dir_all(self.work);
        fs::create_dir_all(self.work).with_context(|| format!("cannot make {}", self.work.display()))?;
        File::create(self.log()).with_context(|| format!("cannot make {}", self.log().display()))?;
        let source = self.unpack()?;
        self.patch(&source)?;
        self.configure(&source)?;
        self.compile(&source)?;
        let program = self.work.join("linux-um");
        let mut strip = Command::new("strip");
        strip.arg("--strip-all").arg("-o").args([program.as_path(), &source.join("linux")]);
        self.logged("strip", &mut strip)?;
        Ok(program)
    }

    /// Where all that the programs say goes.
    pub(super) fn log(&self) -> PathBuf {
        self.work.join("build.log")
    }

    fn unpack(&self) -> Result<PathBuf> {
        eprintln!("kernel: unpacking {}", self.package.display());
        let unpacked = self.work.join("package");
        self.logged("dpkg-deb", Command::new("dpkg-deb").arg("-x").args([self.package, &unpacked]))?;
        let sources = unpacked.join("usr/src");
        let is_archive = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-source-") && name.contains(".tar")
        };
        let archive = list(&sources)?.into_iter().find(is_archive);
        let archive = archive.with_context(|| format!("{} holds no kernel source", self.package.display()))?;
        let tree = self.work.join("tree");
        fs::create_dir(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--no-same-owner", "--strip-components=1", "--file"]).arg(&archive);
        tar.arg("--directory").arg(&tree);
        self.logged("tar", &mut tar)?;
        fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
        Ok(tree)
    }

    fn patch(&self, source: &Path) -> Result<()> {
        for patch in self.patches {
            let mut command = Command::new("patch");
            command.args(["--strip=1", "--fuzz=0", "--forward", "--batch", "--directory"]).arg(source);
            let file = self.work.join("patch");
            fs::write(&file, &patch.text).with_context(|| format!("cannot write {}", file.display()))?;
            command.arg("--input").arg(&file);
            let what = format!("patch {}", patch.name);
            self.logged(&what, &mut command)
                .with_context(|| format!("{} does not apply to this source", patch.name))?;
        }
        Ok(())
    }

    fn configure(&self, source: &Path) -> Result<()> {
        let mut make = self.make(source);
        make.arg("allnoconfig").env("KCONFIG_ALLCONFIG", self.fragment);
        self.logged("make allnoconfig", &mut make)?;
        let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        config::check(&read(self.fragment)?, &read(&source.join(".config"))?)
    }

    fn compile(&self, source: &Path) -> Result<()> {
        let log = self.append()?;
        let errors = log.try_clone().context("cannot share the log")?;
        let mut make = self.make(source);
        make.arg(format!("-j{}", self.jobs)).arg("linux").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = make.spawn().context("cannot run make")?;
        let output = child.stdout.take().expect("standard output was asked for");
        let copied = self.follow(BufReader::new(output), log);
        let status = child.wait().context("cannot wait for make")?;
        copied?;
        if !status.success() {
            bail!("make failed\n{}", self.tail());
        }
        Ok(())
    }

    /// Copies what make says to the log and shows how far it is.
    fn follow(&self, output: impl BufRead, mut log: File) -> Result<()> {
        let mut progress = Progress::new(self.steps);
        for line in output.split(b'\n') {
            let line = line.context("cannot read from make")?;
            log.write_all(&line).and_then(|()| log.write_all(b"\n")).context("cannot write the log")?;
            if is_step(&line) {
                progress.step();
            }
        }
        progress.end();
        Ok(())
    }

    fn make(&self, source: &Path) -> Command {
        let mut make = Command::new("make");
        make.arg("--directory").arg(source).arg("ARCH=um").envs(ENVIRONMENT);
        // What a make above this one left would take our jobs, and flags of the user's would change the kernel.
        for name in ["MAKEFLAGS", "MAKELEVEL", "CFLAGS", "KCFLAGS", "LDFLAGS", "CC", "LD"] {
            make.env_remove(name);
        }
        make
    }

    fn append(&self) -> Result<File> {
        let log = self.log();
        File::options().append(true).open(&log).with_context(|| format!("cannot open {}", log.display()))
    }

    fn logged(&self, what: &str, command: &mut Command) -> Result<()> {
        let log = self.append()?;
        let errors = log.try_clone().context("cannot share the log")?;
        let status = command.stdin(Stdio::null()).stdout(log).stderr(errors).status();
        let status = status.with_context(|| format!("cannot run {what}"))?;
        if !status.success() {
            bail!("{what} failed\n{}", self.tail());
        }
        Ok(())
    }

    /// The end of the log and where the rest is.
    fn tail(&self) -> String {
        let text = fs::read(self.log()).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        format!("{end}\nthe whole log: {}", self.log().display())
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

/// Whether a line of make's output is one of its steps: two spaces, a word in capitals, a file.
fn is_step(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"  ") else { return false };
    rest.first().is_some_and(u8::is_ascii_uppercase)
}

/// How far the build is: in place on a terminal, a line now and then elsewhere.
#[derive(Debug)]
struct Progress {
    done: usize,
    total: usize,
    started: Instant,
    reported: Instant,
    on_terminal: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        let now = Instant::now();
        Self { done: 0, total, started: now, reported: now, on_terminal: std::io::stderr().is_terminal() }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.on_terminal {
            eprint!("\r\x1b[K{}", self.line());
        } else if self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            eprintln!("{}", self.line());
        }
    }

    fn end(&self) {
        if self.on_terminal {
            eprintln!();
        } else {
            eprintln!("{}", self.line());
        }
    }

    fn line(&self) -> String {
        format!("kernel: {}/~{} steps, {} s", self.done, self.total, self.started.elapsed().as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_from_other_output() {
        assert!(is_step(b"  CC      fs/open.o"));
        assert!(is_step(b"  LD [M]  x.ko"));
        assert!(!is_step(b"make: Entering directory"));
        assert!(!is_step(b"  "));
        assert!(!is_step(b"   25 |  code"));
    }
}
