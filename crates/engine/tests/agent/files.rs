//! The table of files.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher as _};

use bytes::Bytes;
use futures_util::stream;
use hutch_engine::agent::ClientError;
use hutch_protocol::exec::{Exec, Outcome};
use hutch_protocol::files::{Archive, Delete, FileKind, List, MakeDirectory, Move, ReadFile, Stat, Status, WriteFile};
use hutch_protocol::{ByteText, Code};

use super::lifecycle::peak_memory;
use super::rig::{LIMIT, Rig};

fn write(path: impl Into<ByteText>) -> WriteFile {
    WriteFile { path: path.into(), mode: None, user: None, size: None, max_bytes: None, sync: false }
}

fn read(path: impl Into<ByteText>) -> ReadFile {
    ReadFile { path: path.into(), offset: 0, length: None }
}

/// The kind of failure; a panic for any other error.
fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Result<T, Code> {
    result.map_err(|error| error.failure().unwrap_or_else(|| panic!("{error:?}")).code)
}

impl Rig {
    async fn put(&self, request: &WriteFile, content: impl Into<Bytes>) -> Result<u64, Code> {
        code(self.client.write_file(request, stream::iter([Ok(content.into())])).await)
    }

    async fn get(&self, request: &ReadFile) -> Result<Bytes, Code> {
        match self.client.read_file(request).await {
            Ok(download) => code(download.collect(LIMIT).await),
            Err(error) => code(Err(error)),
        }
    }

    async fn status(&self, path: impl Into<ByteText>) -> Result<Status, Code> {
        code(self.client.stat(&Stat { path: path.into(), follow: false }).await)
    }

    async fn names(&self, path: &str, depth: u32) -> Result<Vec<ByteText>, Code> {
        let listing = self.client.list(&List { path: path.into(), depth }).await;
        let entries = match listing {
            Ok(listing) => listing.collect(100_000).await,
            Err(error) => Err(error),
        };
        Ok(code(entries)?.into_iter().map(|entry| entry.path).collect())
    }

    async fn delete(&self, path: impl Into<ByteText>, recursive: bool) -> Result<(), Code> {
        code(self.client.delete(&Delete { path: path.into(), recursive }).await)
    }

    async fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), Code> {
        code(self.client.rename(&Move { from: from.into(), to: to.into(), replace }).await)
    }
}

#[tokio::test]
async fn content_and_mode_survive() {
    let rig = Rig::new().await;
    let path = rig.path("new/deep/directory/file");
    let every: Vec<u8> = (0..=255).cycle().take(700_001).collect();
    assert_eq!(rig.put(&write(path.as_str()), every.clone()).await, Ok(700_001));
    assert_eq!(rig.get(&read(path.as_str())).await.unwrap(), every);
    let status = rig.status(path.as_str()).await.unwrap();
    assert_eq!((status.kind, status.size, status.mode, status.uid), (FileKind::File, 700_001, 0o644, 0));
    assert_eq!(rig.status(rig.path("new/deep")).await.unwrap().mode, 0o755);

    // Replacing keeps mode and owner unless others are asked for.
    rig.shell(&format!("chmod 4751 {path}; chown 1234:5678 {path}; chmod 4751 {path}")).await;
    assert_eq!(rig.put(&write(path.as_str()), "short").await, Ok(5));
    let status = rig.status(path.as_str()).await.unwrap();
    assert_eq!((status.size, status.mode, status.uid, status.gid), (5, 0o4751, 1234, 5678));
    let request = WriteFile { mode: Some(0o600), user: Some("nobody".into()), sync: true, ..write(path.as_str()) };
    assert_eq!(rig.put(&request, "").await, Ok(0));
    let status = rig.status(path.as_str()).await.unwrap();
    assert_eq!((status.size, status.mode, status.uid), (0, 0o600, 65534));
    assert_eq!(rig.get(&read(path.as_str())).await.unwrap(), "");

    // Directories that are made on the way belong to the owner too.
    let request = WriteFile { user: Some("1:2".into()), ..write(rig.path("own/a/b")) };
    rig.put(&request, "x").await.unwrap();
    let status = rig.status(rig.path("own/a")).await.unwrap();
    assert_eq!((status.uid, status.gid, status.kind), (1, 2, FileKind::Directory));
    assert_eq!(rig.put(&WriteFile { user: Some("no-such".into()), ..write("/x") }, "").await, Err(Code::UserNotFound));
    rig.finish().await;
}

