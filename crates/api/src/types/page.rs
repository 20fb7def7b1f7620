//! Pages of a list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// How many items at most. The adapter clamps it to the operation's maximum.
    pub limit: u64,
    /// How many items to leave out at the beginning.
    pub offset: u64,
}

impl PageRequest {
    /// Items of a page of resources when the request does not say.
    pub const DEFAULT_LIMIT: u64 = 50;
    /// Items of a page of resources at most; more is clamped, not refused.
    pub const MAX_LIMIT: u64 = 500;
    /// Entries of a directory when the request does not say.
    pub const DEFAULT_ENTRIES: u64 = 1000;
    /// Entries of a directory at most.
    pub const MAX_ENTRIES: u64 = 10_000;

    /// Cuts this page out of a whole list that is in memory.
    pub fn cut<T>(self, all: Vec<T>) -> Page<T> {
        let total = all.len() as u64;
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Page::new(all.into_iter().skip(offset).take(limit).collect(), total, self)
    }
}

/// A part of a list, and where in the list it lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Page<T> {
    /// The items.
    pub data: Vec<T>,
    /// Where in the list they lie.
    pub pagination: Pagination,
}

/// Where in the list a page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pagination {
    /// Items in the whole list.
    pub total: u64,
    /// Items asked for, after clamping.
    pub limit: u64,
    /// Items left out before this page.
    pub offset: u64,
    /// Items in this page.
    pub count: u64,
}

impl<T> Page<T> {
    /// A page of `data` out of `total` items, as `request` asked.
    pub fn new(data: Vec<T>, total: u64, request: PageRequest) -> Self {
        let count = data.len() as u64;
        Self { data, pagination: Pagination { total, limit: request.limit, offset: request.offset, count } }
    }
}
