//! Files of a sandbox: every path is resolved by the guest, in the guest.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use hutch_api::{
    ByteStream, Caller, Created, Deleted, Error, ErrorKind, FileBody, FileEntry, FileKind, GuestPath, MakeDirectory,
    MoveFile, Moved, Page, PageRequest, ReadFile, RemoveFile, SandboxReference, Timestamp, WriteFile, Written,
};
use hutch_engine::agent::protocol::files as wire;
use hutch_engine::agent::protocol::text::ByteText;
use hutch_engine::agent::{ClientError, Download};

use super::find::{Purpose, Ready};
use crate::core::Core;
use crate::metrics::Count;
use crate::owner::Handle;

/// The most bytes of a file that says it is empty.
const MOST_UNSIZED: usize = 4 << 20;
/// The most entries of a directory that are listed; they have to be sorted to be paged.
const MOST_ENTRIES: usize = 200_000;

pub(super) async fn write(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    file: WriteFile,
    content: ByteStream,
) -> Result<Written, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let _running = handle.activity.begin();
    let request = wire::WriteFile {
        path: text(&file.path),
        mode: file.mode,
        user: None,
        size: file.length,
        max_bytes: None,
        sync: false,
    };
    let content = content.map_err(std::io::Error::other);
    match machine.agent.write_file(&request, content).await {
        Ok(bytes) => {
            core.metrics.add(Count::FileBytesIn, bytes);
            Ok(Written { bytes, path: file.path.as_str().to_owned() })
        }
        Err(error) => Err(core.agent_error(&handle, error).await),
    }
}

pub(super) async fn read(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    file: ReadFile,
) -> Result<FileBody, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let running = handle.activity.begin();
    let path = text(&file.path);
    let part = match file.range {
        None => None,
        Some(range) => {
            let status = machine.agent.stat(&wire::Stat { path: path.clone(), follow: true }).await;
            let status = match status {
                Ok(status) => status,
                Err(error) => return Err(core.agent_error(&handle, error).await),
            };
            Some(range.resolve(status.size).ok_or_else(|| Error::range_outside(status.size))?)
        }
    };
    let (offset, length) = part.map_or((0, None), |(offset, length)| (offset, Some(length)));
    let download = match machine.agent.read_file(&wire::ReadFile { path, offset, length }).await {
        Ok(download) => download,
        Err(error) => return Err(core.agent_error(&handle, error).await),
    };
    let size = download.status().map_or(0, |status| status.size);
    if size == 0 && part.is_none() {
        return unsized_file(core, &handle, download).await;
    }
    let length = length.unwrap_or(size);
    let core = Arc::clone(core);
    // The machine's connection and the count of what runs live as long as the download does.
    let state = (download, core, handle, running);
    let content = futures_util::stream::try_unfold(state, |mut state| async move {
        match state.0.next().await {
            Ok(Some(bytes)) => {
                state.1.metrics.add(Count::FileBytesOut, bytes.len() as u64);
                Ok::<_, Error>(Some((bytes, state)))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(state.1.agent_error(&state.2, error).await),
        }
    });
    Ok(FileBody { size, offset, length, content: content.boxed() })
}

/// A file that says it is empty: it is, or its content is made by the kernel when it is read, as in `/proc`.
async fn unsized_file(
    core: &Arc<Core>,
    handle: &Handle,
    download: Download<wire::Transferred>,
) -> Result<FileBody, Error> {
    let content = match download.collect(MOST_UNSIZED).await {
        Ok(content) => content,
        Err(ClientError::OutputTooLarge { limit }) => {
            let message = format!("the file has no size of its own and yields more than {limit} bytes");
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Err(error) => return Err(core.agent_error(handle, error).await),
    };
    let size = content.len() as u64;
    core.metrics.add(Count::FileBytesOut, size);
    let content = futures_util::stream::once(async move { Ok(content) }).boxed();
    Ok(FileBody { size, offset: 0, length: size, content })
}

pub(super) async fn remove(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    file: RemoveFile,
) -> Result<Deleted, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let request = wire::Delete { path: text(&file.path), recursive: file.recursive };
    match machine.agent.delete(&request).await {
        Ok(()) => Ok(Deleted { path: file.path.as_str().to_owned(), deleted: true }),
        Err(error) => Err(core.agent_error(&handle, error).await),
    }
}

pub(super) async fn stat(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    path: GuestPath,
) -> Result<FileEntry, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    match machine.agent.stat(&wire::Stat { path: text(&path), follow: false }).await {
        Ok(status) => Ok(entry(path.as_str(), &status)),
        Err(error) => Err(core.agent_error(&handle, error).await),
    }
}