#[tokio::test]
async fn names_of_every_kind() {
    let rig = Rig::new().await;
    let long = "n".repeat(255);
    let names: BTreeSet<ByteText> = [
        &b"with\nnewline"[..],
        b"-rf",
        b"--help",
        b".hidden",
        "🦀 emoji é".as_bytes(),
        b"%2F%2e%2e",
        b" leading and trailing ",
        b"quote'\"`$(touch x)`;&|<>*?[a]\\",
        b"no utf-8 \xff\xfe",
        b"tab\tand\x01control",
        long.as_bytes(),
        b"...",
    ]
    .into_iter()
    .map(ByteText::from)
    .collect();
    let at = |name: &ByteText| {
        let mut path = rig.path("names/").into_bytes();
        path.extend_from_slice(name.as_bytes());
        ByteText::from(path)
    };
    for name in &names {
        rig.put(&write(at(name)), name.as_bytes().to_vec()).await.unwrap();
    }
    for name in &names {
        assert_eq!(rig.get(&read(at(name))).await.unwrap(), name.as_bytes(), "{name:?}");
        assert_eq!(rig.status(at(name)).await.unwrap().size, name.as_bytes().len() as u64);
    }
    assert_eq!(rig.names(&rig.path("names"), 1).await.unwrap().into_iter().collect::<BTreeSet<_>>(), names);
    for name in &names {
        let from = at(name);
        let mut to = from.as_bytes()[..from.as_bytes().len() - name.as_bytes().len()].to_vec();
        to.extend_from_slice(b"moved/");
        to.extend_from_slice(name.as_bytes());
        let request = Move { from, to: to.clone().into(), replace: false };
        rig.client.rename(&request).await.unwrap();
        rig.delete(to, false).await.unwrap();
    }
    assert_eq!(rig.names(&rig.path("names"), 2).await.unwrap(), [ByteText::from("moved")]);
    let too_long = rig.path(&"n".repeat(256));
    assert_eq!(rig.put(&write(too_long.as_str()), "").await, Err(Code::InvalidPath));
    assert_eq!(rig.put(&write(format!("/{}", "a/".repeat(3000) + "b")), "").await, Err(Code::InvalidPath));
    rig.finish().await;
}

