//! What every engine must do with saved machines.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use hutch_engine::agent::ClientError;
use hutch_engine::snapshot::{file, partial};
use hutch_engine::{Identity, MachineSpec, Save, SnapshotError, SnapshotManifest, StartError, Then};
use hutch_protocol::exec::Exec;

use super::lab::{Lab, PATIENCE, SavedMachine, chain, number, output};
use super::life::{check_clock, check_disk, check_life, live};

/// What makes a machine somebody.
const IDENTITY: [&str; 4] =
    ["hostname", "cat /etc/machine-id", "cat /proc/sys/kernel/random/boot_id", "head -c 1024 /dev/urandom | sha256sum"];

pub(crate) async fn a_template_is_cloned(lab: &Lab) {
    let template = lab.template().await;
    assert_eq!(template.manifest.template, None);
    assert_eq!(lab.engine.verify(&template.directory).await.unwrap(), template.manifest);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let spec = lab.spec_from(&template);
        let machine = lab.start_from(&spec, &template, Identity::New).await;
        assert_eq!(machine.record.template, template.manifest.key);
        for question in IDENTITY {
            seen.insert(output(&machine.agent, question).await);
        }
        assert_eq!(output(&machine.agent, "hostname").await, spec.hostname);
        check_clock(&machine.agent).await;
        output(&machine.agent, "test ! -e /root/mine && echo mine > /root/mine && sync").await;
        lab.destroy(&spec, machine).await;
        check_disk(&spec.disk);
    }
    assert_eq!(seen.len(), 3 * IDENTITY.len(), "{seen:?}");
    assert_eq!(lab.engine.verify(&template.directory).await.unwrap(), template.manifest);
    check_disk(&template.disk);
}

/// The two halves of a start; and what is prepared can be dropped.
pub(crate) async fn a_prepared_machine_waits_for_its_name(lab: &Lab) {
    let template = lab.template().await;
    let spec = lab.spec_from(&template);
    let prepared = lab.engine.prepare(&spec, &template.origin(Identity::New)).await.unwrap();
    let refused = prepared.agent.exec(&Exec::shell("true")).await.unwrap().collect(1).await.unwrap_err();
    assert!(matches!(refused, ClientError::Refused { .. }), "{refused}");
    let named = MachineSpec { hostname: "somebody".to_owned(), ..spec.clone() };
    let machine = lab.engine.activate(prepared, &named).await.unwrap();
    assert_eq!(output(&machine.agent, "hostname").await, "somebody");
    lab.destroy(&spec, machine).await;
    let spec = lab.spec_from(&template);
    let prepared = lab.engine.prepare(&spec, &template.origin(Identity::New)).await.unwrap();
    super::kill(prepared.record.pid);
    let error = lab.engine.activate(prepared, &spec).await.unwrap_err();
    assert!(matches!(error, StartError::Ended { .. } | StartError::Agent { .. }), "{}", chain(&error));
    assert_eq!(lab.artefacts(&spec).await, []);
    let spec = lab.spec_from(&template);
    drop(lab.engine.prepare(&spec, &template.origin(Identity::New)).await.unwrap());
    lab.engine.destroy(&spec, None).await.unwrap();
    assert_eq!(lab.artefacts(&spec).await, []);
}

/// Again and again, with a life in it that notices every loss. HUTCH_CYCLES says how often.
pub(crate) async fn a_paused_machine_goes_on_where_it_was(lab: &Lab) {
    let template = lab.template().await;
    let spec = lab.spec_from(&template);
    let mut machine = lab.start_from(&spec, &template, Identity::New).await;
    live(&machine.agent).await;
    let who = output(&machine.agent, "cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname").await;
    let mut count = check_life(&machine.agent, 0).await;
    for cycle in 0..number("HUTCH_CYCLES", 6) {
        let saved = lab.pause(&spec, machine, &template, &format!("pause-{cycle}")).await;
        let saved = saved.unwrap_or_else(|error| panic!("cycle {cycle}: {}", chain(&error)));
        assert_eq!(saved.manifest.template, template.manifest.key);
        machine = lab.start_from(&spec, &saved, Identity::Same).await;
        // What a machine runs from may lose its name.
        std::fs::remove_dir_all(&saved.directory).unwrap();
        check_clock(&machine.agent).await;
        count = check_life(&machine.agent, count).await;
    }
    let still = output(&machine.agent, "cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname").await;
    assert_eq!(still, who);
    lab.destroy(&spec, machine).await;
    check_disk(&spec.disk);
}