pub(super) async fn list(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    path: GuestPath,
    page: PageRequest,
) -> Result<Page<FileEntry>, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let listed = async {
        let listing = machine.agent.list(&wire::List { path: text(&path), depth: 1 }).await?;
        listing.collect(MOST_ENTRIES).await
    };
    let mut entries = match listed.await {
        Ok(entries) => entries,
        Err(ClientError::OutputTooLarge { limit }) => {
            let message = format!("the directory has more than {limit} entries; list it with a command");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        Err(error) => return Err(core.agent_error(&handle, error).await),
    };
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let base = path.as_str().trim_end_matches('/');
    let total = entries.len() as u64;
    let (offset, limit) = (usize::try_from(page.offset), usize::try_from(page.limit));
    let part = entries.iter().skip(offset.unwrap_or(usize::MAX)).take(limit.unwrap_or(usize::MAX));
    let shown =
        part.map(|found| entry(&format!("{base}/{}", String::from_utf8_lossy(found.path.as_bytes())), &found.status));
    Ok(Page::new(shown.collect(), total, page))
}

pub(super) async fn rename(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    request: MoveFile,
) -> Result<Moved, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let wanted = wire::Move { from: text(&request.from), to: text(&request.to), replace: request.overwrite };
    match machine.agent.rename(&wanted).await {
        Ok(()) => Ok(Moved { path: request.to.as_str().to_owned() }),
        Err(error) => Err(core.agent_error(&handle, error).await),
    }
}

pub(super) async fn make_directory(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    request: MakeDirectory,
) -> Result<Created, Error> {
    let Ready { handle, machine, .. } = core.ready_for(caller, reference, Purpose::Files).await?;
    let path = text(&request.path);
    let before = machine.agent.stat(&wire::Stat { path: path.clone(), follow: true }).await;
    let was_there = before.is_ok_and(|status| status.kind == wire::FileKind::Directory);
    match machine.agent.make_directory(&wire::MakeDirectory { path, mode: request.mode, user: None }).await {
        Ok(()) => Ok(Created { path: request.path.as_str().to_owned(), created: !was_there }),
        Err(error) => Err(core.agent_error(&handle, error).await),
    }
}

/// A path in the agent's type.
pub(super) fn text(path: &GuestPath) -> ByteText {
    ByteText::from(path.as_str())
}

fn entry(path: &str, status: &wire::Status) -> FileEntry {
    let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
    FileEntry {
        name: name.to_owned(),
        path: path.to_owned(),
        kind: match status.kind {
            wire::FileKind::File => FileKind::File,
            wire::FileKind::Directory => FileKind::Directory,
            wire::FileKind::Link => FileKind::Symlink,
            wire::FileKind::Special => FileKind::Other,
        },
        size: status.size,
        mode: status.mode,
        uid: status.uid,
        gid: status.gid,
        modified_at: modified(status.modified_ns),
        target: status.target.as_ref().map(|target| String::from_utf8_lossy(target.as_bytes()).into_owned()),
    }
}

/// A guest may give its files any time; what no date can say is shown as the nearest that one can.
fn modified(nanoseconds: i64) -> Timestamp {
    let epoch = Timestamp::from_unix_milliseconds(0).expect("1970 is a year that RFC 3339 can write");
    Timestamp::from_unix_milliseconds(nanoseconds.div_euclid(1_000_000)).unwrap_or(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(kind: wire::FileKind) -> wire::Status {
        wire::Status {
            kind,
            size: 3,
            mode: 0o644,
            uid: 0,
            gid: 0,
            modified_ns: 1_700_000_000_070_000_001,
            links: 1,
            allocated: 0,
            target: None,
        }
    }

    #[test]
    fn an_entry_is_named_by_the_last_part_of_its_path() {
        let entry = |path| entry(path, &status(wire::FileKind::File));
        assert_eq!(entry("/a/b c").name, "b c");
        assert_eq!(entry("/a/b/").name, "b");
        assert_eq!(entry("/").name, "/");
        assert_eq!(entry("/a").modified_at.to_string(), "2023-11-14T22:13:20.070Z");
    }

    #[test]
    fn times_that_no_date_can_say_are_borne() {
        assert!(modified(i64::MIN).to_string().starts_with("1677-"));
        assert!(modified(i64::MAX).to_string().starts_with("2262-"));
    }
}
