//! The prerequisites of this host, and what a sandbox on it will not have.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hutch_api::{CheckStatus, DoctorReport, Finding};
use hutch_engine::Engine;
use hutch_engine::finding::Verdict;
use hutch_image::prerequisites;
use hutch_units::Bytes;

use crate::capacity::{Bounds, Supply};
use crate::data_directory::DataDirectory;

/// How long what was found is taken for true while something was missing.
const STALE: Duration = Duration::from_secs(5);

/// What the engine needs and the host lacks, looked up once and, while something is missing, again and again.
#[derive(Debug, Default)]
pub(crate) struct Prerequisites(Mutex<Option<Look>>);

#[derive(Debug, Clone)]
struct Look {
    at: Instant,
    missing: Option<String>,
}

impl Prerequisites {
    /// What is missing, as a sentence; `None` when sandboxes can run.
    pub(crate) async fn missing(&self, engine: &Arc<dyn Engine>) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last {
            Some(Look { missing: None, .. }) => return None,
            Some(Look { at, missing }) if at.elapsed() < STALE => return missing,
            _ => {}
        }
        let findings = engine.probe().await;
        let missing = findings.into_iter().find(|finding| finding.verdict == Verdict::Missing).map(|finding| {
            let fix = finding.fix.map(|fix| format!(" ({fix})")).unwrap_or_default();
            format!("{}: {}{fix}", finding.subject, finding.found)
        });
        let look = Look { at: Instant::now(), missing: missing.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
        missing
    }
}

/// Looks at everything that sandboxes on this host need.
pub async fn examine(engine: &Arc<dyn Engine>, data: &DataDirectory) -> DoctorReport {
    let mut findings: Vec<Finding> = engine.probe().await.into_iter().map(translated).collect();
    findings.extend(prerequisites().into_iter().map(|needed| Finding {
        check: format!("{} ({})", needed.name, needed.purpose),
        status: if needed.found.is_some() { CheckStatus::Ok } else { CheckStatus::Warning },
        found: needed.found.as_ref().map_or_else(|| "not found".to_owned(), |path| path.display().to_string()),
        fix: needed.found.is_none().then(|| needed.fix()),
    }));
    findings.push(disk(data));
    findings.push(Finding {
        check: "network of sandboxes".to_owned(),
        status: CheckStatus::Warning,
        found: "loopback only: this version gives sandboxes no way out and no way in".to_owned(),
        fix: None,
    });
    DoctorReport { findings }
}

fn disk(data: &DataDirectory) -> Finding {
    let free = Supply::measure(data.root()).disk_bytes;
    let floor = Bounds::of_host().disk_floor_bytes;
    let (status, fix) = if free < floor {
        (CheckStatus::Failed, Some("free some space, or choose another directory with --data".to_owned()))
    } else {
        (CheckStatus::Ok, None)
    };
    let found = format!("{} free in {}, {} must stay free", Bytes(free), data.root().display(), Bytes(floor));
    Finding { check: "disk space".to_owned(), status, found, fix }
}

fn translated(finding: hutch_engine::finding::Finding) -> Finding {
    let status = match finding.verdict {
        Verdict::Good => CheckStatus::Ok,
        Verdict::Degraded => CheckStatus::Warning,
        Verdict::Missing => CheckStatus::Failed,
    };
    Finding { check: finding.subject, status, found: finding.found, fix: finding.fix }
}
