//! Sandboxes come and go while the daemon, kernels and agents are killed with `kill -9`. Afterwards the daemon starts
//! at once, who was not harmed still answers, and nothing is left on the host that nobody owns.
//!
//! `HUTCH_CHAOS` is how many sandboxes are created, 20 unless told otherwise.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hutch_api::SandboxStatus;
use lab::{Lab, PATIENCE};

/// A generator of which the seed is printed: a run can be had again, as far as the machine's own timing allows.
struct Dice(u64);

impl Dice {
    /// A number below `bound`; xorshift, by Marsaglia.
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_leaves_no_trace() {
    let count: u64 = std::env::var("HUTCH_CHAOS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let seed = std::env::var("HUTCH_CHAOS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(4_711);
    let Some(mut lab) = Lab::open().await else { return };
    println!("chaos with {count} sandboxes, seed {seed}");
    let mut dice = Dice(seed);
    let mut living: BTreeMap<String, bool> = BTreeMap::new();
    let mut slowest = Duration::ZERO;
    for round in 0..count {
        match dice.roll(4) {
            // The daemon dies while a create is at some point of its way.
            0 => {
                let delay = Duration::from_millis(dice.roll(700));
                let create = lab.try_create();
                drop(tokio::time::timeout(delay, create).await);
                lab.kill();
                slowest = slowest.max(lab.start().await);
            }
            // The daemon dies while a destroy is.
            1 => {
                let victim = lab.create().await;
                let delay = Duration::from_millis(dice.roll(100));
                drop(tokio::time::timeout(delay, lab.client.destroy_sandbox(&victim)).await);
                lab.kill();
                slowest = slowest.max(lab.start().await);
            }
            // A kernel, or a process of its, dies.
            2 => {
                let victim = lab.create().await;
                let processes = lab.processes(&victim).await;
                let chosen = dice.roll(processes.len() as u64);
                let pid = processes[usize::try_from(chosen).unwrap()];
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                living.insert(victim, false);
            }
            _ => {
                let id = lab.create().await;
                assert_eq!(
                    lab.shell(&id, &format!("echo {round} > /root/mark; cat /root/mark")).await.stdout,
                    format!("{round}\n")
                );
                living.insert(id, true);
            }
        }
        if living.len() > 6 {
            let chosen = usize::try_from(dice.roll(living.len() as u64)).unwrap();
            let id = living.keys().nth(chosen).unwrap().clone();
            living.remove(&id);
            assert_eq!(lab.client.destroy_sandbox(&id).await.unwrap().status, SandboxStatus::Destroyed);
        }
    }
    lab.kill();
    slowest = slowest.max(lab.start().await);
    for id in living.iter().filter_map(|(id, unharmed)| unharmed.then_some(id)) {
        assert_eq!(lab.shell(id, "test -s /root/mark && echo here").await.stdout, "here\n");
    }
    settled(&lab).await;
    lab.audited().await;
    println!("the slowest start took {} ms", slowest.as_millis());
    assert!(slowest < Duration::from_secs(10), "five times what is promised for an idle machine: {slowest:?}");
    lab.clean().await;
}

/// Waits until nobody is on the way anywhere.
async fn settled(lab: &Lab) {
    let began = Instant::now();
    loop {
        let views = lab.client.list_sandboxes(&hutch_api::SandboxFilter::default()).await.unwrap();
        if views.iter().all(|view| view.status == SandboxStatus::Running) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{views:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
