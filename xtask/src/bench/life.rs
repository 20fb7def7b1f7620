//! `cargo xtask bench life`: how fast sandboxes come, pause, come back and fork, how many fit, and what each weighs.
//!
//! Everything goes over HTTP, as a client has it, to a service of the bench's own. Creates are taken in turns with
//! gVisor's. Every sample is kept.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contest::{Contestant as _, Sample, Unit};
use super::gvisor::Gvisor;
use super::http::Connection;
use super::hutch::{self, Hutch};
use super::{machine, report};

const SMALL: &str = "s-1vcpu-256mb";
const LARGE: &str = "s-1vcpu-1gb";

/// What is measured, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Sandboxes that are created one after the other.
    #[arg(long, default_value_t = 300)]
    creates: u32,
    /// Sandboxes that are asked for at once.
    #[arg(long, default_value_t = 100)]
    burst: u32,
    /// Sandboxes that live at the same time.
    #[arg(long, default_value_t = 500)]
    many: u32,
    /// Pauses, resumes and forks of each kind.
    #[arg(long, default_value_t = 30)]
    runs: u32,
    /// Only these parts: create, burst, pause, fork, many.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only Hutch; gVisor is not fetched.
    #[arg(long)]
    alone: bool,
    /// Where to write the samples; `target/bench/life-<time>.jsonl` when absent.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Takes all parts and prints the table.
pub(super) fn run(options: &Options) -> Result<()> {
    const PARTS: [&str; 5] = ["create", "burst", "pause", "fork", "many"];
    if let Some(unknown) = options.only.iter().find(|name| !PARTS.contains(&name.as_str())) {
        bail!("there is no part {unknown:?}; choices: {}", PARTS.join(" "));
    }
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|name| name == part);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace's folder")?;
    let folder = root.join("target/bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mut hutch = Hutch::start(root)?;
    let mut versions = vec![("hutch".to_owned(), hutch::version(root))];
    let mut gvisor = None;
    if wanted("create") && !options.alone {
        let made = Gvisor::prepare(&folder, &hutch.image(root)?)?;
        versions.push(("gvisor".to_owned(), made.version()));
        gvisor = Some(made);
    }
    let machine = machine::describe(&versions);
    let mut bench = Life { samples: Vec::new() };
    bench.warm(&mut hutch)?;
    if wanted("create") {
        bench.creates(&mut hutch, gvisor.as_mut(), options.creates)?;
    }
    if let Some(mut gvisor) = gvisor {
        gvisor.end()?;
    }
    if wanted("burst") {
        bench.burst(&mut hutch, options.burst)?;
    }
    if wanted("pause") {
        bench.pauses(&mut hutch, options.runs)?;
    }
    if wanted("fork") {
        bench.forks(&mut hutch, options.runs)?;
    }
    if wanted("many") {
        bench.many(&mut hutch, options.many)?;
    }
    hutch.stop()?;
    let mut lines = vec![serde_json::to_string(&machine).context("write the machine's description")?];
    for sample in &bench.samples {
        lines.push(serde_json::to_string(sample).context("write a sample")?);
    }
    let out = options.out.clone().unwrap_or_else(|| folder.join(format!("life-{}.jsonl", machine.taken_at)));
    std::fs::write(&out, lines.join("\n") + "\n").with_context(|| format!("write {}", out.display()))?;
    println!("{}", report::table(&report::Run { machine, samples: bench.samples }));
    eprintln!("samples: {}", out.display());
    Ok(())
}

#[derive(Debug)]
struct Life {
    samples: Vec<Sample>,
}

impl Life {
    fn keep(&mut self, measure: &str, contestant: &str, run: u32, value: f64, unit: Unit) {
        let (measure, contestant) = (measure.to_owned(), contestant.to_owned());
        self.samples.push(Sample { measure, contestant, run, value, unit });
    }

    fn keep_time(&mut self, measure: &str, run: u32, elapsed: Duration) {
        self.keep(measure, "hutch", run, elapsed.as_secs_f64() * 1000.0, Unit::Milliseconds);
    }

    /// The first create of a shape makes its template, in the background: creates go on until they are fast.
    fn warm(&mut self, hutch: &mut Hutch) -> Result<()> {
        for shape in [SMALL, LARGE] {
            for _ in 0..6 {
                let id = create(hutch.connection(), shape)?;
                echo(hutch.connection(), &id)?;
                hutch.destroy(&id)?;
                std::thread::sleep(Duration::from_millis(500));
            }
        }
        Ok(())
    }

