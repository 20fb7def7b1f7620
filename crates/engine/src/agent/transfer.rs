//! Content and lists on their way from the guest.

use std::marker::PhantomData;

use bytes::Bytes;
use futures_util::Stream;
use hutch_protocol::files::{Entries, Entry, Listed, Status};
use hutch_protocol::frame::{Body, Channel};
use serde::de::DeserializeOwned;

use super::client::Handle;
use super::error::ClientError;
use super::stream::{Delivery, Source};

/// Bytes of content that may be under way: enough to keep both ends busy.
const WINDOW: u32 = 1 << 20;

/// The frame that gives credit back for bytes from this source.
pub(super) fn credit(source: Source, bytes: u32) -> Body<'static> {
    let channel = if source == Source::Error { Channel::Error } else { Channel::Output };
    Body::Credit { channel, bytes }
}

/// Content that comes from the guest. Dropping it before the end stops the agent. `T` is what the agent says
/// at the end.
#[derive(Debug)]
pub struct Download<T> {
    handle: Handle,
    status: Option<Status>,
    end: Option<T>,
    marker: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Download<T> {
    pub(super) fn without_status(handle: Handle) -> Self {
        if let Some(bytes) = handle.cell.widen(WINDOW) {
            handle.connection.control(handle.stream, credit(Source::Output, bytes));
        }
        Self { handle, status: None, end: None, marker: PhantomData }
    }

    pub(super) async fn with_status(handle: Handle) -> Result<Self, ClientError> {
        let mut download = Self::without_status(handle);
        match download.handle.next_in_time().await? {
            Delivery::Bytes(Source::Item, json, _) => {
                download.status = Some(download.handle.decode_item(&json)?);
                Ok(download)
            }
            Delivery::Answer(answer) => {
                download.end = Some(download.handle.decode(answer)?);
                Ok(download)
            }
            Delivery::Bytes(Source::Output | Source::Error, _, _) => {
                Err(ClientError::Answer { operation: "read file", source: serde::de::Error::custom("no status") })
            }
        }
    }

    /// What the file was when it was opened; `None` for an archive.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// The next piece of content; `None` when all has come. Only then was the transfer a success.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while self.end.is_none() {
            match self.handle.next_in_time().await? {
                Delivery::Bytes(Source::Output, bytes, _) => return Ok(Some(bytes)),
                Delivery::Bytes(Source::Item | Source::Error, _, _) => {}
                Delivery::Answer(answer) => self.end = Some(self.handle.decode(answer)?),
            }
        }
        Ok(None)
    }

    /// What the agent said at the end; `None` before [`Download::next`] returned `None`.
    pub fn end(&self) -> Option<&T> {
        self.end.as_ref()
    }

    /// The rest of the content as a stream; after an error it ends.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, ClientError>> + Send + 'static
    where
        T: Send + 'static,
    {
        futures_util::stream::try_unfold(self, |mut download| async move {
            let piece = download.next().await?;
            Ok(piece.map(|bytes| (bytes, download)))
        })
    }

    /// Gathers all content; fails when it is larger than `limit` bytes.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, ClientError> {
        let mut content = bytes::BytesMut::new();
        while let Some(bytes) = self.next().await? {
            if content.len() + bytes.len() > limit {
                return Err(ClientError::OutputTooLarge { limit });
            }
            content.extend_from_slice(&bytes);
        }
        Ok(content.freeze())
    }
}

/// A directory's content on its way from the guest. Dropping it before the end stops the agent.
#[derive(Debug)]
pub struct Listing {
    handle: Handle,
    end: Option<Listed>,
}

impl Listing {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, end: None }
    }

    /// The next entries; `None` when all have come.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, ClientError> {
        while self.end.is_none() {
            match self.handle.next_in_time().await? {
                Delivery::Bytes(Source::Item, json, _) => {
                    return self.handle.decode_item::<Entries>(&json).map(|entries| Some(entries.entries));
                }
                Delivery::Bytes(Source::Output | Source::Error, _, _) => {}
                Delivery::Answer(answer) => self.end = Some(self.handle.decode(answer)?),
            }
        }
        Ok(None)
    }

    /// What the agent said at the end; `None` before [`Listing::next`] returned `None`.
    pub fn end(&self) -> Option<&Listed> {
        self.end.as_ref()
    }

    /// Gathers all entries, sorted by path; fails with [`ClientError::OutputTooLarge`] beyond `limit` entries.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<Entry>, ClientError> {
        let mut all = Vec::new();
        while let Some(mut entries) = self.next().await? {
            if all.len() + entries.len() > limit {
                return Err(ClientError::OutputTooLarge { limit });
            }
            all.append(&mut entries);
        }
        all.sort_by(|one: &Entry, other| one.path.cmp(&other.path));
        Ok(all)
    }
}
