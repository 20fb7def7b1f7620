//! `hutch usage`.

use std::time::Duration;

use clap::Args;
use hutch_api::{Period, SandboxUsage, Timestamp, Usage as Used, UsageReport};
use hutch_units::Bytes;

use crate::context::Context;
use crate::duration;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;

const AFTER_HELP: &str = "\
Examples:
  hutch usage                                all that was ever used
  hutch usage --last 24h
  hutch usage --from 2026-12-01 --to 2027-01-01
  hutch usage box --json

ACTIVE is time in which a machine existed, PAUSED time in which it was saved. MEMORY counts active time only, DISK both.";

/// Show what sandboxes used: time, processor, memory, disk
///
/// Of the whole account, those that have ended included, or of one sandbox.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Usage {
    /// Only this sandbox, by name or id
    sandbox: Option<String>,
    /// From this moment on: a date, or like 2026-12-01T08:30:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Timestamp>,
    /// Up to this moment; now without it
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Timestamp>,
    /// Only the last so much time (90m, 24h, 7d)
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with_all = ["from", "to"])]
    last: Option<Duration>,
}

fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("{text:?} is no moment: write a date like 2026-12-01, or 2026-12-01T08:30:00Z");
    Timestamp::parse(text).ok_or_else(wrong)
}

impl Usage {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let period = Period { from: self.from.or_else(|| self.last.and_then(ago)), to: self.to };
        if let Some(sandbox) = &self.sandbox {
            let usage = service.client().sandbox_usage(sandbox, period).await;
            let usage = usage.map_err(|error| service.explain(&error))?;
            if context.json() {
                output::print_json(&usage)?;
            } else {
                output::print(&one(&usage))?;
            }
            return Ok(0);
        }
        let report = service.client().usage(period).await.map_err(|error| service.explain(&error))?;
        if context.json() {
            output::print_json(&report)?;
        } else {
            output::print(&table(&report).fitting())?;
        }
        Ok(0)
    }
}

fn ago(last: Duration) -> Option<Timestamp> {
    let last = i64::try_from(last.as_millis()).ok()?;
    Timestamp::from_unix_milliseconds(Timestamp::now().unix_milliseconds().checked_sub(last)?)
}

fn table(report: &UsageReport) -> Table {
    let mut table = Table::new(["NAME", "ID", "STATUS", "ACTIVE", "PAUSED", "CPU", "MEMORY", "DISK"]);
    table.keep_whole("ID");
    for SandboxUsage { id, name, status, usage } in &report.sandboxes {
        let [active, paused, cpu, memory, disk] = cells(usage);
        let status = status.map_or("gone", |status| status.as_str());
        let name = name.clone().unwrap_or_else(|| "-".to_owned());
        table.row([name, id.to_string(), status.to_owned(), active, paused, cpu, memory, disk]);
    }
    let [active, paused, cpu, memory, disk] = cells(&report.total);
    let count = format!("{} sandboxes", report.sandboxes.len());
    table.row(["TOTAL".to_owned(), count, String::new(), active, paused, cpu, memory, disk]);
    table
}

fn cells(usage: &Used) -> [String; 5] {
    let time = |seconds: f64| duration::show(duration::from_seconds(seconds));
    [
        time(usage.active_seconds),
        time(usage.paused_seconds),
        time(usage.cpu_seconds),
        gibibyte_hours(usage.memory_mib_seconds),
        gibibyte_hours(usage.disk_mib_seconds),
    ]
}

fn gibibyte_hours(mebibyte_seconds: f64) -> String {
    format!("{:.3} GiB h", mebibyte_seconds / (1024.0 * 3600.0))
}

fn one(usage: &SandboxUsage) -> String {
    let [active, paused, cpu, memory, disk] = cells(&usage.usage);
    let (ins, outs) = (Bytes(usage.usage.network_in_bytes), Bytes(usage.usage.network_out_bytes));
    let name = usage.name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    format!(
        "sandbox    {name}({})\nactive     {active}\npaused     {paused}\nprocessor  {cpu}\nmemory     {memory}\n\
        disk       {disk}\nnetwork    {ins} in, {outs} out\n",
        usage.id
    )
}