    /// From the request to the first command's output, on one kept connection.
    fn creates(&mut self, hutch: &mut Hutch, mut gvisor: Option<&mut Gvisor>, count: u32) -> Result<()> {
        for run in 1..=count {
            progress("create", run, count);
            let began = Instant::now();
            let id = create(hutch.connection(), SMALL)?;
            let created = began.elapsed();
            echo(hutch.connection(), &id)?;
            self.keep_time("create-first-exec", run, began.elapsed());
            self.keep_time("create", run, created);
            hutch.destroy(&id)?;
            // gVisor takes a second for each round: a tenth of the rounds tells enough.
            if let Some(gvisor) = gvisor.as_deref_mut().filter(|_| run % 10 == 0) {
                let began = Instant::now();
                gvisor.create_and_execute()?;
                let elapsed = began.elapsed().as_secs_f64() * 1000.0;
                self.keep("create-first-exec", "gvisor", run, elapsed, Unit::Milliseconds);
                gvisor.remove()?;
            }
        }
        eprintln!();
        Ok(())
    }

    /// Many clients at once, each with a connection of its own.
    fn burst(&mut self, hutch: &mut Hutch, count: u32) -> Result<()> {
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(hutch.connection().another()?);
        }
        progress("burst", 0, count);
        let began = Instant::now();
        let threads: Vec<_> = connections
            .into_iter()
            .map(|mut connection| {
                std::thread::spawn(move || -> Result<(String, Duration)> {
                    let began = Instant::now();
                    let id = create(&mut connection, SMALL)?;
                    Ok((id, began.elapsed()))
                })
            })
            .collect();
        let mut ids = Vec::new();
        for (run, thread) in (1..).zip(threads) {
            let (id, elapsed) = thread.join().map_err(|_| anyhow::anyhow!("a client of the burst panicked"))??;
            self.keep_time(&format!("burst-{count}-create"), run, elapsed);
            ids.push(id);
        }
        self.keep_time(&format!("burst-{count}-wall"), 1, began.elapsed());
        progress("burst", count, count);
        eprintln!();
        for id in ids {
            echo(hutch.connection(), &id)?;
            hutch.destroy(&id)?;
        }
        audit(hutch.connection())
    }

    /// An idle sandbox of 1 GiB, paused and resumed.
    fn pauses(&mut self, hutch: &mut Hutch, runs: u32) -> Result<()> {
        let id = create(hutch.connection(), LARGE)?;
        echo(hutch.connection(), &id)?;
        for run in 1..=runs {
            progress("pause", run, runs);
            let began = Instant::now();
            hutch.connection().json("POST", &format!("/v1/sandboxes/{id}/pause?wait=true"), None)?;
            self.keep_time("pause-1gib", run, began.elapsed());
            let began = Instant::now();
            hutch.connection().json("POST", &format!("/v1/sandboxes/{id}/resume?wait=true"), None)?;
            self.keep_time("resume-1gib", run, began.elapsed());
            echo(hutch.connection(), &id)?;
            self.keep_time("resume-first-exec-1gib", run, began.elapsed());
        }
        eprintln!();
        hutch.destroy(&id)
    }

    /// Forks of a running sandbox: the request, and the longest gap that a program in the source saw.
    fn forks(&mut self, hutch: &mut Hutch, runs: u32) -> Result<()> {
        let id = create(hutch.connection(), SMALL)?;
        echo(hutch.connection(), &id)?;
        let mut watcher = hutch.connection().another()?;
        for run in 1..=runs {
            progress("fork", run, runs);
            let source = id.clone();
            let watching = std::thread::spawn(move || -> Result<(Connection, f64)> {
                let gap = longest_gap(&mut watcher, &source)?;
                Ok((watcher, gap))
            });
            // The program needs a moment to start.
            std::thread::sleep(Duration::from_millis(600));
            let began = Instant::now();
            let answer = hutch.connection().json("POST", &format!("/v1/sandboxes/{id}/fork"), Some(&json!({})))?;
            self.keep_time("fork-running", run, began.elapsed());
            let child = text_at(&answer, "/data/id")?;
            echo(hutch.connection(), &child)?;
            self.keep_time("fork-running-first-exec", run, began.elapsed());
            let (connection, gap) = watching.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))??;
            watcher = connection;
            self.keep("fork-stall", "hutch", run, gap, Unit::Milliseconds);
            hutch.destroy(&child)?;
        }
        eprintln!();
        hutch.destroy(&id)
    }

    /// Many idle sandboxes at the same time: all answer, and what each of them costs.
    fn many(&mut self, hutch: &mut Hutch, count: u32) -> Result<()> {
        let before = available_mib()?;
        let mut ids = Vec::new();
        for number in 1..=count {
            progress("many", number, count);
            ids.push(create(hutch.connection(), SMALL)?);
        }
        eprintln!();
        std::thread::sleep(Duration::from_secs(5));
        let used = before - available_mib()?;
        self.keep("idle-host-memory-each", "hutch", 1, used / f64::from(count), Unit::Mebibytes);
        for (run, id) in (1..).zip(ids.iter().take(50)) {
            self.keep("idle-pss", "hutch", run, proportional_mib(id)?, Unit::Mebibytes);
        }
        for (run, id) in (1..).zip(&ids) {
            progress("answers", run, count);
            let began = Instant::now();
            echo(hutch.connection(), id)?;
            self.keep_time(&format!("exec-among-{count}"), run, began.elapsed());
        }
        eprintln!();
        for id in &ids {
            hutch.destroy(id)?;
        }
        audit(hutch.connection())
    }
}

