//! gVisor, through `runsc` as Debian packages it: systrap, no network, the same image as its root.
//!
//! A running sandbox is reached in two ways: `gvisor` starts `runsc exec` for each command, as its own tools do, and
//! `gvisor-shell` writes commands to a shell that stays open, which leaves only what happens inside.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::contest::Contestant;
use super::output_of;

/// The release whose backports have a `runsc` that works on current kernels; older and newer packages do not.
const SUITE: &str = "bookworm-backports";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const STANDING: &str = "bench-standing";

#[derive(Debug)]
pub(super) struct Gvisor {
    folder: PathBuf,
    runsc: PathBuf,
    root: PathBuf,
    shell: Option<Shell>,
    count: u32,
    block: Vec<u8>,
}

/// A shell inside of the standing sandbox that reads commands from a pipe.
#[derive(Debug)]
struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Gvisor {
    /// Fetches `runsc`, mounts the image and starts the sandbox that stands.
    pub(super) fn prepare(folder: &Path, image: &Path) -> Result<Self> {
        let folder = folder.join("gvisor");
        let root = folder.join("root");
        for path in [&root, &folder.join("bundle"), &folder.join("run"), &folder.join("overlay")] {
            std::fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))?;
        }
        let runsc = fetch(&folder)?;
        let block = vec![0x5a; 1 << 20];
        let mut gvisor = Self { folder, runsc, root, shell: None, count: 0, block };
        gvisor.clear();
        output_of(Command::new("mount").args(["-t", "erofs", "-o", "ro,loop"]).arg(image).arg(&gvisor.root))
            .context("mount the image for gVisor")?;
        gvisor.write_bundle()?;
        gvisor.start(STANDING)?;
        gvisor.shell = Some(gvisor.open_shell()?);
        Ok(gvisor)
    }

    pub(super) fn version(&self) -> String {
        let said = output_of(Command::new(&self.runsc).arg("--version")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
        format!("{said} from {SUITE}, systrap, --network=none, overlay on disk, no limits")
    }

    fn write_bundle(&self) -> Result<()> {
        let namespaces = ["pid", "mount", "network", "ipc", "uts"].map(|kind| json!({ "type": kind }));
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "user": { "uid": 0, "gid": 0 },
                "args": ["/bin/sleep", "infinity"],
                "env": [PATH],
                "cwd": "/",
                "capabilities": {},
            },
            "root": { "path": self.root, "readonly": false },
            "hostname": "bench",
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
                { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" },
            ],
            "linux": { "namespaces": namespaces },
        });
        let path = self.folder.join("bundle/config.json");
        std::fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))
    }

    /// `runsc` with what every call needs. Cgroups are ignored: their layout differs between machines, and the
    /// contest is about time.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.runsc);
        command.arg("--root").arg(self.folder.join("run"));
        command.args(["--platform=systrap", "--network=none", "--ignore-cgroups"]);
        command.arg(format!("--overlay2=root:dir={}", self.folder.join("overlay").display()));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn start(&self, id: &str) -> Result<()> {
        let bundle = self.folder.join("bundle");
        let mut command = self.command(&["run", "-detach", "-bundle"]);
        // The sandbox keeps the output open, so it must not be a pipe that somebody waits on.
        let status = command.arg(bundle).arg(id).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.context("start runsc")?;
        if !status.success() {
            bail!("runsc run ended with {status}");
        }
        Ok(())
    }

    fn open_shell(&self) -> Result<Shell> {
        let mut process = self
            .command(&["exec", STANDING, "/bin/sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start runsc exec")?;
        let input = process.stdin.take().context("the pipe was asked for")?;
        let output = BufReader::new(process.stdout.take().context("the pipe was asked for")?);
        Ok(Shell { process, input, output })
    }

    /// Runs a script in the standing sandbox and returns what it printed.
    pub(super) fn output(&self, script: &str) -> Result<String> {
        let said = output_of(&mut self.command(&["exec", STANDING, "/bin/sh", "-c", script]))?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Removes what an earlier run left.
    fn clear(&self) {
        let listed = output_of(&mut self.command(&["list", "-quiet"])).unwrap_or_default();
        for id in String::from_utf8_lossy(&listed).lines() {
            let _ = output_of(&mut self.command(&["delete", "-force", id]));
        }
        while output_of(Command::new("umount").arg(&self.root)).is_ok() {}
    }
}

/// `runsc` out of its package, by an apt configuration of our own: neither the machine's lists nor its packages change.
fn fetch(folder: &Path) -> Result<PathBuf> {
    let runsc = folder.join("package/usr/bin/runsc");
    if runsc.exists() {
        return Ok(runsc);
    }
    eprintln!("fetching runsc from {SUITE}");
    let apt = folder.join("apt");
    for part in ["state/lists/partial", "cache/archives/partial", "etc/preferences.d"] {
        std::fs::create_dir_all(apt.join(part)).with_context(|| format!("create {}", apt.join(part).display()))?;
    }
    let sources = apt.join("etc/sources.list");
    std::fs::write(&sources, format!("deb {} {SUITE} main\n", mirror()?)).context("write the list of sources")?;
    let at = |part: &str| apt.join(part).display().to_string();
    let configuration = apt.join("apt.conf");
    let lines = [
        format!("Dir::State \"{}\";", at("state")),
        "Dir::State::status \"/dev/null\";".to_owned(),
        format!("Dir::Cache \"{}\";", at("cache")),
        format!("Dir::Etc::sourcelist \"{}\";", sources.display()),
        "Dir::Etc::sourceparts \"-\";".to_owned(),
        format!("Dir::Etc::preferencesparts \"{}\";", at("etc/preferences.d")),
        "APT::Sandbox::User \"root\";".to_owned(),
    ];
    std::fs::write(&configuration, lines.join("\n") + "\n").context("write the configuration of apt")?;
    let apt_get = |arguments: &[&str]| {
        output_of(Command::new("apt-get").env("APT_CONFIG", &configuration).current_dir(&apt).args(arguments))
    };
    apt_get(&["update", "-qq"]).context("read the package lists")?;
    apt_get(&["download", "-qq", "runsc"]).context("download the package")?;
    let packages = std::fs::read_dir(&apt).context("look for the package")?.flatten().map(|entry| entry.path());
    let package = packages.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).last();
    let package = package.context("the package was downloaded")?;
    output_of(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder.join("package")))?;
    if !runsc.exists() {
        bail!("the package has no {}", runsc.display());
    }
    Ok(runsc)
}

