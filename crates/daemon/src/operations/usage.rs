//! What sandboxes used.

use std::sync::Arc;

use hutch_api::{Caller, Error, Period, SandboxReference, SandboxUsage, Timestamp, Usage, UsageQuery, UsageReport};
use hutch_units::SandboxId;

use crate::clock::Moment;
use crate::core::Core;
use crate::metering::{self, Span};
use crate::report::chain;
use crate::store::{UsageRow, UsageWanted, query};
use crate::view;

pub(super) async fn account(core: &Arc<Core>, caller: &Caller, query: UsageQuery) -> Result<UsageReport, Error> {
    let sandbox = match &query.sandbox {
        Some(reference) => Some(identify(core, caller, reference).await?),
        None => None,
    };
    let (from, to) = (query.period.from, query.period.to);
    let (segments, span, now) = read(core, caller, sandbox, query.period).await?;
    let all = segments.chunk_by(|one, next| one.sandbox == next.sandbox);
    let each: Vec<SandboxUsage> =
        all.filter_map(|segments| of_one(segments, span, now)).filter(|one| one.usage != Usage::default()).collect();
    let page = query.page.cut(each);
    Ok(UsageReport {
        from,
        to: to.unwrap_or_else(|| Timestamp::from(now.date_time())),
        total: metering::sum(&segments, span, now),
        sandboxes: page.data,
        pagination: page.pagination,
    })
}

pub(super) async fn sandbox(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    period: Period,
) -> Result<SandboxUsage, Error> {
    let id = identify(core, caller, reference).await?;
    let (segments, span, now) = read(core, caller, Some(id), period).await?;
    let usage = metering::sum(&segments, span, now);
    // Its row is gone, or it used nothing then: then the ledger does not know it in that time.
    let row = core.store.read("look up a sandbox", move |db| query::find(db, &id.to_string())).await;
    let row = row.map_err(|error| Error::internal(&error))?;
    let name = row.as_ref().map(|row| row.name.as_str().to_owned());
    let name = name.or_else(|| segments.first().map(|segment| segment.name.clone()));
    Ok(SandboxUsage { id, name, status: row.map(|row| view::status(row.state)), usage })
}

/// The id of a sandbox that the caller has, or had: the ledger remembers longer.
async fn identify(core: &Arc<Core>, caller: &Caller, reference: &SandboxReference) -> Result<SandboxId, Error> {
    let missing = match core.find(caller, reference).await {
        Ok(found) => return Ok(found.row().id),
        Err(error) => error,
    };
    let SandboxReference::Id(id) = reference else { return Err(missing) };
    let wanted = UsageWanted { account: Some(caller.account.clone()), sandbox: Some(*id), from: None, to: None };
    let segments = core.store.read("read the ledger", move |db| query::usage(db, &wanted)).await;
    let is_known = !segments.map_err(|error| Error::internal(&error))?.is_empty();
    if is_known { Ok(*id) } else { Err(missing) }
}

/// The segments of a period, the span that it is, and the moment at which they were read.
async fn read(
    core: &Arc<Core>,
    caller: &Caller,
    sandbox: Option<SandboxId>,
    period: Period,
) -> Result<(Vec<UsageRow>, Span, Moment), Error> {
    if let Err(error) = metering::refresh(core).await {
        tracing::warn!(error = chain(&error), "usage is told as of the last checkpoint");
    }
    let moment = |timestamp: Timestamp| Moment(timestamp.unix_milliseconds());
    let (from, to) = (period.from.map(moment), period.to.map(moment));
    let wanted = UsageWanted { account: Some(caller.account.clone()), sandbox, from, to };
    let segments = core.store.read("read the ledger", move |db| query::usage(db, &wanted)).await;
    let segments = segments.map_err(|error| Error::internal(&error))?;
    let now = core.clock.now();
    let span = Span { from: from.unwrap_or(Moment(i64::MIN)), to: to.unwrap_or(Moment(i64::MAX)) };
    Ok((segments, span, now))
}

fn of_one(segments: &[UsageRow], span: Span, now: Moment) -> Option<SandboxUsage> {
    let last = segments.last()?;
    Some(SandboxUsage {
        id: last.sandbox,
        name: Some(last.name.clone()),
        status: last.state.map(view::status),
        usage: metering::sum(segments, span, now),
    })
}