/// Never as if they had come to their end.
pub(crate) async fn what_is_attached_at_a_pause_ends_with_an_error(lab: &Lab) {
    let template = lab.template().await;
    let spec = lab.spec_from(&template);
    let machine = lab.start_from(&spec, &template, Identity::New).await;
    let text = "while :; do echo . >> /root/dots; sleep 0.01; done";
    let execution = machine.agent.exec(&Exec::shell(text)).await.unwrap();
    output(&machine.agent, "until [ -s /root/dots ]; do sleep 0.01; done").await;
    let attached = tokio::spawn(execution.collect(1 << 10));
    let saved = lab.pause(&spec, machine, &template, "pause").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, attached).await.expect("it ends").unwrap();
    assert!(matches!(ended, Err(ClientError::Lost { .. })), "{ended:?}");
    let machine = lab.start_from(&spec, &saved, Identity::Same).await;
    output(&machine.agent, "n=$(wc -l < /root/dots); until [ $(wc -l < /root/dots) -gt $n ]; do sleep 0.01; done")
        .await;
    lab.destroy(&spec, machine).await;
}

/// It goes on, and so does the other from where it was saved, each with its own disk.
pub(crate) async fn a_machine_is_saved_while_it_runs(lab: &Lab) {
    let template = lab.template().await;
    let specs = [lab.spec_from(&template)];
    let machine = lab.start_from(&specs[0], &template, Identity::New).await;
    live(&machine.agent).await;
    let before = check_life(&machine.agent, 0).await;
    let saved = lab.save_live(&specs[0], &machine, &template, "live").await;
    check_life(&machine.agent, before).await;
    check_disk(&saved.disk);
    let spec = lab.spec_from(&saved);
    let fork = lab.start_from(&spec, &saved, Identity::New).await;
    let forked = check_life(&fork.agent, before).await;
    assert_eq!(output(&fork.agent, "hostname").await, spec.hostname);
    // Of a fork again, with both older ones going on.
    let again = lab.save_live(&spec, &fork, &template, "again").await;
    check_life(&fork.agent, forked).await;
    check_life(&machine.agent, before).await;
    lab.destroy(&spec, fork).await;
    lab.destroy(&specs[0], machine).await;
    let spec = lab.spec_from(&again);
    let machine = lab.start_from(&spec, &again, Identity::New).await;
    check_life(&machine.agent, forked).await;
    lab.destroy(&spec, machine).await;
    check_disk(&spec.disk);
}

/// Also a program that had begun before.
pub(crate) async fn forks_are_pairwise_different(lab: &Lab) {
    let template = lab.template().await;
    let spec = lab.spec_from(&template);
    let machine = lab.start_from(&spec, &template, Identity::New).await;
    let python = "import os, time, uuid\nuuid.uuid4()\nopen('/tmp/ready', 'w')\n\
                  while not os.path.exists('/tmp/go'): time.sleep(.01)\nopen('/tmp/uuid', 'w').write(str(uuid.uuid4()))\n";
    output(&machine.agent, &format!("printf %s \"{python}\" > /tmp/waits.py")).await;
    output(&machine.agent, "setsid python3 /tmp/waits.py > /tmp/waits.out 2>&1 < /dev/null &").await;
    output(&machine.agent, "until [ -e /tmp/ready ]; do sleep 0.01; done").await;
    let saved = lab.save_live(&spec, &machine, &template, "parent").await;
    lab.destroy(&spec, machine).await;
    let (lab, parent) = (&lab, &saved);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let forks = join_all((0..8).map(|_| async move {
            let spec = lab.spec_from(parent);
            let fork = lab.start_from(&spec, parent, Identity::New).await;
            let mut answers = Vec::new();
            for question in IDENTITY {
                answers.push(output(&fork.agent, question).await);
            }
            check_clock(&fork.agent).await;
            let question = "touch /tmp/go; until [ -s /tmp/uuid ]; do sleep 0.01; done; cat /tmp/uuid";
            answers.push(output(&fork.agent, question).await);
            lab.destroy(&spec, fork).await;
            answers
        }));
        seen.extend(forks.await.concat());
    }
    assert_eq!(seen.len(), 64 * (IDENTITY.len() + 1), "{seen:?}");
}