/// The mirror that this machine itself uses.
fn mirror() -> Result<String> {
    let format = "$(CODENAME) $(COMPONENT) $(REPO_URI)";
    let listed = output_of(Command::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let found = listed.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>().as_slice() {
        [release, "main", uri] if !release.contains('-') => Some((*uri).to_owned()),
        _ => None,
    });
    found.context("no Debian mirror in this machine's apt configuration; bench with --alone")
}

impl Contestant for Gvisor {
    fn ways(&self) -> Vec<&'static str> {
        vec!["gvisor", "gvisor-shell"]
    }

    fn create_and_execute(&mut self) -> Result<()> {
        self.count += 1;
        let id = format!("bench-{}", self.count);
        self.start(&id)?;
        output_of(&mut self.command(&["exec", &id, "/bin/true"]))?;
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        output_of(&mut self.command(&["delete", "-force", &format!("bench-{}", self.count)]))?;
        Ok(())
    }

    fn execute(&mut self, way: &'static str, command: &[&str]) -> Result<()> {
        if way == "gvisor" {
            output_of(self.command(&["exec", STANDING]).args(command))?;
            return Ok(());
        }
        let shell = self.shell.as_mut().context("the shell was opened")?;
        writeln!(shell.input, "{} && echo done || echo failed", command.join(" ")).context("write to the shell")?;
        let mut line = String::new();
        shell.output.read_line(&mut line).context("read from the shell")?;
        if line != "done\n" {
            bail!("{command:?} in the shell answered {line:?}");
        }
        Ok(())
    }

    fn upload(&mut self, bytes: u64) -> Result<()> {
        let mut process = self
            .command(&["exec", STANDING, "/bin/sh", "-c", "cat > /root/bench"])
            .stdin(Stdio::piped())
            .spawn()
            .context("start runsc exec")?;
        let mut input = process.stdin.take().context("the pipe was asked for")?;
        for _ in 0..bytes / self.block.len() as u64 {
            input.write_all(&self.block).context("write the file")?;
        }
        drop(input);
        let status = process.wait().context("wait for runsc exec")?;
        if !status.success() {
            bail!("the upload ended with {status}");
        }
        Ok(())
    }

    fn download(&mut self, bytes: u64) -> Result<()> {
        let mut process = self
            .command(&["exec", STANDING, "/bin/cat", "/root/bench"])
            .stdout(Stdio::piped())
            .spawn()
            .context("start runsc exec")?;
        let mut output = process.stdout.take().context("the pipe was asked for")?;
        let mut came = 0;
        let mut buffer = vec![0; 1 << 18];
        loop {
            match output.read(&mut buffer).context("read the file")? {
                0 => break,
                count => came += count as u64,
            }
        }
        process.wait().context("wait for runsc exec")?;
        if came != bytes {
            bail!("{came} bytes came, not {bytes}");
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.input);
            shell.process.wait().context("wait for the shell")?;
        }
        self.clear();
        Ok(())
    }
}

impl Drop for Gvisor {
    fn drop(&mut self) {
        // After `end` there is nothing left to clear.
        if let Some(mut shell) = self.shell.take() {
            let _ = shell.process.kill();
            let _ = shell.process.wait();
        }
        self.clear();
    }
}
