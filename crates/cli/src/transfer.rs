//! Files and folders between this machine and a sandbox.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hutch_api::FileKind;
use hutch_api::client::{ClientError, Download};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::context::{Context, Remote};
use crate::failure::Failure;
use crate::input;
use crate::progress::Progress;

/// What was moved, for `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Moved {
    pub(crate) local: PathBuf,
    pub(crate) remote: String,
    pub(crate) bytes: u64,
}

type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// Brings a file, a folder with all that is in it, or (`-`) standard input into a sandbox.
pub(crate) async fn push(
    context: &Context,
    service: &Remote,
    sandbox: &str,
    local: &Path,
    remote: &str,
) -> Result<Moved, Failure> {
    let unreadable = |error: io::Error| Failure::because(format!("{} cannot be read", local.display()), &error);
    let failed = |error: ClientError| service.explain(&error);
    if local == Path::new("-") {
        let written =
            service.client().write_file(sandbox, remote, None, None, input::stream()).await.map_err(failed)?;
        return Ok(Moved { local: local.to_owned(), remote: written.path, bytes: written.bytes });
    }
    let metadata = local.metadata().map_err(unreadable)?;
    let title = format!("pushing {}", local.display());
    if metadata.is_dir() {
        let progress = Progress::bytes(context, &title, None);
        let content = counted(packed(local.to_owned()), progress);
        let written = service.client().write_archive(sandbox, remote, content).await.map_err(failed)?;
        return Ok(Moved { local: local.to_owned(), remote: written.path, bytes: written.bytes });
    }
    let remote = named_like(local, remote)?;
    let file = File::open(local).map_err(unreadable)?;
    // A pipe or a device has no length to announce.
    let length = metadata.is_file().then_some(metadata.len());
    let content = counted(pieces_of(file, length), Progress::bytes(context, &title, length));
    let mode = Some(metadata.permissions().mode() & 0o777);
    let written = service.client().write_file(sandbox, &remote, mode, length, content).await.map_err(failed)?;
    Ok(Moved { local: local.to_owned(), remote: written.path, bytes: written.bytes })
}

/// Brings a file or a folder out of a sandbox; a file goes to standard output for `-`.
pub(crate) async fn pull(
    context: &Context,
    service: &Remote,
    sandbox: &str,
    remote: &str,
    local: &Path,
) -> Result<Moved, Failure> {
    let failed = |error: ClientError| service.explain(&error);
    let entry = service.client().stat_file(sandbox, remote).await.map_err(failed)?;
    let to_output = local == Path::new("-");
    if entry.kind == FileKind::Directory && !to_output {
        let mut download = service.client().read_archive(sandbox, remote).await.map_err(failed)?;
        let progress = Progress::bytes(context, &format!("pulling {remote}"), None);
        let bytes = unpack(service, &mut download, &progress, local).await?;
        return Ok(Moved { local: local.to_owned(), remote: remote.to_owned(), bytes });
    }
    let mut download = service.client().read_file(sandbox, remote, None).await.map_err(failed)?;
    let progress = Progress::bytes(context, &format!("pulling {remote}"), download.length());
    if to_output {
        let bytes = copy(service, &mut download, &progress, &mut io::stdout().lock(), local).await?;
        return Ok(Moved { local: local.to_owned(), remote: remote.to_owned(), bytes });
    }
    let local = if local.is_dir() { local.join(&entry.name) } else { local.to_owned() };
    let bytes = pull_file(service, &mut download, &progress, &local, entry.mode & 0o777).await?;
    Ok(Moved { local, remote: remote.to_owned(), bytes })
}

/// Writes beside the target and renames at the end: a transfer that breaks off leaves nothing half.
async fn pull_file(
    service: &Remote,
    download: &mut Download,
    progress: &Progress,
    local: &Path,
    mode: u32,
) -> Result<u64, Failure> {
    let unwritable = |error: &io::Error| Failure::because(format!("{} cannot be written", local.display()), error);
    let folder = local.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| unwritable(&error))?;
    // A device or pipe is written to, not replaced.
    if local.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let mut file = File::options().write(true).open(local).map_err(|error| unwritable(&error))?;
        return copy(service, download, progress, &mut file, local).await;
    }
    let permissions = std::fs::Permissions::from_mode(mode);
    let beside = tempfile::Builder::new().prefix(".hutch-").permissions(permissions).tempfile_in(folder);
    let mut beside = beside.map_err(|error| unwritable(&error))?;
    let bytes = copy(service, download, progress, beside.as_file_mut(), local).await?;
    beside.persist(local).map_err(|error| unwritable(&error.error))?;
    Ok(bytes)
}

async fn copy(
    service: &Remote,
    download: &mut Download,
    progress: &Progress,
    sink: &mut dyn Write,
    local: &Path,
) -> Result<u64, Failure> {
    let mut bytes = 0;
    while let Some(piece) = download.next().await.map_err(|error| service.explain(&error))? {
        match sink.write_all(&piece) {
            // A reader that has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(bytes),
            other => {
                other.map_err(|error| Failure::because(format!("{} cannot be written", local.display()), &error))?;
            }
        }
        progress.advance(piece.len());
        bytes += piece.len() as u64;
    }
    match sink.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::because(format!("{} cannot be written", local.display()), &error))
        }
        _ => Ok(bytes),
    }
}

/// `remote`, or a name in it when it is written as a folder.
fn named_like(local: &Path, remote: &str) -> Result<String, Failure> {
    if !remote.ends_with('/') {
        return Ok(remote.to_owned());
    }
    let name = local.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::new(format!("{} has no name to use in {remote}", local.display())))?;
    Ok(format!("{remote}{name}"))
}