/// Each with its own words.
pub(crate) async fn what_does_not_fit_is_refused(lab: &Lab) {
    let template = lab.template().await;
    let spec = lab.spec_from(&template);
    let machine = lab.start_from(&spec, &template, Identity::New).await;
    let saved = lab.pause(&spec, machine, &template, "pause").await.unwrap();
    let refused = async |saved: &SavedMachine| {
        let error = lab.engine.start(&spec, &saved.origin(Identity::Same)).await.unwrap_err();
        assert_eq!(lab.artefacts(&spec).await, [], "{error}");
        error
    };
    let without = SavedMachine { template: None, ..saved.clone() };
    assert!(chain(&refused(&without).await).contains("needs the template"));
    let path = saved.directory.join(file::MANIFEST);
    let good = std::fs::read(&path).unwrap();
    let tampered = |change: &dyn Fn(&mut SnapshotManifest)| {
        let mut manifest = saved.manifest.clone();
        change(&mut manifest);
        std::fs::write(&path, serde_json::to_vec(&manifest).unwrap()).unwrap();
    };
    type Change<'a> = (&'a dyn Fn(&mut SnapshotManifest), &'a str);
    let changes: [Change<'_>; 5] = [
        (&|manifest| manifest.version += 1, "version 2"),
        (&|manifest| manifest.processor = "another".to_owned(), "another kind of processor"),
        (&|manifest| manifest.kernel_digest = "another".to_owned(), "belongs to the guest"),
        (&|manifest| manifest.boot_image_digest = "another".to_owned(), "belongs to the guest"),
        (&|manifest| manifest.saved = None, "incomplete"),
    ];
    for (change, words) in changes {
        tampered(change);
        let error = refused(&saved).await;
        assert!(chain(&error).contains(words), "{}", chain(&error));
        let error = lab.engine.verify(&saved.directory).await.unwrap_err();
        assert!(chain(&error).contains(words), "{}", chain(&error));
    }
    std::fs::write(&path, &good).unwrap();
    let state = saved.directory.join(file::STATE);
    let content = std::fs::read(&state).unwrap();
    let mut damaged = content.clone();
    damaged[8] = 99;
    std::fs::write(&state, &damaged).unwrap();
    let error = lab.engine.verify(&saved.directory).await.unwrap_err();
    assert!(matches!(error, SnapshotError::Digest { .. }), "{error}");
    let error = refused(&saved).await;
    assert!(matches!(&error, StartError::Ended { console, .. } if !console.is_empty()), "{}", chain(&error));
    std::fs::write(&state, &content[..4096]).unwrap();
    let error = refused(&saved).await;
    assert!(matches!(error, StartError::Ended { .. }), "{}", chain(&error));
    std::fs::write(&state, &content).unwrap();
    let machine = lab.start_from(&spec, &saved, Identity::Same).await;
    lab.destroy(&spec, machine).await;
}

pub(crate) async fn a_cancelled_clone_leaves_nothing(lab: &Lab) {
    let template = lab.template().await;
    for milliseconds in [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30] {
        let spec = lab.spec_from(&template);
        let origin = template.origin(Identity::New);
        let patience = Duration::from_millis(milliseconds);
        match tokio::time::timeout(patience, lab.engine.start(&spec, &origin)).await {
            Ok(started) => lab.destroy(&spec, started.unwrap()).await,
            Err(_) => lab.engine.destroy(&spec, None).await.unwrap(),
        }
        assert_eq!(lab.artefacts(&spec).await, [], "cancelled after {milliseconds} ms");
    }
}