#[tokio::test]
async fn what_cannot_be_done_says_why_and_leaves_nothing() {
    let rig = Rig::new().await;
    let at = |name: &str| rig.path(name);
    rig.put(&write(at("file")), "content").await.unwrap();
    rig.shell(&format!(
        "cd {}; mkdir -p dir/full; touch dir/full/x; ln -s loop loop; mkfifo fifo; ln -s /nowhere/at/all dangling; ln -s dir link",
        rig.directory
    ))
    .await;
    for path in ["relative", "", "./x", "~"] {
        assert_eq!(rig.get(&read(path)).await, Err(Code::InvalidPath), "{path:?}");
        assert_eq!(rig.put(&write(path), "").await, Err(Code::InvalidPath), "{path:?}");
        assert_eq!(rig.delete(path, true).await, Err(Code::InvalidPath), "{path:?}");
    }
    assert_eq!(rig.get(&read(at("a\0b"))).await, Err(Code::InvalidPath));
    assert_eq!(rig.get(&read(at("missing"))).await, Err(Code::NotFound));
    assert_eq!(rig.get(&read(at("dir"))).await, Err(Code::IsADirectory));
    assert_eq!(rig.get(&read(at("file/x"))).await, Err(Code::NotADirectory));
    assert_eq!(rig.get(&read(at("loop"))).await, Err(Code::InvalidPath));
    assert_eq!(rig.get(&read(at("fifo"))).await, Err(Code::InvalidPath));
    assert_eq!(rig.get(&read("/dev/zero")).await, Err(Code::InvalidPath));
    assert_eq!(rig.get(&read(at("dangling"))).await, Err(Code::NotFound));

    assert_eq!(rig.put(&write(at("dir")), "").await, Err(Code::IsADirectory));
    assert_eq!(rig.put(&write(at("dir/")), "").await, Err(Code::IsADirectory));
    assert_eq!(rig.put(&write(at("link")), "").await, Err(Code::IsADirectory));
    assert_eq!(rig.put(&write("/"), "").await, Err(Code::IsADirectory));
    assert_eq!(rig.put(&write(at("file/x")), "").await, Err(Code::NotADirectory));
    assert_eq!(rig.put(&write(at("loop")), "").await, Err(Code::InvalidPath));
    assert_eq!(rig.put(&write(at("fifo")), "").await, Err(Code::InvalidPath));
    assert_eq!(rig.put(&write("/dev/null"), "").await, Err(Code::InvalidPath));
    let bounded = |size, path: &str| WriteFile { max_bytes: Some(10), size, ..write(path) };
    assert_eq!(rig.put(&bounded(None, &at("made/for/nothing")), "01234567890").await, Err(Code::TooLarge));
    assert_eq!(rig.put(&bounded(Some(11), &at("made/for/nothing")), "").await, Err(Code::TooLarge));
    assert_eq!(rig.put(&bounded(None, &at("ten")), "0123456789").await, Ok(10));

    assert_eq!(rig.delete(at("missing"), true).await, Err(Code::NotFound));
    assert_eq!(rig.delete(at("dir"), false).await, Err(Code::NotEmpty));
    assert_eq!(rig.delete("/", true).await, Err(Code::InvalidPath));
    assert_eq!(rig.names(&at("missing"), 1).await, Err(Code::NotFound));
    assert_eq!(rig.names(&at("file"), 1).await, Err(Code::NotADirectory));
    assert_eq!(rig.rename(&at("missing"), &at("x"), true).await, Err(Code::NotFound));
    assert_eq!(rig.rename(&at("file"), &at("ten"), false).await, Err(Code::Exists));
    assert_eq!(rig.rename(&at("dir"), &at("dir/inside"), true).await, Err(Code::InvalidPath));
    let make = |path: String| MakeDirectory { path: path.into(), mode: None, user: None };
    assert_eq!(code(rig.client.make_directory(&make(at("file"))).await), Err(Code::Exists));
    assert_eq!(code(rig.client.make_directory(&make(at("file/x"))).await), Err(Code::NotADirectory));
    assert_eq!(code(rig.client.make_directory(&make(at("dir"))).await), Ok(()));

    let mut names = rig.names(&rig.directory, 9).await.unwrap();
    names.sort();
    let expected = ["dangling", "dir", "dir/full", "dir/full/x", "fifo", "file", "link", "loop", "ten"];
    assert_eq!(names, expected.map(ByteText::from), "nothing half made is left");
    rig.finish().await;
}

#[tokio::test]
async fn links_stay_links() {
    let rig = Rig::new().await;
    let at = |name: &str| rig.path(name);
    rig.put(&write(at("target")), "old").await.unwrap();
    rig.shell(&format!(
        "cd {}; ln -s target link; ln -s {}/later dangling; ln target hard",
        rig.directory, rig.directory
    ))
    .await;
    rig.put(&write(at("link")), "new").await.unwrap();
    assert_eq!(rig.get(&read(at("target"))).await.unwrap(), "new");
    assert_eq!(rig.get(&read(at("hard"))).await.unwrap(), "old", "replaced, not written over");
    let status = rig.status(at("link")).await.unwrap();
    assert_eq!((status.kind, status.target), (FileKind::Link, Some("target".into())));
    let followed = rig.client.stat(&Stat { path: at("link").into(), follow: true }).await.unwrap();
    assert_eq!((followed.kind, followed.size), (FileKind::File, 3));
    rig.put(&write(at("dangling")), "made").await.unwrap();
    assert_eq!(rig.get(&read(at("later"))).await.unwrap(), "made");
    // A link goes alone, also with recursion.
    rig.shell(&format!("cd {}; mkdir dir; touch dir/x; ln -s dir todir", rig.directory)).await;
    rig.delete(at("todir"), true).await.unwrap();
    assert_eq!(rig.names(&at("dir"), 1).await.unwrap(), [ByteText::from("x")]);
    rig.rename(&at("link"), &at("other/link"), false).await.unwrap();
    assert_eq!(rig.status(at("other/link")).await.unwrap().kind, FileKind::Link);
    rig.finish().await;
}

#[tokio::test]
async fn ranges() {
    let rig = Rig::new().await;
    let path = rig.path("file");
    rig.put(&write(path.as_str()), "0123456789").await.unwrap();
    let range = |offset, length| ReadFile { offset, length, ..read(path.as_str()) };
    for (offset, length, expected) in [
        (0, Some(0), ""),
        (0, Some(3), "012"),
        (3, Some(3), "345"),
        (8, Some(100), "89"),
        (8, None, "89"),
        (10, None, ""),
        (11, Some(1), ""),
        (u64::MAX, Some(u64::MAX), ""),
        (0, Some(u64::MAX), "0123456789"),
    ] {
        assert_eq!(rig.get(&range(offset, length)).await.unwrap(), expected, "{offset} {length:?}");
    }
    let download = rig.client.read_file(&range(3, Some(2))).await.unwrap();
    assert_eq!(download.status().unwrap().size, 10, "the whole file's");
    rig.finish().await;
}

