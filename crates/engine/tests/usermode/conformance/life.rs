//! A life in a guest, and whether anything of it was lost.

use std::path::Path;
use std::time::SystemTime;

use hutch_engine::agent::Client;

use super::lab::output;

/// Begins a life in the guest.
pub(crate) async fn live(agent: &Client) {
    output(agent, &format!("cat > /root/life.py <<'END'\n{}END", include_str!("life.py"))).await;
    output(agent, "setsid python3 /root/life.py > /root/life.out 2>&1 < /dev/null &").await;
}

/// Nothing of it is lost, and it goes on. Returns how far it was; `before` is a number that it has passed.
pub(crate) async fn check_life(agent: &Client, before: u64) -> u64 {
    let passes = "until [ -e /tmp/life/now ] && read n pid uuid < /tmp/life/now && [ $n -gt BEFORE ]; \
                  do [ ! -s /root/life.out ] || { cat /root/life.out; exit 1; }; sleep 0.01; done; echo $n";
    let count: u64 = output(agent, &passes.replace("BEFORE", &before.to_string())).await.parse().unwrap();
    output(agent, &passes.replace("BEFORE", &count.to_string())).await;
    let digest = output(agent, "touch /tmp/life/wanted; until [ -e /tmp/life/found ]; do sleep 0.01; done; cat /tmp/life/found; rm /tmp/life/found").await;
    assert_eq!(digest, output(agent, "cat /tmp/life/digest").await);
    output(agent, "awk 'NR != $1 { exit 1 }' /root/life.log").await;
    let rows = "import sqlite3; c = sqlite3.connect('file:/root/life.db?mode=ro', uri=True, timeout=60); \
                print(*c.execute('pragma integrity_check').fetchone(), *c.execute('select max(number) - count(*) from counted').fetchone())";
    assert_eq!(output(agent, &format!("python3 -c \"{rows}\"")).await, "ok 0");
    count
}

/// The guest's clock is within 50 ms of the host's, which is asked before and after.
pub(crate) async fn check_clock(agent: &Client) {
    let host = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let before = host();
    let guest: u128 = output(agent, "date +%s%3N").await.parse().unwrap();
    let after = host();
    assert!((before - 50..=after + 50).contains(&guest), "the guest says {guest}, the host {before} to {after}");
}

/// What the file system's own check says of a copy, its journal played back.
pub(crate) fn check_disk(disk: &Path) {
    let copy = disk.with_extension("checked");
    hutch_image::disk::copy(disk, &copy).unwrap();
    let check = |option: &str| std::process::Command::new("e2fsck").args(["-f", option]).arg(&copy).output().unwrap();
    // Playing back the journal is a repair that says 1.
    let played = check("-p");
    assert!(matches!(played.status.code(), Some(0 | 1)), "{played:?}");
    let clean = check("-n");
    assert!(clean.status.success(), "{clean:?}");
    std::fs::remove_file(&copy).unwrap();
}
