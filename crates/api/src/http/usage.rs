//! Usage.

use axum::response::Response;

use super::envelope::success;
use super::request::Head;
use super::router::Adapter;
use crate::{Error, Operations, Period, SandboxReference, Timestamp, UsageQuery};

pub(super) async fn account<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    let sandbox = head.query.one("sandbox").filter(|text| !text.is_empty()).map(SandboxReference::parse).transpose()?;
    let query = UsageQuery { period: period(head)?, sandbox, page: head.page()? };
    success(&adapter.operations.usage(head.caller()?, query).await?)
}

pub(super) async fn sandbox<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    success(&adapter.operations.sandbox_usage(head.caller()?, &head.sandbox()?, period(head)?).await?)
}

fn period(head: &Head) -> Result<Period, Error> {
    let period = Period { from: moment(head, "from")?, to: moment(head, "to")? };
    period.validate()?;
    Ok(period)
}

fn moment(head: &Head, name: &'static str) -> Result<Option<Timestamp>, Error> {
    let Some(text) = head.query.one(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let form = "must be a moment like 2026-12-01T08:30:00Z, or a date";
    let shown: String = text.chars().take(64).collect();
    Timestamp::parse(text).map(Some).ok_or_else(|| Error::field(name, format!("{form}, got {shown:?}")))
}
