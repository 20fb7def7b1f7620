//! What a guest asks for itself: to be paused, or to be gone.

use std::sync::Arc;

use hutch_engine::agent::protocol::machine::{MachineEvent, SelfAction};
use hutch_engine::agent::{Client, Events};
use hutch_units::SandboxId;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::metrics::Count;
use crate::owner::Command;
use crate::report::chain;

/// Passes on what the guest of a machine asks for, until the connection to it ends. What it asked for before is not
/// lost: the agent keeps it for whoever watches next.
pub(crate) async fn watch(core: Arc<Core>, id: SandboxId, agent: Client) {
    let mut events = match agent.watch().await {
        Ok(events) => events,
        Err(error) => {
            tracing::debug!(%id, error = chain(&error), "a guest cannot be watched");
            return;
        }
    };
    // Only the events hold on to the connection from here on.
    drop(agent);
    while let Some((action, reason)) = next(&mut events).await {
        let Some(handle) = core.registry.find(id) else { return };
        core.metrics.count(Count::SelfSignal);
        let cause = match reason {
            Some(reason) => format!("asked by itself: {reason}"),
            None => "asked by itself".to_owned(),
        };
        let command = match action {
            SelfAction::Pause => Command::Pause { cause: cause.into(), done: oneshot::channel().0 },
            SelfAction::Delete => Command::Destroy { cause: cause.into(), done: oneshot::channel().0 },
            SelfAction::Other => continue,
        };
        // An owner that just ended has nothing to pause.
        drop(handle.commands.send(command).await);
    }
}

async fn next(events: &mut Events) -> Option<(SelfAction, Option<String>)> {
    loop {
        match events.next().await {
            Ok(Some(MachineEvent::SelfSignal { action, reason })) => return Some((action, reason)),
            Ok(Some(MachineEvent::Other)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}
