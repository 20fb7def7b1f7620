//! `hutch doctor`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use hutch_api::{CheckStatus, DoctorReport, Finding};
use hutch_daemon::data_directory::DataDirectory;
use hutch_engine::Engine;
use hutch_engine::usermode::{Options, UserMode};

use crate::connection::data_directory;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::style::{Stream, Style};
use crate::table::clean;

const AFTER_HELP: &str = "\
Examples:
  hutch doctor
  hutch doctor --offline --guest target/guest

Ends with 1 when something is missing without which no sandbox can run.";

/// Check what this machine needs to run sandboxes
///
/// Names each prerequisite, what was found, and what to do about it. Asks the service when one runs, and looks itself
/// when none does.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    /// Look here and do not ask a service
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    place: Place,
}

/// Where the things of the service on this machine are; what looks at them directly shares it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The service's data directory; implies --offline
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The directory of the guest's kernel and boot image
    #[arg(long, value_name = "DIR", env = "HUTCH_GUEST", hide_env_values = true)]
    guest: Option<PathBuf>,
}

impl Place {
    /// Whether the user named a data directory to look at.
    pub(crate) fn is_named(&self) -> bool {
        self.data.is_some()
    }

    /// The engine and the data directory, to look at without a service.
    pub(crate) fn open(&self) -> (Arc<dyn Engine>, DataDirectory) {
        let root = self.data.clone().unwrap_or_else(data_directory);
        // The engine compares paths with those of processes, which are absolute.
        let root = root.canonicalize().unwrap_or(root);
        let data = DataDirectory::at(&root);
        let options = Options { guest: self.guest.clone(), ..Options::new(data.sandboxes()) };
        (Arc::new(UserMode::new(options)), data)
    }
}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let report = self.report(context).await?;
        if context.json() {
            output::print_json(&report)?;
        } else {
            output::print(&text(&report, Style::of(Stream::Output)))?;
        }
        Ok(u8::from(!report.is_healthy()))
    }

    async fn report(&self, context: &Context) -> Result<DoctorReport, Failure> {
        let mut service_finding = None;
        if !self.offline && !self.place.is_named() {
            let service = context.service()?;
            if let Some(report) = service.if_there(service.client().doctor().await)? {
                return Ok(report);
            }
            service_finding = Some(Finding {
                check: "service".to_owned(),
                status: CheckStatus::Warning,
                found: format!("none answers at {}", service.client().address()),
                fix: Some("hutch serve".to_owned()),
            });
        }
        let (engine, data) = self.place.open();
        let mut report = hutch_daemon::doctor::examine(&engine, &data).await;
        report.findings.extend(service_finding);
        Ok(report)
    }
}

fn text(report: &DoctorReport, style: Style) -> String {
    let width = report.findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, status, found, fix } in &report.findings {
        let word = match status {
            CheckStatus::Ok => style.good("ok     "),
            CheckStatus::Warning => style.warning("warning"),
            CheckStatus::Failed => style.bad("missing"),
        };
        text.push_str(&format!("{word}  {:width$}  {}\n", clean(check), clean(found)));
        if let Some(fix) = fix {
            text.push_str(&format!("{:>9}{:width$}  {} {}\n", "", "", style.note("fix:"), clean(fix)));
        }
    }
    let failed = report.findings.iter().filter(|finding| finding.status == CheckStatus::Failed).count();
    text.push_str(&match failed {
        0 => "\nSandboxes can run on this machine.\n".to_owned(),
        1 => "\nSandboxes cannot run yet: one thing is missing.\n".to_owned(),
        more => format!("\nSandboxes cannot run yet: {more} things are missing.\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_has_its_line_and_its_fix() {
        let finding = |check: &str, status, fix: Option<&str>| Finding {
            check: check.to_owned(),
            status,
            found: "found".to_owned(),
            fix: fix.map(str::to_owned),
        };
        let findings =
            vec![finding("a", CheckStatus::Ok, None), finding("long", CheckStatus::Failed, Some("apt-get install it"))];
        assert_eq!(
            text(&DoctorReport { findings }, Style::PLAIN),
            "ok       a     found\nmissing  long  found\n               fix: apt-get install it\n\n\
            Sandboxes cannot run yet: one thing is missing.\n"
        );
    }
}
