//! `hutch audit`.

use clap::Args;
use hutch_api::{Artefact, ArtefactKind, AuditReport};

use super::doctor::Place;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::style::{Stream, Style};
use crate::table::{Table, clean};

const AFTER_HELP: &str = "\
Examples:
  hutch audit
  hutch audit --data /var/lib/hutch     look directly, whether or not the service runs

Ends with 1 when something has no owner. The service removes such things when it starts.";

/// List everything on this machine that exists for a sandbox, with its owner
///
/// Processes, control groups, files: each with the sandbox that it belongs to. What has none is an orphan.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Audit {
    /// Look directly and do not ask a service
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    place: Place,
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let report = self.report(context).await?;
        let orphans = report.orphans().count();
        if context.json() {
            output::print_json(&report)?;
        } else {
            output::print(&text(&report, Style::of(Stream::Output)))?;
        }
        Ok(u8::from(orphans > 0))
    }

    async fn report(&self, context: &Context) -> Result<AuditReport, Failure> {
        if self.offline || self.place.is_named() {
            let (engine, data) = self.place.open();
            let findings = hutch_daemon::audit::audit(&engine, &data).await.map_err(|error| Failure::of(&error))?;
            return Ok(hutch_daemon::audit::report(&findings));
        }
        let service = context.service()?;
        service.client().audit().await.map_err(|error| service.explain(&error))
    }
}

fn text(report: &AuditReport, style: Style) -> String {
    let mut table = Table::new(["KIND", "OWNER", "WHAT"]);
    for Artefact { kind, name, owner, detail } in &report.artefacts {
        let detail = detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let owner = owner.clone().unwrap_or_else(|| "NONE".to_owned());
        table.row([word(*kind).to_owned(), owner, format!("{name}{detail}")]);
    }
    let orphans: Vec<String> =
        report.orphans().map(|orphan| format!("  {} {}\n", word(orphan.kind), clean(&orphan.name))).collect();
    let verdict = match orphans.len() {
        0 => style.good("everything has an owner\n"),
        count => format!("{}\n{}", style.bad(&format!("{count} without an owner:")), orphans.concat()),
    };
    if report.artefacts.is_empty() {
        "nothing exists for a sandbox\n".to_owned()
    } else {
        table.text() + "\n" + &verdict
    }
}

fn word(kind: ArtefactKind) -> &'static str {
    match kind {
        ArtefactKind::Process => "process",
        ArtefactKind::Cgroup => "cgroup",
        ArtefactKind::Mount => "mount",
        ArtefactKind::File => "file",
        ArtefactKind::Namespace => "namespace",
        ArtefactKind::Row => "row",
    }
}
