//! Files.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http::HeaderValue;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::call::Call;
use super::error::ClientError;
use super::pool::Client;
use crate::{ByteRange, Created, Deleted, FileEntry, MakeDirectory, MoveFile, Moved, OperationId, Written};

/// A file on its way from the sandbox.
#[derive(Debug)]
pub struct Download {
    client: Client,
    body: Incoming,
    length: Option<u64>,
}

/// An error of what is sent, so that it can be told from an error of the connection.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct SourceError(Arc<io::Error>);

impl SourceError {
    pub(super) fn to_io(&self) -> io::Error {
        io::Error::new(self.0.kind(), self.0.to_string())
    }
}

impl Client {
    /// Writes a file with permission bits `mode`. With `length` it is announced, without it goes in chunks.
    pub async fn write_file(
        &self,
        sandbox: &str,
        path: &str,
        mode: Option<u32>,
        length: Option<u64>,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Written, ClientError> {
        let mut call = on_path(OperationId::WriteFile, sandbox, path);
        if let Some(mode) = mode {
            call = call.query("mode", format!("{mode:o}"));
        }
        self.fetch(call.stream(marked(content), length)).await
    }

    /// Reads a file or a part of it.
    pub async fn read_file(
        &self,
        sandbox: &str,
        path: &str,
        range: Option<ByteRange>,
    ) -> Result<Download, ClientError> {
        let mut call = on_path(OperationId::ReadFile, sandbox, path);
        if let Some(range) = range {
            let text = match range {
                ByteRange::From { first, last: Some(last) } => format!("bytes={first}-{last}"),
                ByteRange::From { first, last: None } => format!("bytes={first}-"),
                ByteRange::Last(count) => format!("bytes=-{count}"),
            };
            call = call.header("range", HeaderValue::from_str(&text).expect("digits are ASCII"));
        }
        self.download(call).await
    }

    /// Removes a file; a directory with all that is in it only when `recursive`.
    pub async fn remove_file(&self, sandbox: &str, path: &str, recursive: bool) -> Result<Deleted, ClientError> {
        self.fetch(on_path(OperationId::RemoveFile, sandbox, path).query("recursive", recursive)).await
    }

    /// What a path names.
    pub async fn stat_file(&self, sandbox: &str, path: &str) -> Result<FileEntry, ClientError> {
        self.fetch(on_path(OperationId::StatFile, sandbox, path)).await
    }

    /// Everything that a directory holds.
    pub async fn list_files(&self, sandbox: &str, path: &str) -> Result<Vec<FileEntry>, ClientError> {
        self.every_page(|| on_path(OperationId::ListFiles, sandbox, path)).await
    }

    /// Gives a file or directory a new path.
    pub async fn move_file(&self, sandbox: &str, request: &MoveFile) -> Result<Moved, ClientError> {
        self.fetch(Call::new(OperationId::MoveFile).param("id", sandbox).json(request)).await
    }

    /// Makes a directory and its missing parents.
    pub async fn make_directory(&self, sandbox: &str, request: &MakeDirectory) -> Result<Created, ClientError> {
        self.fetch(Call::new(OperationId::MakeDirectory).param("id", sandbox).json(request)).await
    }

    /// A directory as a tar archive.
    pub async fn read_archive(&self, sandbox: &str, path: &str) -> Result<Download, ClientError> {
        self.download(on_path(OperationId::ReadArchive, sandbox, path)).await
    }

    /// Unpacks a tar archive into a directory.
    pub async fn write_archive(
        &self,
        sandbox: &str,
        path: &str,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Written, ClientError> {
        self.fetch(on_path(OperationId::WriteArchive, sandbox, path).stream(marked(content), None)).await
    }

    async fn download(&self, call: Call) -> Result<Download, ClientError> {
        let response = self.send(call).await?.response;
        let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Download { client: self.clone(), body: response.into_body(), length })
    }
}

impl Download {
    /// How many bytes will come, when the service says.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next piece; `None` at the end. A download that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(self.client.broken(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => return Ok(Some(piece)),
                    // An empty piece or trailers: nothing of the file.
                    _ => {}
                },
            }
        }
    }
}

fn on_path(id: OperationId, sandbox: &str, path: &str) -> Call {
    Call::new(id).param("id", sandbox).query("path", path)
}

fn marked(content: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> super::call::Source {
    content.map_err(|error| io::Error::other(SourceError(Arc::new(error)))).boxed()
}
