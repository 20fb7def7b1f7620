//! `cargo xtask bench`: Hutch beside gVisor in one run, on the same root file system.
//!
//! Samples are taken in turns, A B A B, so that whatever else the machine does meets both. Every sample is kept with a
//! description of the machine; medians and ratios are computed from what was kept. Nothing here fails for being slow.

mod contest;
mod guest;
mod gvisor;
mod http;
mod hutch;
mod life;
mod machine;
mod report;
mod statistics;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use contest::{Contestant, Sample};

/// What is measured, and how.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    /// How often each measure is taken with each contestant.
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// Only these measures: create, exec, python, upload-64, download-64, upload-256, download-256.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only Hutch; gVisor is not fetched.
    #[arg(long)]
    alone: bool,
    /// Where to write the samples; `target/bench/<time>.jsonl` when absent.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the table of samples that were taken before, and take none.
    #[arg(long, conflicts_with_all = ["runs", "only", "alone", "out"])]
    read: Option<PathBuf>,
}

/// Contests of their own.
#[derive(Debug, clap::Subcommand)]
enum Part {
    /// What a program feels inside of a sandbox, beside gVisor and no sandbox at all.
    Guest(guest::Options),
    /// How fast sandboxes come, pause, come back and fork, and how many fit.
    Life(life::Options),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.part {
        Some(Part::Guest(options)) => return guest::run(options),
        Some(Part::Life(options)) => return life::run(options),
        None => {}
    }
    if let Some(path) = &options.read {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        println!("{}", report::table(&report::parse(&text)?));
        return Ok(());
    }
    let measures = contest::selected(&options.only)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace's folder")?;
    let folder = root.join("target/bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;

    let mut ours = hutch::Hutch::start(root)?;
    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    let mut versions = vec![("hutch".to_owned(), hutch::version(root))];
    if !options.alone {
        let image = ours.image(root)?;
        let gvisor = gvisor::Gvisor::prepare(&folder, &image)?;
        versions.push(("gvisor".to_owned(), gvisor.version()));
        contestants.push(Box::new(gvisor));
    }
    let machine = machine::describe(&versions);
    let mut lines = vec![serde_json::to_string(&machine).context("write the machine's description")?];
    ours.settle()?;
    contestants.insert(0, Box::new(ours));
    let mut samples: Vec<Sample> = Vec::new();
    for measure in measures {
        samples.extend(contest::take(measure, options.runs, &mut contestants)?);
    }
    for contestant in &mut contestants {
        contestant.end()?;
    }
    for sample in &samples {
        lines.push(serde_json::to_string(sample).context("write a sample")?);
    }
    let out = options.out.clone().unwrap_or_else(|| folder.join(format!("{}.jsonl", machine.taken_at)));
    std::fs::write(&out, lines.join("\n") + "\n").with_context(|| format!("write {}", out.display()))?;
    println!("{}", report::table(&report::Run { machine, samples }));
    eprintln!("samples: {}", out.display());
    Ok(())
}

/// Runs a program that must succeed and returns what it printed.
fn output_of(command: &mut std::process::Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
