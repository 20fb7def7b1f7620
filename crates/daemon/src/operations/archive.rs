//! Whole directories as tar streams. The guest's own `tar` packs and unpacks them: the host neither reads nor writes
//! a member, so that no member can lead out of the sandbox.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hutch_api::{ByteStream, Caller, Error, ErrorKind, GuestPath, SandboxReference, Written};
use hutch_engine::agent::protocol::exec::{Ended, Exec, Outcome};
use hutch_engine::agent::protocol::files as wire;
use hutch_engine::agent::{ClientError, Event, Execution, Input};

use super::find::{Purpose, Ready};
use crate::core::Core;
use crate::metrics::Count;
use crate::owner::{Handle, Running};

/// How much of tar's complaints is kept.
const COMPLAINT: usize = 2048;

pub(super) async fn read(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    path: GuestPath,
) -> Result<ByteStream, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let running = handle.activity.begin();
    let status = machine.agent.stat(&wire::Stat { path: super::files::text(&path), follow: true }).await;
    let status = match status {
        Ok(status) => status,
        Err(error) => return Err(core.agent_error(&handle, error).await),
    };
    let (directory, member) = match status.kind {
        wire::FileKind::Directory => (path.as_str().to_owned(), ".".to_owned()),
        _ => split(path.as_str()),
    };
    let exec = Exec::argv(["tar", "--create", "--format=posix", "--file=-", "--directory", &directory, "--", &member]);
    let execution = match machine.agent.exec(&exec).await {
        Ok(execution) => execution,
        Err(error) => return Err(core.agent_error(&handle, error).await),
    };
    let mut packing = Packing { core: Arc::clone(core), handle, execution, complaint: Vec::new(), _running: running };
    // The first piece shows whether there is a tar at all: until then the answer can still be an error.
    let Some(first) = packing.next().await? else { return Ok(stream::empty().boxed()) };
    let rest = stream::try_unfold(packing, |mut packing| async move {
        let piece = packing.next().await?;
        Ok::<_, Error>(piece.map(|piece| (piece, packing)))
    });
    Ok(stream::once(async move { Ok(first) }).chain(rest).boxed())
}

pub(super) async fn write(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    path: GuestPath,
    content: ByteStream,
) -> Result<Written, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let _running = handle.activity.begin();
    let directory = wire::MakeDirectory { path: super::files::text(&path), mode: None, user: None };
    let exec = Exec { stdin: true, ..Exec::argv(["tar", "--extract", "--file=-", "--directory", path.as_str()]) };
    let unpacked = async {
        machine.agent.make_directory(&directory).await?;
        let mut execution = machine.agent.exec(&exec).await?;
        let input = execution.take_stdin().expect("the request has standard input, and nobody took it yet");
        unpack(execution, input, content).await
    };
    match unpacked.await {
        Ok((bytes, ended, complaint)) => {
            core.metrics.add(Count::FileBytesIn, bytes);
            verdict(&ended, &complaint, 0)?;
            Ok(Written { bytes, path: path.as_str().to_owned() })
        }
        Err(error) => Err(core.agent_error(&handle, error).await),
    }
}

/// A `tar` that writes an archive. Dropping it ends it.
struct Packing {
    core: Arc<Core>,
    handle: Handle,
    execution: Execution,
    complaint: Vec<u8>,
    _running: Running,
}

impl Packing {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.execution.next().await {
                Ok(Some(Event::Stdout(bytes))) => {
                    self.core.metrics.add(Count::FileBytesOut, bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Ok(Some(Event::Stderr(bytes))) => keep(&mut self.complaint, &bytes),
                // Status 1 is that a file changed while it was read: the archive is whole, as of some moment.
                Ok(Some(Event::Ended(ended))) => return verdict(&ended, &self.complaint, 1).map(|()| None),
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.core.agent_error(&self.handle, error).await),
            }
        }
    }
}

