//! Where the measures are taken: each place has a shell on the same image.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::bench::gvisor::Gvisor;
use crate::bench::hutch::{self, Hutch};

const IMAGE: &str = "devbox:1";
const SHAPE: &str = "s-1vcpu-2gb";
const NAMES: [&str; 3] = ["hutch", "gvisor", "native"];

/// A place to run things in.
pub(super) trait Place {
    fn name(&self) -> &'static str;
    fn version(&self) -> String;
    /// Runs a script that must succeed and returns what it printed.
    fn run(&mut self, script: &str) -> Result<String>;
    /// Takes everything away.
    fn end(&mut self) -> Result<()>;
}

/// The places of these names, all of them when there are none. Hutch must be one: the image is its own.
pub(super) fn open(root: &Path, folder: &Path, names: &[String]) -> Result<Vec<Box<dyn Place>>> {
    if let Some(unknown) = names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("there is no place {unknown:?}; choices: {}", NAMES.join(" "));
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let mut hutch = Hutch::start(root)?;
    let image = hutch.image_of(root, IMAGE)?;
    let mut places: Vec<Box<dyn Place>> = Vec::new();
    if wanted("gvisor") {
        places.push(Box::new(Gvisor::prepare(folder, &image)?));
    }
    if wanted("native") {
        places.push(Box::new(Native::open(folder, &image)?));
    }
    if wanted("hutch") {
        hutch.settle_on(IMAGE, SHAPE)?;
        places.insert(0, Box::new(Sandbox { hutch, version: hutch::version(root) }));
    } else {
        hutch.stop()?;
    }
    Ok(places)
}

/// A sandbox of Hutch's.
struct Sandbox {
    hutch: Hutch,
    version: String,
}

impl Place for Sandbox {
    fn name(&self) -> &'static str {
        "hutch"
    }

    fn version(&self) -> String {
        // What it says of shape and image is about the other contest.
        let commit = self.version.split(',').next().unwrap_or_default();
        format!("{commit}, {SHAPE}, {IMAGE}, usermode")
    }

    fn run(&mut self, script: &str) -> Result<String> {
        self.hutch.output(script)
    }

    fn end(&mut self) -> Result<()> {
        crate::bench::contest::Contestant::end(&mut self.hutch)
    }
}

impl Place for Gvisor {
    fn name(&self) -> &'static str {
        "gvisor"
    }

    fn version(&self) -> String {
        Self::version(self)
    }

    fn run(&mut self, script: &str) -> Result<String> {
        self.output(script)
    }

    fn end(&mut self) -> Result<()> {
        crate::bench::contest::Contestant::end(self)
    }
}

/// No sandbox: the machine itself, with the image under an overlay as its root. Its mounts live in a mount namespace of
/// its own and end with it.
#[derive(Debug)]
struct Native {
    shell: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
}

/// Ends what a script printed.
const MARK: &str = "end of the script:";

impl Native {
    fn open(folder: &Path, image: &Path) -> Result<Self> {
        let folder = folder.join("native");
        let _ = std::fs::remove_dir_all(&folder);
        for part in ["image", "upper", "work", "root"] {
            std::fs::create_dir_all(folder.join(part)).with_context(|| format!("create {}", folder.display()))?;
        }
        let script = "mount -t erofs -o ro,loop \"$1\" image \
            && mount -t overlay -o lowerdir=image,upperdir=upper,workdir=work overlay root \
            && mount -t proc proc root/proc && mount -t tmpfs tmpfs root/tmp && mount --rbind /dev root/dev \
            && exec chroot root /bin/sh";
        let mut shell = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(image)
            .current_dir(&folder)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start unshare")?;
        let input = shell.stdin.take().context("the pipe was asked for")?;
        let output = BufReader::new(shell.stdout.take().context("the pipe was asked for")?);
        Ok(Self { shell, input: Some(input), output, folder })
    }
}

impl Place for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn version(&self) -> String {
        "this machine, the image under an overlay, no limits".to_owned()
    }

    fn run(&mut self, script: &str) -> Result<String> {
        let input = self.input.as_mut().context("the shell is open")?;
        writeln!(input, "({script})\necho \"{MARK}$?\"").context("write to the shell")?;
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).context("read from the shell")? == 0 {
                bail!("the shell ended");
            }
            match line.strip_prefix(MARK) {
                Some("0\n") => return Ok(said),
                Some(status) => bail!("a script ended with status {}", status.trim()),
                None => said.push_str(&line),
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        drop(self.input.take());
        self.shell.wait().context("wait for the shell")?;
        std::fs::remove_dir_all(&self.folder).with_context(|| format!("remove {}", self.folder.display()))
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // After `end` the shell is gone and this does nothing.
        drop(self.input.take());
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