#[tokio::test]
async fn files_that_are_not_what_their_size_says() {
    let rig = Rig::new().await;
    // Files of the kernel have a size of zero and yet content.
    assert!(rig.get(&read("/proc/self/status")).await.unwrap().starts_with(b"Name:"));
    // A sparse file is read as zeros, in full.
    let sparse = rig.path("sparse");
    rig.shell(&format!("truncate -s 30M {sparse}; printf end >>{sparse}")).await;
    let status = rig.status(sparse.as_str()).await.unwrap();
    assert_eq!(status.size, (30 << 20) + 3);
    assert!(status.allocated < 1 << 20, "{status:?}");
    let content = rig.get(&read(sparse.as_str())).await.unwrap();
    assert!(
        content.len() == (30 << 20) + 3
            && content.ends_with(b"\0end")
            && content[..30 << 20].iter().all(|byte| *byte == 0)
    );
    rig.finish().await;
}

#[tokio::test]
async fn parallel_uploads_into_new_directories() {
    let rig = Rig::new().await;
    let content = |number: usize| Bytes::from(vec![number as u8; 10_000 + number * 1000]);
    let uploads = (0..100).map(|number| {
        let rig = &rig;
        async move {
            let path = rig.path(&format!("new/{}/{}/{number}", number % 3, number % 7));
            rig.put(&write(path), content(number)).await.unwrap();
        }
    });
    futures_util::future::join_all(uploads).await;
    let downloads = (0..100).map(|number| {
        let rig = &rig;
        async move {
            let path = rig.path(&format!("new/{}/{}/{number}", number % 3, number % 7));
            assert_eq!(rig.get(&read(path)).await.unwrap(), content(number));
        }
    });
    futures_util::future::join_all(downloads).await;
    let names = rig.names(&rig.path("new"), 3).await.unwrap();
    assert_eq!(names.len(), 3 + 21 + 100);
    // Uploads to one path: one of them wins, whole.
    let path = rig.path("same/path");
    let same = (0..20).map(|number| rig.put_owned(write(path.as_str()), content(number)));
    futures_util::future::join_all(same).await;
    let won = rig.get(&read(path.as_str())).await.unwrap();
    assert_eq!(won, content(won[0].into()));
    assert_eq!(rig.names(&rig.path("same"), 1).await.unwrap(), [ByteText::from("path")]);
    // Some fail for want of what is there, some succeed: those that fail take back no directory of others.
    let mixed = (0..60).map(|number| {
        let path = rig.path(&format!("mixed/{}/x{number}", number % 2));
        let max_bytes = (number % 3 == 0).then_some(1);
        rig.put_owned(WriteFile { max_bytes, ..write(path) }, content(number))
    });
    let results = futures_util::future::join_all(mixed).await;
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result.is_ok(), number % 3 != 0, "{number}: {result:?}");
    }
    rig.finish().await;
}

impl Rig {
    async fn put_owned(&self, request: WriteFile, content: Bytes) -> Result<u64, Code> {
        self.put(&request, content).await
    }
}

