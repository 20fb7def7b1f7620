//! The agent is gone, or might as well be: everything that waits gets an error, never a success.

use std::time::Duration;

use bytes::Bytes;
use hutch_engine::agent::{ClientError, Event, Loss, Options};
use hutch_protocol::exec::Exec;
use hutch_protocol::files::{ReadFile, WriteFile};
use rustix::process::{Signal, kill_process};

use super::rig::{PATIENCE, Rig};

fn assert_lost<T: std::fmt::Debug>(what: &str, result: Result<T, ClientError>) {
    assert!(matches!(result, Err(ClientError::Lost { .. })), "{what}: {result:?}");
}

#[tokio::test]
async fn killing_the_agent_fails_everything_that_waits() {
    let rig = Rig::new().await;
    let Some(pid) = rig.pid() else { return eprintln!("skipped: the agent at HUTCH_AGENT_SOCKET is not ours to kill") };
    let path = rig.path("file");
    let write =
        WriteFile { path: path.as_str().into(), mode: None, user: None, size: None, max_bytes: None, sync: false };
    let content = futures_util::stream::iter((0..64).map(|_| Ok(Bytes::from(vec![1; 1 << 20]))));
    rig.client.write_file(&write, content).await.unwrap();

    let mut running = rig.client.exec(&Exec::shell("echo ready; sleep 68")).await.unwrap();
    assert_eq!(running.next().await.unwrap(), Some(Event::Stdout("ready\n".into())));
    let flooding = rig.client.exec(&Exec::argv(["yes"])).await.unwrap();
    let collecting = rig.client.exec(&Exec::shell("printf partial; sleep 68")).await.unwrap();
    let mut feeding = rig.client.exec(&Exec { stdin: true, ..Exec::argv(["sleep", "68"]) }).await.unwrap();
    let input = feeding.take_stdin().unwrap();
    let read = ReadFile { path: path.as_str().into(), offset: 0, length: None };
    let mut download = rig.client.read_file(&read).await.unwrap();
    download.next().await.unwrap();
    let endless = futures_util::stream::repeat_with(|| Ok(Bytes::from(vec![2; 1 << 16])));
    let uploading = rig.client.write_file(&write, endless);

    let waiting = async {
        tokio::join!(
            async { assert_lost("an event", running.next().await) },
            async { assert_lost("all output", collecting.collect(1 << 20).await) },
            async { assert_lost("input", input.write(vec![0; 1 << 20]).await) },
            async { assert_lost("an upload", uploading.await) },
            async {
                // What has arrived is delivered, then comes the loss.
                let result = loop {
                    match download.next().await {
                        Ok(Some(_)) => {}
                        result => break result,
                    }
                };
                assert_lost("a download", result);
            },
            async { assert_eq!(rig.client.lost().await, Loss::Closed) },
            async { kill_process(agent_of(pid), Signal::KILL).unwrap() },
        )
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("nothing waits for ever");
    assert_lost("the same event again", running.next().await);
    assert_lost("a flood that nobody read", flooding.collect(usize::MAX).await);
    assert_lost("a new command", rig.client.exec(&Exec::shell("true")).await);
    assert_lost("a question", rig.client.stats().await);
    assert_eq!(rig.client.loss(), Some(Loss::Closed));
}

#[tokio::test]
async fn an_agent_that_stands_still_is_lost() {
    let options = Options {
        ping_interval: Duration::from_millis(50),
        ping_deadline: Duration::from_millis(400),
        answer_deadline: Duration::from_secs(30),
    };
    let rig = Rig::start(options, true).await;
    let Some(pid) = rig.pid() else { return eprintln!("skipped: the agent at HUTCH_AGENT_SOCKET is not ours to stop") };
    let agent = agent_of(pid);
    // A command that says nothing for longer than the deadline is no reason.
    assert_eq!(rig.shell("sleep 1; echo ok").await, "ok\n");
    let mut execution = rig.client.exec(&Exec::shell("echo ready; sleep 68")).await.unwrap();
    assert_eq!(execution.next().await.unwrap(), Some(Event::Stdout("ready\n".into())));
    kill_process(agent, Signal::STOP).unwrap();
    let result = tokio::time::timeout(PATIENCE, execution.next()).await.unwrap();
    kill_process(agent, Signal::CONT).unwrap();
    assert!(matches!(result, Err(ClientError::Lost { loss: Loss::Unresponsive, .. })), "{result:?}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_a_deadline_and_no_loss() {
    let rig = Rig::new().await;
    let Some(pid) = rig.pid() else { return eprintln!("skipped: the agent at HUTCH_AGENT_SOCKET is not ours to stop") };
    let agent = agent_of(pid);
    kill_process(agent, Signal::STOP).unwrap();
    let result = rig.client.deadline(Duration::from_millis(100)).stats().await;
    kill_process(agent, Signal::CONT).unwrap();
    assert!(matches!(result, Err(ClientError::Deadline { .. })), "{result:?}");
    assert_eq!(rig.shell("echo ok").await, "ok\n");
    rig.finish().await;
}

/// `unshare` executes the agent itself, so that its process is the agent.
fn agent_of(pid: rustix::process::Pid) -> rustix::process::Pid {
    pid
}
