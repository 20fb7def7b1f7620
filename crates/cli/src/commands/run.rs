//! `hutch run`: a sandbox for one command.
//!
//! ```text
//! create ─► push ─► execute ─► pull ─► destroy
//!    └─────────┴───────┴─────────┴──── a signal or an error: destroy; a second signal: leave at once
//! ```
//!
//! Whatever happens here must leave no sandbox behind. A signal destroys it, also one that is still being created: a
//! label finds it. For the case that nothing of this process runs any more, the sandbox has a lease: it is destroyed by
//! the service unless this process renews it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hutch_api::{CreateSandbox, CreatedSandbox, ExecuteResult, SandboxFilter, SandboxView, UpdateSandbox};
use serde::Serialize;
use ulid::Ulid;

use super::create::{SandboxOptions, sentence, title};
use crate::context::{Context, Remote};
use crate::duration;
use crate::execution::{Ended, ExecutionOptions, execute, variables};
use crate::failure::Failure;
use crate::image_build;
use crate::interpreter;
use crate::output;
use crate::pair::{self, Transfer};
use crate::signals::Signals;
use crate::transfer;

/// How long the sandbox lives without being renewed.
const LEASE_SECONDS: u32 = 180;
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(45);
/// The label that finds a sandbox whose create has not been answered.
const LABEL: &str = "hutch.run";

const AFTER_HELP: &str = "\
Examples:
  hutch run -- python3 -c 'print(6*7)'
  hutch run --file script.py -- --its-own-flag
  hutch run --file job.py --push orders.csv:/root/orders.csv --pull /root/report.json:report.json
  cat data.csv | hutch run -- wc -l
  hutch run --from-snapshot clean -- ./attempt
  hutch run --image devbox:1 --timeout 5m --push src:/root/src --cwd /root/src -- cargo test

The command is executed as it stands; for a shell write `sh -c '…'`. Ctrl-C kills it and destroys the sandbox.
A script's program is named by its #! line, or by its extension: py sh bash pl js mjs cjs ts mts.";

/// Run a command or a script in a sandbox of its own
///
/// Creates a sandbox, runs the command with its output passed on as it comes, destroys the sandbox and ends with the
/// command's exit code.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Run {
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    execution: ExecutionOptions,
    /// Run this script instead of a command; what stands after -- are its arguments
    #[arg(long, short, value_name = "SCRIPT")]
    file: Option<PathBuf>,
    /// Bring a file or folder in first; may be given several times
    #[arg(long, value_name = "LOCAL:REMOTE", value_parser = pair::push)]
    push: Vec<Transfer>,
    /// Bring a file or folder out afterwards; may be given several times
    #[arg(long, value_name = "REMOTE:LOCAL", value_parser = pair::pull)]
    pull: Vec<Transfer>,
    /// Keep the sandbox, to look into it with `hutch exec`
    #[arg(long)]
    keep: bool,
    /// Its name; made up without it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "file", value_name = "COMMAND")]
    command: Vec<String>,
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    sandbox: &'a SandboxView,
    kept: bool,
    create_ms: f64,
    run_ms: f64,
    result: &'a ExecuteResult,
    pulled: Vec<transfer::Moved>,
}

/// What happens in the sandbox.
struct Job {
    pushes: Vec<Transfer>,
    words: Vec<String>,
}

impl Run {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let ours = |failure: Failure| failure.with_code(Failure::OURS);
        let job = self.job().map_err(ours)?;
        let service = context.service().map_err(ours)?;
        let mut signals = Signals::take().map_err(ours)?;
        let (request, mark) = self.request();

        let began = Instant::now();
        let created = {
            let mut create = std::pin::pin!(image_build::create(context, &service, &request));
            tokio::select! {
                created = &mut create => created.map_err(ours)?,
                code = signals.next() => {
                    let removed = async {
                        tokio::select! {
                            // Whichever comes first: the sandbox is found by its label, or its create is answered.
                            created = &mut create => if let Ok(created) = created { destroy(&service, &created).await; },
                            () = destroy_marked(&service, &mark) => {}
                        }
                    };
                    until_second_signal(removed, &mut signals).await;
                    return Ok(code);
                }
            }
        };
        let create_time = began.elapsed();
        context.tell(&sentence(&created));

