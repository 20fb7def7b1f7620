//! Bursts of requests that come at the same time, machines that die and daemons that are killed: nothing that a guest
//! has done is lost as long as its machine is not, nothing is on the host without an owner, every request is answered.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use hutch_api::{CreateSnapshot, ForkSandbox, Operations as _, SnapshotReference, Until};
use hutch_units::{SandboxId, SnapshotId};
use proptest::prelude::*;

use super::saving::by;
use super::{check, create};
use crate::lifecycle::State;
use crate::tests::{Incarnation, Life};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
enum Act {
    Pause,
    Resume,
    Fork,
    Snapshot,
    Restore,
    Destroy,
}

/// What comes at the same time, of which sandbox, and whether the daemon is killed in its midst.
#[derive(Debug, Clone)]
struct Burst {
    acts: Vec<(Act, usize)>,
    kill_after: Option<u64>,
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let act = prop_oneof![
        4 => Just(Act::Pause),
        4 => Just(Act::Resume),
        2 => Just(Act::Fork),
        1 => Just(Act::Snapshot),
        1 => Just(Act::Restore),
        1 => Just(Act::Destroy),
    ];
    let acts = prop::collection::vec((act, 0..3_usize), 1..5);
    let burst = (acts, prop::option::weighted(0.3, 0..20_u64));
    prop::collection::vec(burst.prop_map(|(acts, kill_after)| Burst { acts, kill_after }), 1..6)
}

/// One request; what it answers does not matter here, that it answers does.
fn request(daemon: &Incarnation, act: Act, id: SandboxId, snapshot: Option<SnapshotId>) -> BoxFuture<'static, ()> {
    let (contract, caller) = (daemon.daemon.clone(), daemon.caller.clone());
    async move {
        let answered = async {
            match act {
                Act::Pause => drop(contract.pause_sandbox(&caller, &by(id), Until::Settled).await),
                Act::Resume => drop(contract.resume_sandbox(&caller, &by(id), Until::Settled).await),
                Act::Fork => drop(contract.fork_sandbox(&caller, &by(id), ForkSandbox::default()).await),
                Act::Snapshot => drop(contract.create_snapshot(&caller, &by(id), CreateSnapshot::default()).await),
                Act::Restore => {
                    if let Some(snapshot) = snapshot {
                        drop(contract.restore_snapshot(&caller, &by(id), &SnapshotReference::Id(snapshot)).await);
                    }
                }
                Act::Destroy => drop(contract.destroy_sandbox(&caller, &by(id)).await),
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{act:?} of {id} is not answered"));
    }
    .boxed()
}

fn run(bursts: Vec<Burst>) {
    let life = Life::new();
    let mut daemon = life.start();
    let mut known = vec![create(&daemon), create(&daemon)];
    let mut done: HashMap<SandboxId, u64> = HashMap::new();
    for burst in bursts {
        for id in &known {
            if let Some(count) = life.host.work(*id) {
                done.insert(*id, count);
            }
        }
        let page = hutch_api::PageRequest { limit: 1, offset: 0 };
        let snapshots = daemon.daemon.list_snapshots(&daemon.caller, hutch_api::SnapshotFilter::default(), page);
        let snapshot = daemon.run(snapshots).unwrap().data.first().map(|snapshot| snapshot.id);
        let restores = burst.acts.iter().any(|(act, _)| matches!(act, Act::Restore));
        let requests = burst.acts.iter().map(|(act, of)| request(&daemon, *act, known[of % known.len()], snapshot));
        let all = join_all(requests.collect::<Vec<_>>());
        match burst.kill_after {
            None => drop(daemon.run(all)),
            Some(milliseconds) => {
                let deadline = Duration::from_millis(milliseconds);
                drop(daemon.run(async { tokio::time::timeout(deadline, all).await }));
                daemon.kill();
                daemon = life.start();
            }
        }
        let rows = check(&life, &daemon);
        for row in &rows {
            assert_ne!(row.state, State::Error, "nothing has failed: {row:?}");
            let is_copy_of_a_killed_daemon = burst.kill_after.is_some() && row.forked_from.is_some();
            assert!(row.state != State::Failed || is_copy_of_a_killed_daemon || done_before(row), "{row:?}");
            if let (Some(now), Some(before)) = (life.host.done(row.id), done.get(&row.id)) {
                assert!(restores || now >= *before, "{} had done {before} and has done {now}", row.id);
                assert!(
                    row.last_resumed_at.is_none() || life.host.identity(row.id).is_some(),
                    "it was booted: {row:?}"
                );
                done.insert(row.id, now);
            }
            if !known.contains(&row.id) && !row.state.is_terminal() {
                known.push(row.id);
            }
        }
        known.retain(|id| rows.iter().any(|row| row.id == *id && !row.state.is_terminal()));
        if known.is_empty() {
            known.push(create(&daemon));
        }
    }
    daemon.kill();
}

/// Whether a copy was given up in an earlier burst.
fn done_before(row: &crate::store::SandboxRow) -> bool {
    row.forked_from.is_some() && row.ended_at.is_some()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn requests_in_any_order_lose_nothing(bursts in bursts()) {
        run(bursts);
    }
}