/// Feeds the content to `tar` and hears it out at the same time. Dropping this ends `tar`.
async fn unpack(
    mut execution: Execution,
    input: Input,
    mut content: ByteStream,
) -> Result<(u64, Ended, Vec<u8>), ClientError> {
    let feed = async move {
        let mut bytes = 0;
        while let Some(piece) = content.next().await {
            let piece = piece
                .map_err(|error| ClientError::Source { operation: "archive", source: std::io::Error::other(error) })?;
            bytes += piece.len() as u64;
            match input.write(piece).await {
                // It has ended; why is in its own words.
                Err(ClientError::InputClosed) => break,
                result => result?,
            }
        }
        Ok(bytes)
    };
    let hear = async {
        let mut complaint = Vec::new();
        loop {
            match execution.next().await? {
                Some(Event::Ended(ended)) => return Ok((ended, complaint)),
                Some(Event::Stderr(bytes)) => keep(&mut complaint, &bytes),
                Some(Event::Stdout(_)) => {}
                None => unreachable!("an execution ends with `Ended` or an error"),
            }
        }
    };
    // A source that breaks off fails the whole at once, and with it goes the execution. A `tar` that ends early does
    // not wait for the rest of the content.
    let mut feed = std::pin::pin!(feed);
    let mut hear = std::pin::pin!(hear);
    let mut fed = None;
    loop {
        tokio::select! {
            result = &mut feed, if fed.is_none() => fed = Some(result?),
            result = &mut hear => {
                let (ended, complaint) = result?;
                return Ok((fed.unwrap_or(0), ended, complaint));
            }
        }
    }
}

/// Whether `tar` did its work; statuses up to `tolerated` count as that.
fn verdict(ended: &Ended, complaint: &[u8], tolerated: i32) -> Result<(), Error> {
    let complaint = String::from_utf8_lossy(complaint);
    let complaint = complaint.trim();
    match &ended.outcome {
        Outcome::Exited { code } if *code <= tolerated => Ok(()),
        Outcome::Exited { .. } if complaint.contains("No space left on device") => {
            Err(Error::new(ErrorKind::StorageFull, "the sandbox's disk is full"))
        }
        Outcome::Exited { code } => {
            Err(Error::new(ErrorKind::InvalidRequest, format!("tar ended with status {code}: {complaint}")))
        }
        Outcome::FailedToStart { message, .. } => {
            Err(Error::new(ErrorKind::NotImplemented, format!("the sandbox has no usable tar: {message}")))
        }
        Outcome::OutOfMemory {} => Err(Error::new(ErrorKind::SandboxLost, "tar was killed for want of memory")),
        Outcome::Signaled { .. } | Outcome::TimedOut {} | Outcome::Cancelled {} => {
            Err(Error::new(ErrorKind::SandboxLost, "tar was killed before it was done"))
        }
    }
}

fn keep(complaint: &mut Vec<u8>, bytes: &[u8]) {
    let room = COMPLAINT.saturating_sub(complaint.len()).min(bytes.len());
    complaint.extend_from_slice(&bytes[..room]);
}

/// A path as the directory it is in and its member, in a form that no option looks like.
fn split(path: &str) -> (String, String) {
    let path = path.trim_end_matches('/');
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let directory = if directory.is_empty() { "/" } else { directory };
    (directory.to_owned(), format!("./{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_member_of_its_directory() {
        let split = |path| {
            let (directory, member) = split(path);
            format!("{directory} {member}")
        };
        assert_eq!(split("/a/b"), "/a ./b");
        assert_eq!(split("/--help"), "/ ./--help");
        assert_eq!(split("/a/b//"), "/a ./b");
    }

    #[test]
    fn a_full_disk_is_told_from_a_bad_archive() {
        let ended = |code: i32| {
            serde_json::from_value::<Ended>(serde_json::json!({ "outcome": { "kind": "exited", "code": code } }))
                .unwrap()
        };
        let kind = |code, complaint: &str| verdict(&ended(code), complaint.as_bytes(), 1).unwrap_err().kind;
        assert!(verdict(&ended(1), b"tar: ./log: file changed as we read it", 1).is_ok());
        assert_eq!(kind(2, "tar: x: Cannot write: No space left on device"), ErrorKind::StorageFull);
        assert_eq!(kind(2, "tar: This does not look like a tar archive"), ErrorKind::InvalidRequest);
    }
}