fn counted(content: Pieces, progress: Progress) -> Pieces {
    content
        .inspect(move |piece| {
            if let Ok(piece) = piece {
                progress.advance(piece.len());
            }
        })
        .boxed()
}

/// A file in pieces, read by a thread that may block. One that grew is cut at the announced length.
fn pieces_of(file: File, length: Option<u64>) -> Pieces {
    produced(move |sink| {
        let mut sink = io::BufWriter::with_capacity(256 << 10, sink);
        io::copy(&mut file.take(length.unwrap_or(u64::MAX)), &mut sink)?;
        sink.flush()
    })
}

/// A folder as a tar archive, its members relative to it. Symbolic links stay links.
fn packed(folder: PathBuf) -> Pieces {
    produced(move |sink| {
        let mut archive = tar::Builder::new(io::BufWriter::with_capacity(64 << 10, sink));
        archive.follow_symlinks(false);
        archive.append_dir_all(".", &folder)?;
        archive.into_inner()?.flush()
    })
}

/// What `produce` writes, as a stream.
fn produced(produce: impl FnOnce(&mut Sink) -> io::Result<()> + Send + 'static) -> Pieces {
    let (sender, receiver) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let mut sink = Sink(sender);
        if let Err(error) = produce(&mut sink) {
            // Nobody listens any more when the transfer has failed already.
            let _ = sink.0.blocking_send(Err(error));
        }
    });
    stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|piece| (piece, receiver)) }).boxed()
}

struct Sink(mpsc::Sender<io::Result<Bytes>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        self.0.blocking_send(piece).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks an archive that a guest made. The guest is not trusted: members with `..`, absolute paths or through links
/// do not leave the folder, and devices are not made.
async fn unpack(service: &Remote, download: &mut Download, progress: &Progress, folder: &Path) -> Result<u64, Failure> {
    let unwritable = |error: &io::Error| Failure::because(format!("{} cannot be unpacked", folder.display()), error);
    std::fs::create_dir_all(folder).map_err(|error| unwritable(&error))?;
    let (sender, receiver) = mpsc::channel::<Bytes>(4);
    let target = folder.to_owned();
    let unpacking = tokio::task::spawn_blocking(move || extract(Source { receiver, piece: Bytes::new() }, &target));
    let mut bytes = 0;
    let mut failure = None;
    loop {
        match download.next().await {
            Ok(Some(piece)) => {
                progress.advance(piece.len());
                bytes += piece.len() as u64;
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                failure = Some(service.explain(&error));
                break;
            }
        }
    }
    drop(sender);
    let unpacked = unpacking.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    match failure {
        Some(failure) => Err(failure),
        None => unpacked.map(|()| bytes).map_err(|error| unwritable(&error)),
    }
}

fn extract(source: Source, folder: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(source);
    archive.set_preserve_permissions(false);
    archive.set_preserve_ownerships(false);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link() {
            entry.unpack_in(folder)?;
        }
    }
    Ok(())
}

/// The other end of a download, for a thread that may block.
struct Source {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl io::Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_the_sandbox_takes_the_files_name() {
        assert_eq!(named_like(Path::new("a/b.csv"), "/root/").unwrap(), "/root/b.csv");
        assert_eq!(named_like(Path::new("a/b.csv"), "/root/c").unwrap(), "/root/c");
        assert!(named_like(Path::new("/"), "/root/").is_err());
    }

    #[tokio::test]
    async fn an_archive_of_a_hostile_guest_stays_in_its_folder() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        std::fs::create_dir(&folder).unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |name: &str, kind: tar::EntryType, link: Option<&str>, content: &[u8]| {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            // Written as it is: the library itself refuses to write `..`.
            header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            if let Some(link) = link {
                header.set_link_name_literal(link).unwrap();
            }
            header.set_cksum();
            archive.append(&header, content).unwrap();
        };
        add("../escaped", tar::EntryType::Regular, None, b"x");
        add("door", tar::EntryType::Symlink, Some(".."), b"");
        add("door/escaped", tar::EntryType::Regular, None, b"x");
        add("device", tar::EntryType::Char, None, b"");
        add("kept", tar::EntryType::Regular, None, b"kept");
        let bytes = archive.into_inner().unwrap();
        let (sender, receiver) = mpsc::channel(1);
        sender.send(Bytes::from(bytes)).await.unwrap();
        drop(sender);
        let target = folder.clone();
        let source = Source { receiver, piece: Bytes::new() };
        // Whether it refuses the whole or leaves members out: nothing escapes.
        drop(tokio::task::spawn_blocking(move || extract(source, &target)).await.unwrap());
        assert!(!outer.path().join("escaped").exists());
        assert!(!folder.join("device").exists());
    }

    #[tokio::test]
    async fn a_folder_survives_packing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/file"), vec![7; 300_000]).unwrap();
        std::os::unix::fs::symlink("sub/file", folder.path().join("link")).unwrap();
        let mut content = packed(folder.path().to_owned());
        let (sender, receiver) = mpsc::channel(64);
        while let Some(piece) = content.next().await {
            sender.send(piece.unwrap()).await.unwrap();
        }
        drop(sender);
        let back = tempfile::tempdir().unwrap();
        let target = back.path().to_owned();
        let source = Source { receiver, piece: Bytes::new() };
        tokio::task::spawn_blocking(move || extract(source, &target)).await.unwrap().unwrap();
        assert_eq!(std::fs::read(back.path().join("sub/file")).unwrap(), vec![7; 300_000]);
        assert_eq!(std::fs::read_link(back.path().join("link")).unwrap(), Path::new("sub/file"));
    }
}
