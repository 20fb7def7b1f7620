//! The host ring: real programs, file systems and kills. Needs root; without it each test says so and skips.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use hutch_image::{BuildError, Cache, Cancel, Event, Image, Recipe, Silent, boot, disk};
use hutch_units::Mebibytes;

/// Says where the builder that is to be killed finds its cache.
const CHILD: &str = "HUTCH_IMAGE_TEST_CHILD";

struct Bench {
    directory: tempfile::TempDir,
    cache: Cache,
}

/// A cache of its own for a test; `None`, with the reason printed, where the test cannot run.
fn bench() -> Option<Bench> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("HUTCH_NO_SKIP").is_none(), "skipped: needs root");
        eprintln!("skipped: needs root");
        return None;
    }
    let missing: Vec<_> = ["mkfs.erofs", "mkfs.ext4", "setpriv", "unshare"]
        .into_iter()
        .filter(|name| hutch_image::prerequisites().iter().any(|one| one.name == *name && one.found.is_none()))
        .collect();
    if !missing.is_empty() {
        eprintln!("skipped: needs {missing:?}");
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cache = Cache::open(directory.path().join("cache")).expect("a cache");
    Some(Bench { directory, cache })
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn work(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.cache.root().join("work")).expect("the cache is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// Mounts an image read-only for as long as the result lives; `None`, with the reason printed, where the kernel
    /// of this host cannot.
    fn mount(&self, image: &Path, options: &str) -> Option<Mount> {
        let point = self.path("mount");
        fs::create_dir_all(&point).expect("a directory");
        let output = Command::new("mount").args(["-o", options]).arg(image).arg(&point).output().expect("mount runs");
        if !output.status.success() {
            eprintln!("skipped the rest: cannot mount here: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Mount(point))
    }
}

struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// An image whose tree is filled by a script on the host.
fn image(script: &str) -> Image {
    let text = "name = \"fake:1\"\ndescription = \"a test\"\nbuild_space_mib = 1\n\
                [[hook]]\nfile = \"fill.sh\"\nplace = \"host\"\n";
    Image::from_recipe(Recipe::parse(text, &[("fill.sh", script)], &[]).expect("a valid recipe"))
}

fn fsck(disk: &Path) {
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(disk).output().expect("e2fsck runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[track_caller]
fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::yield_now();
    }
}

#[test]
fn a_disk_is_a_sound_sparse_ext4_of_exactly_its_size() {
    let Some(bench) = bench() else { return };
    for size in [64, 1024, 10 * 1024, 60 * 1024] {
        let path = bench.path(&format!("disk-{size}"));
        disk::create(&bench.cache, &path, Mebibytes(size)).expect("a disk");
        let metadata = path.metadata().expect("it is there");
        assert_eq!(metadata.len(), u64::from(size) << 20);
        assert_eq!(metadata.mode() & 0o7777, 0o600);
        let usage = disk::usage(&path).expect("it is there");
        assert!(usage.0 < 1 << 20, "a fresh disk of {size} MiB takes {usage}");
        fsck(&path);
        assert!(!bench.path(&format!("disk-{size}.new")).exists());
    }
    assert!(bench.work().is_empty());
}

#[test]
fn an_existing_disk_is_never_replaced() {
    let Some(bench) = bench() else { return };
    let path = bench.path("disk");
    fs::write(&path, "precious").expect("a file");
    // What a creator that was killed may leave.
    fs::write(bench.path("disk.new"), "half").expect("a file");
    let error = disk::create(&bench.cache, &path, Mebibytes(64)).expect_err("the name is taken");
    assert!(matches!(error, disk::DiskError::Exists { .. }), "{error}");
    assert_eq!(fs::read(&path).expect("readable"), b"precious");
    assert!(!bench.path("disk.new").exists());
}

#[test]
fn a_full_disk_says_so_and_takes_no_more_than_its_size() {
    let Some(bench) = bench() else { return };
    let path = bench.path("disk");
    disk::create(&bench.cache, &path, Mebibytes(64)).expect("a disk");
    let Some(mount) = bench.mount(&path, "loop") else { return };
    let mut file = File::create(mount.0.join("fill")).expect("a file");
    let block = vec![1; 1 << 20];
    let error = (0..100).find_map(|_| file.write_all(&block).err()).expect("100 MiB do not fit");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop((file, mount));
    assert!(disk::usage(&path).expect("it is there") <= Mebibytes(64).bytes());
    fsck(&path);
}

#[test]
fn an_image_keeps_modes_owners_links_and_capabilities() {
    let Some(bench) = bench() else { return };
    let has_setcap = Command::new("setcap").arg("-h").output().is_ok();
    let script = "cd \"$TREE\"; mkdir etc; echo a > etc/plain; ln -s plain etc/soft; ln etc/plain etc/hard\n\
                  echo b > etc/owned; chown 1234:70000 etc/owned; chmod 4750 etc/owned\n\
                  echo c > etc/capable; chmod 755 etc/capable\n\
                  if command -v setcap > /dev/null; then setcap cap_net_raw=ep etc/capable; fi\n";
    let built = image(script).build(&bench.cache, &Silent, &Cancel::default()).expect("an image");
    assert_eq!(built.path.metadata().expect("it is there").mode() & 0o777, 0o444);
    let Some(mount) = bench.mount(&built.path, "loop,ro") else { return };
    let etc = mount.0.join("etc");
    let owned = etc.join("owned").metadata().expect("it is there");
    assert_eq!((owned.uid(), owned.gid(), owned.mode() & 0o7777), (1234, 70000, 0o4750));
    assert_eq!(fs::read_link(etc.join("soft")).expect("a link"), Path::new("plain"));
    assert_eq!(etc.join("hard").metadata().expect("it is there").nlink(), 2);
    let mut value = [0; 64];
    let capability = rustix::fs::getxattr(etc.join("capable"), "security.capability", &mut value);
    if has_setcap { assert!(capability.is_ok(), "{capability:?}") } else { eprintln!("no setcap here") }
}

#[test]
fn the_same_recipe_gives_the_same_bytes() {
    let Some(bench) = bench() else { return };
    let other = Cache::open(bench.path("other")).expect("a cache");
    let image = image("mkdir \"$TREE/a\"; date > /dev/null; echo x > \"$TREE/a/b\"; ln -s b \"$TREE/a/c\"");
    let [one, two] =
        [&bench.cache, &other].map(|cache| image.build(cache, &Silent, &Cancel::default()).expect("an image"));
    assert_eq!(one.digest, two.digest);
    assert_eq!(image.built(&bench.cache).expect("sound").expect("built"), one);
}

#[test]
fn damage_is_found_and_repaired_by_a_build() {
    let Some(bench) = bench() else { return };
    let image = image("seq 100000 > \"$TREE/numbers\"");
    let build = || image.build(&bench.cache, &Silent, &Cancel::default()).expect("an image");
    let built = build();
    built.verify().expect("sound");
    let file = File::options().write(true).open(&built.path).expect("root may write");
    file.write_all_at(b"?", built.size.0 - 4096).expect("written");
    assert!(built.verify().is_err());
    file.set_len(built.size.0 - 4096).expect("cut");
    assert!(image.built(&bench.cache).is_err());
    build().verify().expect("sound again");
}

#[test]
fn of_several_builders_one_builds() {
    let Some(bench) = bench() else { return };
    let ran = bench.path("ran");
    let image = image(&format!("echo x >> {}; echo y > \"$TREE/y\"", ran.display()));
    let digests: Vec<_> = thread::scope(|scope| {
        let build = || image.build(&bench.cache, &Silent, &Cancel::default()).expect("an image").digest;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    assert_eq!(fs::read_to_string(&ran).expect("it ran"), "x\n");
}

#[test]
fn a_failed_script_is_shown_and_leaves_nothing() {
    let Some(bench) = bench() else { return };
    let error = image("echo the reason >&2; exit 7").build(&bench.cache, &Silent, &Cancel::default());
    let error = error.expect_err("the script fails");
    let BuildError::Hook { file, source } = &error else { panic!("{error}") };
    assert_eq!(file, "fill.sh");
    assert!(source.to_string().contains("the reason"), "{source}");
    assert!(bench.work().is_empty());
}

#[test]
fn a_cancelled_build_leaves_no_process_mount_or_file() {
    let Some(bench) = bench() else { return };
    let cancel = Cancel::default();
    let orphan = Mutex::new(String::new());
    let progress = |event| {
        if let Event::Detail { text, .. } = event
            && let Some(marker) = text.strip_prefix("marker ")
        {
            marker.clone_into(&mut orphan.lock().expect("no panic"));
            cancel.cancel();
        }
    };
    let script = "mkdir \"$TREE/m\"; mount -t tmpfs none \"$TREE/m\"; setsid sleep 98765 & echo marker \"$TREE\"; wait";
    let error = image(script).build(&bench.cache, &progress, &cancel).expect_err("cancelled");
    assert!(matches!(error, BuildError::Cancelled { .. }), "{error}");
    assert!(bench.work().is_empty());
    let tree = orphan.into_inner().expect("no panic");
    assert!(tree.contains("/work/"), "{tree}");
    nothing_is_left(&tree);
}

#[test]
fn a_killed_builder_is_cleaned_up_by_the_next() {
    if let Some(directory) = std::env::var_os(CHILD) {
        return be_killed(Path::new(&directory));
    }
    let Some(bench) = bench() else { return };
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_killed_builder_is_cleaned_up_by_the_next", "--nocapture"])
        .env(CHILD, bench.directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts again");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let marker = |line: Result<String, _>| line.ok()?.split_once("marker ").map(|(_, tree)| tree.to_owned());
    let tree = output.lines().find_map(marker).expect("the builder came so far");
    let leftovers = bench.cache.leftovers().expect("a list");
    assert_eq!((leftovers.len(), leftovers[0].is_running, leftovers[0].pid), (1, true, Some(child.id())));
    assert!(bench.cache.sweep().expect("swept").is_empty(), "a running build is no leftover");

    child.kill().expect("killed");
    child.wait().expect("it ended");
    nothing_is_left(&tree);
    assert!(Path::new(&tree).exists(), "killed half-way, it could remove nothing");
    assert!(bench.cache.leftovers().expect("a list").iter().all(|leftover| !leftover.is_running));

    fs::write(bench.path("go"), "").expect("a file");
    let built = killable(bench.directory.path()).build(&bench.cache, &Silent, &Cancel::default()).expect("an image");
    built.verify().expect("sound");
    assert!(bench.work().is_empty());
}

/// An image whose script goes on only when there is a file `go`, and which has a mount and a stray process until then.
fn killable(directory: &Path) -> Image {
    image(&format!(
        "mkdir \"$TREE/m\"; test -e {0}/go && exit 0\n\
         mount -t tmpfs none \"$TREE/m\"; echo x > \"$TREE/m/x\"; echo y > \"$TREE/y\"\n\
         setsid sleep 98765 & echo marker \"$TREE\"; wait",
        directory.display()
    ))
}

fn be_killed(directory: &Path) {
    let cache = Cache::open(directory.join("cache")).expect("a cache");
    let progress = |event| {
        if let Event::Detail { text, .. } = event {
            println!("{text}");
        }
    };
    let result = killable(directory).build(&cache, &progress, &Cancel::default());
    panic!("it should have been killed: {result:?}");
}

/// Waits until no process of the build of this tree runs and nothing of it is mounted.
fn nothing_is_left(tree: &str) {
    let environment = format!("TREE={tree}");
    let of_the_build = |process: &Path| {
        let environ = fs::read(process.join("environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == environment.as_bytes())
    };
    wait_for("the build's processes end", || {
        let mut processes = fs::read_dir("/proc").expect("it is mounted").filter_map(|entry| Some(entry.ok()?.path()));
        !processes.any(|process| of_the_build(&process))
    });
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it is mounted");
    assert!(!mounts.contains(tree), "{mounts}");
}

#[test]
fn the_boot_image_has_the_agent_and_the_mount_points() {
    let Some(bench) = bench() else { return };
    let agent = bench.path("agent");
    fs::write(&agent, "#!/bin/true\n").expect("a file");
    let [one, two] = ["one.erofs", "two.erofs"].map(|name| bench.path(name));
    boot::build(&agent, &one).expect("an image");
    boot::build(&agent, &two).expect("an image");
    assert_eq!(fs::read(&one).expect("readable"), fs::read(&two).expect("readable"));
    boot::build(&agent, &two).expect("it replaces an image");
    assert_eq!(fs::read_dir(bench.directory.path()).expect("it is there").count(), 4);

    let Some(mount) = bench.mount(&one, "loop,ro") else { return };
    let init = mount.0.join("init").metadata().expect("it is there");
    assert_eq!((init.mode() & 0o7777, init.uid(), init.len()), (0o755, 0, 12));
    for directory in boot::DIRECTORIES {
        let path = mount.0.join(directory);
        assert_eq!(path.metadata().expect("it is there").mode() & 0o7777, 0o755);
        assert_eq!(fs::read_dir(path).expect("a directory").count(), 0);
    }
}