fn progress(part: &str, done: u32, all: u32) {
    eprint!("\r{part:<14}{done}/{all} ");
}

fn text_at(answer: &Value, pointer: &str) -> Result<String> {
    let found = answer.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("read {pointer} in {answer}"))
}

fn create(connection: &mut Connection, shape: &str) -> Result<String> {
    let body = json!({ "shape": shape, "rootfs": "debian:13" });
    text_at(&connection.json("POST", "/v1/sandboxes", Some(&body))?, "/data/id")
}

fn output(connection: &mut Connection, id: &str, program: &str, arguments: &[&str]) -> Result<String> {
    let body = json!({ "cmd": program, "args": arguments });
    let answer = connection.json("POST", &format!("/v1/sandboxes/{id}/exec"), Some(&body))?;
    if answer.pointer("/data/result/exit_code") != Some(&json!(0)) {
        bail!("{program} in {id} answered {answer}");
    }
    text_at(&answer, "/data/result/stdout")
}

fn echo(connection: &mut Connection, id: &str) -> Result<()> {
    let said = output(connection, id, "/bin/sh", &["-c", "echo hi"])?;
    if said == "hi\n" { Ok(()) } else { bail!("{id} said {said:?}") }
}

/// The longest time, in milliseconds, that a busy program in the sandbox was not run within a second and a half.
fn longest_gap(connection: &mut Connection, id: &str) -> Result<f64> {
    const PROGRAM: &str =
        "import time\nn=time.monotonic;e=n()+1.5;l=n();g=0\nwhile l<e:\n t=n()\n if t-l>g:g=t-l\n l=t\nprint(g*1000)";
    let said = output(connection, id, "/usr/bin/python3", &["-c", PROGRAM])?;
    said.trim().parse().with_context(|| format!("{said:?} is no time"))
}

fn audit(connection: &mut Connection) -> Result<()> {
    let answer = connection.json("GET", "/v1/audit", None)?;
    let artefacts = answer.pointer("/data/artefacts").and_then(Value::as_array);
    let orphan = artefacts.context("the audit lists artefacts")?.iter().find(|artefact| artefact["owner"].is_null());
    orphan.map_or(Ok(()), |orphan| bail!("the audit finds {orphan}"))
}

fn available_mib() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:")).context("find MemAvailable")?;
    kibibytes(line).map(|amount| amount / 1024.0)
}

fn kibibytes(line: &str) -> Result<f64> {
    let word = line.split_whitespace().nth(1).with_context(|| format!("{line:?} has no amount"))?;
    word.parse().with_context(|| format!("{word:?} is no amount"))
}

/// The proportional set size of all processes of a sandbox, in MiB: what others share counts by its share.
fn proportional_mib(id: &str) -> Result<f64> {
    let mut sum = 0.0;
    let mut found = false;
    for entry in std::fs::read_dir("/proc").context("read /proc")?.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // A process may end while it is looked at.
        let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if !groups.contains(id) {
            continue;
        }
        let Ok(rollup) = std::fs::read_to_string(entry.path().join("smaps_rollup")) else { continue };
        if let Some(line) = rollup.lines().find(|line| line.starts_with("Pss:")) {
            sum += kibibytes(line)? / 1024.0;
            found = true;
        }
    }
    if found { Ok(sum) } else { bail!("no process of {id} is found") }
}

#[cfg(test)]
mod tests {
    use super::{kibibytes, text_at};

    #[test]
    fn amounts_of_proc_are_read() {
        assert_eq!(kibibytes("Pss:                1024 kB").ok(), Some(1024.0));
        assert!(kibibytes("Pss:").is_err());
    }

    #[test]
    fn a_missing_word_is_told_with_the_answer() {
        let answer = serde_json::json!({"data": {"id": "sb-1"}});
        assert_eq!(text_at(&answer, "/data/id").unwrap(), "sb-1");
        assert!(text_at(&answer, "/data/name").unwrap_err().to_string().contains("sb-1"));
    }
}
