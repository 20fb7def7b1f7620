//! The user-mode engine against the suite that every engine passes, and what is its own. Needs root, the guest
//! (`cargo xtask guest`) and the image debian:13.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod build;
mod conformance;
mod version_2;

use std::path::Path;
use std::time::Duration;

use build::{guest, make, options};
use conformance::lab::{Lab, chain};
use hutch_engine::guest::{GuestFiles, GuestManifest, digest_of_file};
use hutch_engine::usermode::{Options, UserMode};
use hutch_engine::{Engine, Origin, StartError};

/// Says why a test does nothing here. `./test` sets HUTCH_NO_SKIP: what it has prepared must be found.
fn skip(reason: &str) {
    assert!(std::env::var_os("HUTCH_NO_SKIP").is_none(), "skipped: {reason}");
    eprintln!("skipped: {reason}");
}

async fn lab() -> Option<Lab> {
    Lab::open(make).await.map_err(|reason| skip(&reason)).ok()
}

macro_rules! promises {
    ($module:path: $($promise:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            use $module as promised;
            let Some(lab) = lab().await else { return };
            promised::$promise(&lab).await;
        })*
    };
}

promises! { crate::conformance:
    a_machine_runs_commands_and_keeps_files
    a_killed_kernel_is_noticed
    a_guest_may_end_itself
    a_cancelled_start_leaves_nothing
    a_machine_is_adopted_after_a_restart
    two_machines_know_nothing_of_each_other
    machines_come_and_go
    many_machines_start_at_once
    a_noisy_machine_disturbs_nobody
    every_artefact_is_listed_and_can_be_removed
}

promises! { crate::conformance::saved:
    a_template_is_cloned
    a_prepared_machine_waits_for_its_name
    a_paused_machine_goes_on_where_it_was
    what_is_attached_at_a_pause_ends_with_an_error
    a_machine_is_saved_while_it_runs
    forks_are_pairwise_different
    what_does_not_fit_is_refused
    a_cancelled_clone_leaves_nothing
    a_save_whose_service_is_killed_is_finished_or_gone
    a_resumed_machine_is_adopted_and_saved_again
}

promises! { crate::conformance::cost:
    what_saved_machines_cost
}

/// A guest directory with another boot image.
fn guest_with(directory: &Path, boot_image: &[u8]) {
    let files = GuestFiles::open(&guest()).unwrap();
    std::fs::copy(&files.kernel, directory.join(GuestFiles::KERNEL)).unwrap();
    let path = directory.join(GuestFiles::BOOT_IMAGE);
    std::fs::write(&path, boot_image).unwrap();
    let manifest = GuestManifest { boot_image_digest: digest_of_file(&path).unwrap(), ..files.manifest };
    std::fs::write(directory.join(GuestFiles::MANIFEST), serde_json::to_string(&manifest).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_that_cannot_boot_is_told_with_its_last_words() {
    let Some(lab) = lab().await else { return };
    let directory = tempfile::tempdir().unwrap();
    guest_with(directory.path(), &[0; 8192]);
    let spec = lab.spec();
    let sandboxes = spec.state_dir.parent().unwrap();
    let engine = UserMode::new(Options { guest: Some(directory.path().to_owned()), ..options(sandboxes) });
    let error = engine.start(&spec, &Origin::Boot).await.unwrap_err();
    assert!(matches!(&error, StartError::Ended { console, .. } if console.contains("Unable to mount root")), "{error}");
    assert_eq!(lab.artefacts(&spec).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_does_not_change_the_guest_of_a_service_that_runs() {
    let Some(lab) = lab().await else { return };
    let place = tempfile::tempdir().unwrap();
    let installed = place.path().join("guest");
    std::fs::create_dir(&installed).unwrap();
    guest_with(&installed, &std::fs::read(GuestFiles::open(&guest()).unwrap().boot_image).unwrap());
    let spec = lab.spec();
    let sandboxes = spec.state_dir.parent().unwrap();
    let engine = UserMode::new(Options { guest: Some(installed.clone()), ..options(sandboxes) });
    let key = engine.template_key(&spec.base_image, spec.memory, spec.memory).await.unwrap();
    std::fs::rename(&installed, place.path().join("old")).unwrap();
    std::fs::create_dir(&installed).unwrap();
    guest_with(&installed, &[0; 8192]);
    std::fs::remove_dir_all(place.path().join("old")).unwrap();
    assert_eq!(engine.template_key(&spec.base_image, spec.memory, spec.memory).await.unwrap(), key);
    let machine = engine.start(&spec, &Origin::Boot).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(conformance::lab::output(&machine.agent, "echo hi").await, "hi");
    lab.destroy(&spec, machine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_does_not_answer_in_time_is_given_up() {
    let Some(lab) = lab().await else { return };
    let spec = lab.spec();
    let sandboxes = spec.state_dir.parent().unwrap();
    let engine = UserMode::new(Options { start_deadline: Duration::from_millis(30), ..options(sandboxes) });
    let error = engine.start(&spec, &Origin::Boot).await.unwrap_err();
    assert!(matches!(error, StartError::Silent { .. }), "{}", chain(&error));
    assert_eq!(lab.artefacts(&spec).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_named() {
    let Some(lab) = lab().await else { return };
    let mut spec = lab.spec();
    spec.disk = "/nowhere/disk".into();
    let error = lab.engine.start(&spec, &Origin::Boot).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/disk cannot be used as the disk"), "{error}");
    let engine = UserMode::new(Options { launcher: Some("/nowhere/jail".into()), ..options("/tmp".as_ref()) });
    let spec = lab.spec();
    let error = engine.start(&spec, &Origin::Boot).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/jail"), "{error}");
    let findings = engine.probe().await;
    let launcher = findings.iter().find(|finding| finding.subject == "jail launcher").unwrap();
    assert!(launcher.fix.as_ref().unwrap().contains("cargo build"), "{launcher:?}");
    assert_eq!(lab.artefacts(&spec).await, []);
}
