//! Hutch, through its HTTP interface over one kept connection, as a client has it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contest::Contestant;
use super::http::Connection;
use super::output_of;

const SHAPE: &str = "s-1vcpu-1gb";
const IMAGE: &str = "debian:13";
const READY: Duration = Duration::from_secs(30);

/// A service of the bench's own, and two sandboxes: one that stands, one that comes and goes.
#[derive(Debug)]
pub(super) struct Hutch {
    service: Child,
    data: PathBuf,
    connection: Connection,
    standing: String,
    last: Option<String>,
    block: Vec<u8>,
}

impl Hutch {
    /// Starts the service on a free port.
    pub(super) fn start(root: &Path) -> Result<Self> {
        let data = PathBuf::from(format!("/tmp/hutch-bench-{}", std::process::id()));
        let free = std::net::TcpListener::bind("127.0.0.1:0").context("find a free port")?;
        let address = free.local_addr().context("find a free port")?.to_string();
        drop(free);
        let log = std::fs::File::create(root.join("target/bench/serve.log")).context("make the service's log")?;
        let named = std::env::var_os("HUTCH_GUEST").filter(|path| !path.is_empty());
        let guest = named.map_or_else(|| root.join("target/guest"), PathBuf::from);
        let service = Command::new(root.join("target/release/hutch"))
            .args(["serve", "--listen", &address, "--data"])
            .arg(&data)
            .arg("--guest")
            .arg(guest)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the service's log")?)
            .stderr(log)
            .spawn()
            .context("start target/release/hutch (build it first: ./run)")?;
        let began = Instant::now();
        let key_file = data.join("api-key");
        let connection = loop {
            let key = std::fs::read_to_string(&key_file).unwrap_or_default();
            if let Ok(mut connection) = Connection::open(&address, key.trim())
                && connection.json("GET", "/readyz", None).is_ok()
            {
                break connection;
            }
            if began.elapsed() > READY {
                bail!("the service was not ready in {} s; see target/bench/serve.log", READY.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let block = (0..1_u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        Ok(Self { service, data, connection, standing: String::new(), last: None, block })
    }

    /// Makes the sandbox that stands.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.settle_on(IMAGE, SHAPE)
    }

    /// Makes the sandbox that stands, of this image and shape.
    pub(super) fn settle_on(&mut self, image: &str, shape: &str) -> Result<()> {
        self.standing = self.create(image, shape)?;
        Ok(())
    }

    /// Runs a script in the standing sandbox and returns what it printed.
    pub(super) fn output(&mut self, script: &str) -> Result<String> {
        let body = json!({ "cmd": "/bin/sh", "args": ["-c", script] });
        let answer = self.connection.json("POST", &format!("/v1/sandboxes/{}/exec", self.standing), Some(&body))?;
        let result = answer.pointer("/data/result").with_context(|| format!("read the result in {answer}"))?;
        if result["exit_code"] != 0 {
            bail!("a script in {} answered {answer}", self.standing);
        }
        Ok(result["stdout"].as_str().unwrap_or_default().to_owned())
    }

    /// The image's file, so that the other contestant runs on the same.
    pub(super) fn image(&self, root: &Path) -> Result<PathBuf> {
        self.image_of(root, IMAGE)
    }

    /// The file of the image of this name.
    pub(super) fn image_of(&self, root: &Path, name: &str) -> Result<PathBuf> {
        let listed =
            output_of(Command::new(root.join("target/release/hutch")).args(["images", "ls", "--local", "--json"]))?;
        let listed: Value = serde_json::from_slice(&listed).context("read the list of images")?;
        find_path(&listed, name).with_context(|| format!("find the file of {name} in {listed}"))
    }

    fn create(&mut self, image: &str, shape: &str) -> Result<String> {
        let body = json!({ "shape": shape, "rootfs": image });
        let answer = self.connection.json("POST", "/v1/sandboxes", Some(&body))?;
        let id = answer.pointer("/data/id").and_then(Value::as_str);
        id.map(str::to_owned).with_context(|| format!("read the id in {answer}"))
    }

    fn execute_in(&mut self, id: &str, command: &[&str]) -> Result<()> {
        let (program, arguments) = command.split_first().context("a command has a program")?;
        let body = json!({ "cmd": program, "args": arguments });
        let answer = self.connection.json("POST", &format!("/v1/sandboxes/{id}/exec"), Some(&body))?;
        if answer.pointer("/data/result/exit_code") != Some(&json!(0)) {
            bail!("{command:?} answered {answer}");
        }
        Ok(())
    }

    /// The connection, for what is not a contest.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Destroys a sandbox and waits until it is gone.
    pub(super) fn destroy(&mut self, id: &str) -> Result<()> {
        self.connection.json("DELETE", &format!("/v1/sandboxes/{id}"), None)?;
        let began = Instant::now();
        loop {
            let view = self.connection.json("GET", &format!("/v1/sandboxes/{id}"), None)?;
            if view.pointer("/data/status") == Some(&json!("destroyed")) {
                return Ok(());
            }
            if began.elapsed() > READY {
                bail!("{id} is still {view}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The path that belongs to the entry called `name`, wherever in the list it is.
fn find_path(value: &Value, name: &str) -> Option<PathBuf> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| find_path(item, name)),
        Value::Object(entry) if entry.get("name").and_then(Value::as_str) == Some(name) => {
            entry.get("path").and_then(Value::as_str).map(PathBuf::from)
        }
        Value::Object(entry) => entry.values().find_map(|item| find_path(item, name)),
        _ => None,
    }
}

/// The commit, and whether something else was built.
pub(super) fn version(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = output_of(Command::new("git").current_dir(root).args(arguments));
        output.map(|text| String::from_utf8_lossy(&text).trim().to_owned()).unwrap_or_default()
    };
    let changed = if git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() { "" } else { " and changes" };
    format!("{}{changed}, {SHAPE}, {IMAGE}, usermode", git(&["rev-parse", "--short", "HEAD"]))
}

impl Contestant for Hutch {
    fn ways(&self) -> Vec<&'static str> {
        vec!["hutch"]
    }

    fn create_and_execute(&mut self) -> Result<()> {
        let id = self.create(IMAGE, SHAPE)?;
        self.execute_in(&id, &["/bin/true"])?;
        self.last = Some(id);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        self.last.take().map_or(Ok(()), |id| self.destroy(&id))
    }

    fn execute(&mut self, _: &'static str, command: &[&str]) -> Result<()> {
        let id = self.standing.clone();
        self.execute_in(&id, command)
    }

    fn upload(&mut self, bytes: u64) -> Result<()> {
        let path = format!("/v1/sandboxes/{}/files?path=/root/bench", self.standing);
        self.connection.send(&path, bytes, &self.block)
    }

    fn download(&mut self, bytes: u64) -> Result<()> {
        let path = format!("/v1/sandboxes/{}/files?path=/root/bench", self.standing);
        let came = self.connection.fetch(&path)?;
        if came != bytes {
            bail!("{came} bytes came, not {bytes}");
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let id = self.standing.clone();
        self.destroy(&id)?;
        self.stop()
    }
}

impl Hutch {
    /// Ends the service and removes its data.
    pub(super) fn stop(&mut self) -> Result<()> {
        output_of(Command::new("kill").args(["-TERM", &self.service.id().to_string()]))?;
        self.service.wait().context("wait for the service")?;
        std::fs::remove_dir_all(&self.data).with_context(|| format!("remove {}", self.data.display()))
    }
}

impl Drop for Hutch {
    fn drop(&mut self) {
        // After `end` the process is gone and this does nothing.
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::find_path;

    #[test]
    fn an_images_file_is_found_in_a_list() {
        let list = serde_json::json!({"images": [{"name": "a", "path": "/a"}, {"name": "b", "path": "/b"}]});
        assert_eq!(find_path(&list, "b"), Some(PathBuf::from("/b")));
        assert_eq!(find_path(&list, "c"), None);
    }
}