#[tokio::test]
async fn a_full_disk() {
    let rig = Rig::new().await;
    let small = rig.path("small");
    rig.shell(&format!("mkdir {small} && mount -t tmpfs -o size=1m,nr_inodes=100 none {small}")).await;
    let keep = format!("{small}/keep");
    rig.put(&write(keep.as_str()), "keep").await.unwrap();
    let big = Bytes::from(vec![1; 3 << 20]);
    assert_eq!(rig.put(&write(format!("{small}/a/b/big")), big.clone()).await, Err(Code::NoSpace));
    assert_eq!(rig.put(&write(keep.as_str()), big.clone()).await, Err(Code::NoSpace));
    let known = WriteFile { size: Some(3 << 20), ..write(keep.as_str()) };
    assert_eq!(rig.put(&known, "never looked at").await, Err(Code::NoSpace));
    assert_eq!(rig.names(&small, 3).await.unwrap(), [ByteText::from("keep")]);
    assert_eq!(rig.get(&read(keep.as_str())).await.unwrap(), "keep", "the old content stays");
    let exec = Exec::shell(format!("dd if=/dev/zero of={small}/fill bs=64k 2>/dev/null; rm {small}/fill; echo $?"));
    assert_eq!(rig.run(exec).await.unwrap().stdout, "0\n");
    let half = Bytes::from(vec![1; 1 << 19]);
    assert_eq!(rig.put(&write(format!("{small}/half")), half).await, Ok(1 << 19));
    rig.shell(&format!("umount {small}")).await;
    rig.finish().await;
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing() {
    let rig = Rig::new().await;
    let path = rig.path("up/load");
    rig.put(&write(rig.path("old")), "old").await.unwrap();
    for target in [path.clone(), rig.path("old")] {
        let failing = stream::iter([Ok(Bytes::from(vec![1; 1 << 20])), Err(std::io::Error::other("the source broke"))]);
        let result = rig.client.write_file(&write(target), failing).await;
        assert!(matches!(result, Err(ClientError::Source { .. })), "{result:?}");
    }
    // Dropped in the middle.
    let endless = stream::repeat_with(|| Ok(Bytes::from(vec![1; 1 << 16])));
    let dropped = write(path.as_str());
    let growing = format!("find {} -name '*.part' -size +100k | wc -l", rig.directory);
    tokio::select! {
        result = rig.client.write_file(&dropped, endless) => panic!("{result:?}"),
        () = rig.until(&growing, "1") => {}
    }
    rig.until(&format!("find {} | wc -l", rig.directory), "2").await;
    assert_eq!(rig.get(&read(rig.path("old"))).await.unwrap(), "old");
    rig.finish().await;
}

#[tokio::test]
async fn moving_replacing_and_removing() {
    let rig = Rig::new().await;
    let at = |name: &str| rig.path(name);
    rig.put(&write(at("a")), "a").await.unwrap();
    rig.put(&write(at("b")), "b").await.unwrap();
    rig.rename(&at("a"), &at("b"), true).await.unwrap();
    assert_eq!(rig.get(&read(at("b"))).await.unwrap(), "a");
    assert_eq!(rig.status(at("a")).await, Err(Code::NotFound));
    rig.put(&write(at("tree/x/y/z")), "z").await.unwrap();
    rig.rename(&at("tree"), &at("new/place"), false).await.unwrap();
    assert_eq!(rig.get(&read(at("new/place/x/y/z"))).await.unwrap(), "z");
    // Between file systems a file is copied.
    let shm = format!("/dev/shm/hutch-agent-test-{}", std::process::id());
    rig.rename(&at("b"), &shm, false).await.unwrap();
    assert_eq!(rig.get(&read(shm.as_str())).await.unwrap(), "a");
    rig.put(&write(at("c")), "c").await.unwrap();
    assert_eq!(rig.rename(&shm, &at("c"), false).await, Err(Code::Exists));
    rig.rename(&shm, &at("c"), true).await.unwrap();
    assert_eq!(
        (rig.get(&read(at("c"))).await.unwrap(), rig.status(shm.as_str()).await),
        ("a".into(), Err(Code::NotFound))
    );
    rig.delete(at("new"), true).await.unwrap();
    rig.delete(at("c"), false).await.unwrap();
    let make = MakeDirectory { path: at("m/n").into(), mode: Some(0o1770), user: Some("nobody".into()) };
    rig.client.make_directory(&make).await.unwrap();
    let status = rig.status(at("m/n")).await.unwrap();
    assert_eq!((status.mode, status.uid), (0o1770, 65534));
    rig.delete(at("m/n"), false).await.unwrap();
    rig.finish().await;
}

#[tokio::test]
async fn lists_of_any_length_and_depth() {
    let rig = Rig::new().await;
    rig.shell(&format!(
        "cd {}; mkdir wide deep; cd wide; i=0; while [ $i -lt 5000 ]; do : >file-with-a-rather-long-name-$i; i=$((i+1)); done; \
         cd ../deep; i=0; while [ $i -lt 60 ]; do mkdir d; cd d; i=$((i+1)); done; touch bottom; mkdir -p {}/closed/x",
        rig.directory, rig.directory
    ))
    .await;
    assert_eq!(rig.names(&rig.path("wide"), 1).await.unwrap().len(), 5000);
    assert_eq!(rig.names(&rig.path("deep"), 10).await.unwrap().len(), 10);
    assert_eq!(rig.names(&rig.path("deep"), u32::MAX).await.unwrap().len(), 61);
    assert_eq!(rig.names(&rig.directory, 2).await.unwrap().len(), 3 + 5000 + 1 + 1);
    assert_eq!(rig.names(&rig.path("closed/x"), 5).await.unwrap(), [] as [ByteText; 0]);
    // One that is dropped in the middle disturbs nothing.
    let mut listing = rig.client.list(&List { path: rig.path("wide").into(), depth: 1 }).await.unwrap();
    assert!(!listing.next().await.unwrap().unwrap().is_empty());
    drop(listing);
    // All of the machine, including what comes and goes.
    let mut listing = rig.client.list(&List { path: "/proc".into(), depth: 2 }).await.unwrap();
    while listing.next().await.unwrap().is_some() {}
    assert!(listing.end().unwrap().entries > 1000);
    rig.finish().await;
}

#[tokio::test]
async fn an_archive_is_what_tar_unpacks() {
    let rig = Rig::new().await;
    let long = "long".repeat(50);
    rig.shell(&format!(
        "cd {}; mkdir -p tree/empty tree/.hidden; printf content >tree/file; chmod 751 tree/file; ln -s file tree/link; \
         mkfifo tree/fifo; head -c 3000000 /dev/urandom >tree/big; touch \"tree/.hidden/new\nline\"; mkdir -p tree/{long}/{long}; \
         printf x >tree/{long}/{long}/leaf; truncate -s 5M tree/sparse; : >tree/zero",
        rig.directory
    ))
    .await;
    let archive = Archive { path: rig.path("tree").into() };
    let mut download = rig.client.archive(&archive).await.unwrap();
    let (mut tar, path) = (bytes::BytesMut::new(), rig.path("tree.tar"));
    while let Some(bytes) = download.next().await.unwrap() {
        tar.extend_from_slice(&bytes);
    }
    let archived = download.end().unwrap();
    assert_eq!((archived.members, archived.skipped), (12, 1), "the pipe is left out");
    rig.put(&write(path.as_str()), tar.freeze()).await.unwrap();
    let compare = format!(
        "cd {} && mkdir unpacked && tar -xf tree.tar -C unpacked && rm tree/fifo && diff -r tree unpacked/tree \
         && stat -c %a unpacked/tree/file && readlink unpacked/tree/link",
        rig.directory
    );
    assert_eq!(rig.shell(&compare).await, "751\nfile\n");
    // A single file, and what is not there.
    let single = rig.client.archive(&Archive { path: rig.path("tree/file").into() }).await.unwrap();
    assert_eq!(single.collect(LIMIT).await.unwrap().len(), 512 * 4);
    let missing = rig.client.archive(&Archive { path: rig.path("missing").into() }).await.unwrap();
    assert_eq!(code(missing.collect(LIMIT).await), Err(Code::NotFound));
    rig.finish().await;
}

/// A gigabyte up and down: what lies between is never more than the windows.
#[tokio::test]
async fn a_gigabyte_in_constant_memory() {
    let rig = Rig::new().await;
    let pieces: u64 = if rig.pid().is_some() { 1024 } else { 100 };
    let path = rig.path("gigabyte");
    let piece = |number: u64| {
        let mut bytes = vec![number as u8; 1 << 20];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Bytes::from(bytes)
    };
    let mut sent = DefaultHasher::new();
    let content = stream::iter((0..pieces).map(|number| {
        let piece = piece(number);
        sent.write(&piece);
        Ok(piece)
    }));
    let bytes = rig.client.write_file(&write(path.as_str()), content).await.unwrap();
    assert_eq!(bytes, pieces << 20);
    let mut received = DefaultHasher::new();
    let mut download = rig.client.read_file(&read(path.as_str())).await.unwrap();
    while let Some(bytes) = download.next().await.unwrap() {
        received.write(&bytes);
    }
    assert_eq!(download.end().unwrap().bytes, pieces << 20);
    assert_eq!(received.finish(), sent.finish());
    if let Some(pid) = rig.pid() {
        let peak = peak_memory(pid);
        assert!(peak < 32 << 20, "the agent needed {peak} bytes");
    }
    let exec = Exec::shell(format!("wc -c <{path}"));
    let collected = rig.run(exec).await.unwrap();
    assert_eq!(collected.ended.outcome, Outcome::Exited { code: 0 });
    rig.finish().await;
}