        let id = created.sandbox.id.to_string();
        let outcome = tokio::select! {
            outcome = self.work(context, &service, &id, &job) => Ok(outcome),
            never = renew(&service, &id) => match never {},
            code = signals.next() => Err(code),
        };
        let left = until_second_signal(self.leave(context, &service, &created), &mut signals).await;
        let (ended, pulled) = match outcome {
            Ok(outcome) => outcome.map_err(ours)?,
            Err(code) => return Ok(code),
        };
        if !left {
            return Ok(ended.code());
        }
        ended.remark(self.execution.timeout);
        self.conclude(context, &ended);
        if context.json() {
            output::print_json(&Report {
                sandbox: &created.sandbox,
                kept: self.keep,
                create_ms: create_time.as_secs_f64() * 1000.0,
                run_ms: ended.took.as_secs_f64() * 1000.0,
                result: &ended.result,
                pulled,
            })?;
        }
        Ok(ended.code())
    }

    /// What can be known to be wrong before anything is created.
    fn job(&self) -> Result<Job, Failure> {
        let mut pushes = self.push.clone();
        for Transfer { local, .. } in &pushes {
            readable(local)?;
        }
        let mut words = self.command.clone();
        if let Some(script) = &self.file {
            readable(script)?;
            let unreadable = |error| Failure::because(format!("{} cannot be read", script.display()), &error);
            let content = std::fs::read(script).map_err(unreadable)?;
            let name = script.file_name().map_or_else(|| "script".into(), |name| name.to_string_lossy());
            let remote = format!("/root/{name}");
            let first = interpreter::command(script, &content, &remote)?;
            words.splice(0..0, first);
            pushes.push(Transfer { local: script.clone(), remote });
        }
        Ok(Job { pushes, words })
    }

    /// The request, and the value of the label that finds its sandbox.
    fn request(&self) -> (CreateSandbox, String) {
        let mark = Ulid::new().to_string();
        let mut request = self.sandbox.request();
        request.name = self.name.clone();
        request.envs = variables(&self.execution.env);
        request.labels.insert(LABEL.to_owned(), mark.clone());
        request.lifetime_seconds = Some(LEASE_SECONDS);
        (request, mark)
    }

    async fn work(
        &self,
        context: &Context,
        service: &Remote,
        id: &str,
        job: &Job,
    ) -> Result<(Ended, Vec<transfer::Moved>), Failure> {
        let input = self.execution.input(context).await?;
        for Transfer { local, remote } in &job.pushes {
            transfer::push(context, service, id, local, remote).await?;
        }
        if let Some(script) = job.words.first().filter(|word| self.file.is_some() && word.starts_with("/root/")) {
            make_executable(service, id, script).await?;
        }
        // The sandbox was created with the variables.
        let request = self.execution.request(&job.words);
        let ended = execute(context, service, id, request, input).await?;
        let mut pulled = Vec::new();
        for Transfer { local, remote } in &self.pull {
            match transfer::pull(context, service, id, remote, local).await {
                Ok(moved) => pulled.push(moved),
                // A command that failed may well not have written it; its exit code says more.
                Err(failure) if ended.code() != 0 => drop(failure.print()),
                Err(failure) => return Err(failure),
            }
        }
        Ok((ended, pulled))
    }

    /// Destroys the sandbox, or lets it stay.
    async fn leave(&self, context: &Context, service: &Remote, created: &CreatedSandbox) {
        if !self.keep {
            return destroy(service, created).await;
        }
        let id = created.sandbox.id.to_string();
        let stay = UpdateSandbox { lifetime_seconds: Some(0), ..UpdateSandbox::default() };
        match service.client().update_sandbox(&id, &stay).await {
            Ok(_) => {
                let name = created.sandbox.name.as_ref().map_or(id.clone(), ToString::to_string);
                let next = format!("`hutch exec {name} -- …` runs more in it, `hutch rm {name}` destroys it");
                context.tell(&format!("kept: {}; {next}", title(&created.sandbox)));
            }
            Err(error) => drop(service.explain(&error).print()),
        }
    }

    fn conclude(&self, context: &Context, ended: &Ended) {
        let end = if self.keep { "" } else { ", sandbox destroyed" };
        let time = duration::show(ended.took);
        context.tell(&format!("ran: {time}, exit code {}{end}", ended.result.exit_code));
    }
}

fn readable(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::new("standard input is the command's; push a file"));
    }
    let result = std::fs::File::open(path);
    result.map(drop).map_err(|error| Failure::because(format!("{} cannot be read", path.display()), &error))
}

/// A script that is executed as it is needs the permission, which its file here may lack.
async fn make_executable(service: &Remote, id: &str, script: &str) -> Result<(), Failure> {
    let words = ["chmod".to_owned(), "a+rx".to_owned(), script.to_owned()];
    let request = hutch_api::Execute { cmd: words[0].clone(), args: words[1..].to_vec(), ..Default::default() };
    service.client().execute(id, &request).await.map(drop).map_err(|error| service.explain(&error))
}

/// Renews the lease for as long as this is polled. What goes wrong is passed over: there is time for another attempt.
async fn renew(service: &Remote, id: &str) -> std::convert::Infallible {
    let lease = UpdateSandbox { lifetime_seconds: Some(LEASE_SECONDS), ..UpdateSandbox::default() };
    loop {
        tokio::time::sleep(RENEW).await;
        drop(service.client().update_sandbox(id, &lease).await);
    }
}

async fn destroy(service: &Remote, created: &CreatedSandbox) {
    if let Err(error) = service.client().destroy_sandbox(&created.sandbox.id.to_string()).await {
        let hint = format!("the service destroys it when its lease ends, in {LEASE_SECONDS} s at most");
        let failure = Failure::because(format!("{} could not be destroyed", title(&created.sandbox)), &error);
        failure.with_hint(hint).print();
    }
}

/// Destroys the sandbox with this mark, as soon as there is one.
async fn destroy_marked(service: &Remote, mark: &str) {
    let filter = SandboxFilter { labels: [(LABEL.to_owned(), mark.to_owned())].into(), ..SandboxFilter::default() };
    loop {
        for sandbox in service.client().list_sandboxes(&filter).await.unwrap_or_default() {
            if service.client().destroy_sandbox(&sandbox.id.to_string()).await.is_ok() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether the work was done before a second signal.
async fn until_second_signal(work: impl Future<Output = ()>, signals: &mut Signals) -> bool {
    tokio::select! {
        () = work => true,
        _ = signals.next() => {
            output::tell("left at once: the service destroys the sandbox when its lease ends");
            false
        }
    }
}