/// At any moment: the machine is either alive or saved.
pub(crate) async fn a_save_whose_service_is_killed_is_finished_or_gone(lab: &Lab) {
    let template = lab.template().await;
    for milliseconds in [0, 1, 2, 4, 8, 12, 16, 24, 40, 80] {
        let spec = lab.spec_from(&template);
        let directory = lab.place(&format!("killed-{milliseconds}"));
        let record = begin_to_save(lab, &spec, &template, &directory, Duration::from_millis(milliseconds)).await;
        let engine = lab.restarted();
        let adopted = engine.adopt(&spec, &record).await;
        let alive = matches!(&adopted, Ok(machine) if machine.agent.loss().is_none());
        if let (Ok(machine), true) = (&adopted, alive) {
            // The kernel may still be asked, and then the machine ends under our hands, with a loss.
            let answered = machine.agent.exec(&Exec::shell("cat /root/mark")).await;
            if let Ok(execution) = answered {
                drop(execution.collect(16).await);
            }
        }
        let ended = match adopted {
            Ok(machine) => tokio::time::timeout(Duration::from_secs(1), machine.exited()).await.is_ok(),
            Err(_) => true,
        };
        if !ended {
            engine.destroy(&spec, Some(&record)).await.unwrap();
            eprintln!("killed after {milliseconds} ms: alive");
            assert_eq!(engine.finish_save(&directory).await.unwrap(), None);
        } else {
            engine.destroy(&spec, Some(&record)).await.unwrap();
            let manifest = engine.finish_save(&directory).await.unwrap().expect("a machine that ended is saved");
            eprintln!("killed after {milliseconds} ms: saved");
            assert_eq!(engine.finish_save(&directory).await.unwrap(), Some(manifest.clone()));
            let template = Some(template.directory.clone());
            let saved = SavedMachine { directory: directory.clone(), template, disk: spec.disk.clone(), manifest };
            let machine = lab.start_from(&spec, &saved, Identity::Same).await;
            assert_eq!(output(&machine.agent, "cat /root/mark").await, "mark");
            lab.destroy(&spec, machine).await;
        }
        assert!(!partial(&directory).exists());
        assert_eq!(lab.artefacts(&spec).await, []);
    }
}

/// Starts a machine and its save in a service of its own, which ends after some time.
async fn begin_to_save(
    lab: &Lab,
    spec: &MachineSpec,
    template: &SavedMachine,
    directory: &Path,
    after: Duration,
) -> hutch_engine::MachineRecord {
    let (engine, spec, origin) = (lab.restarted(), spec.clone(), template.origin(Identity::New));
    let save = Save { directory: directory.to_owned(), then: Then::End };
    let service = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let record = runtime.block_on(async move {
            let machine = engine.start(&spec, &origin).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
            output(&machine.agent, "echo mark > /root/mark").await;
            let record = machine.record.clone();
            tokio::time::timeout(after, engine.save(&spec, &machine, &save)).await.ok();
            record
        });
        runtime.shutdown_background();
        record
    });
    tokio::task::spawn_blocking(move || service.join().unwrap()).await.unwrap()
}

pub(crate) async fn a_resumed_machine_is_adopted_and_saved_again(lab: &Lab) {
    let template = lab.template().await;
    let spec = lab.spec_from(&template);
    let machine = lab.start_from(&spec, &template, Identity::New).await;
    output(&machine.agent, "echo mark > /tmp/mark").await;
    let saved = lab.pause(&spec, machine, &template, "first").await.unwrap();
    let record = lab.start_from(&spec, &saved, Identity::Same).await.record;
    let engine = lab.restarted();
    let machine = engine.adopt(&spec, &record).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let save = Save { directory: lab.place("second"), then: Then::End };
    let manifest = engine.save(&spec, &machine, &save).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(manifest.template, template.manifest.key);
    drop(machine);
    engine.destroy(&spec, Some(&record)).await.unwrap();
    assert_eq!(lab.artefacts(&spec).await, []);
    let saved = SavedMachine { directory: save.directory, manifest, ..saved };
    let machine = lab.start_from(&spec, &saved, Identity::Same).await;
    assert_eq!(output(&machine.agent, "cat /tmp/mark").await, "mark");
    lab.destroy(&spec, machine).await;
}
