//! A request on its way into an operation: what the table's columns are read from.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::query::Query;
use crate::{Caller, Error, ErrorKind, GuestPath, PageRequest, SandboxReference, SnapshotReference};

/// What a request says apart from its body; its key has been checked.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) caller: Option<Caller>,
    pub(super) params: BTreeMap<String, String>,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
}

impl Head {
    /// Who calls. An operation that is open has no caller; asking for one there is refused like a missing key.
    pub(super) fn caller(&self) -> Result<&Caller, Error> {
        let missing = || Error::new(ErrorKind::Unauthenticated, "this operation needs an API key");
        self.caller.as_ref().ok_or_else(missing)
    }

    /// A placeholder of the path.
    pub(super) fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// The sandbox that the path names.
    pub(super) fn sandbox(&self) -> Result<SandboxReference, Error> {
        SandboxReference::parse(self.param("id"))
    }

    /// The snapshot that the path names.
    pub(super) fn snapshot(&self) -> Result<SnapshotReference, Error> {
        SnapshotReference::parse(self.param("id"))
    }

    /// The file that the query names.
    pub(super) fn path(&self) -> Result<GuestPath, Error> {
        let missing = || Error::field("path", "is missing: give an absolute path in the query, like ?path=/tmp/file");
        GuestPath::parse("path", self.query.one("path").ok_or_else(missing)?)
    }

    /// The page that the query asks for, of a list of resources.
    pub(super) fn page(&self) -> Result<PageRequest, Error> {
        self.page_of(PageRequest::DEFAULT_LIMIT, PageRequest::MAX_LIMIT)
    }

    /// The page that the query asks for, of a list with its own default and maximum.
    pub(super) fn page_of(&self, default: u64, max: u64) -> Result<PageRequest, Error> {
        let limit = self.query.number("limit")?.unwrap_or(default).clamp(1, max);
        Ok(PageRequest { limit, offset: self.query.number("offset")?.unwrap_or(0) })
    }
}
