//! What saved machines cost, printed.

use std::time::{Duration, Instant};

use hutch_engine::{Identity, Save, Then};

use super::lab::{Lab, SavedMachine, number, output};

/// Prints how long everything takes; fails only when something does. HUTCH_SAMPLES says how often.
pub(crate) async fn what_saved_machines_cost(lab: &Lab) {
    let template = lab.template().await;
    let mut costs = Costs::default();
    for sample in 0..number("HUTCH_SAMPLES", 3) {
        let spec = lab.spec_from(&template);
        let prepared = costs.of("prepare", lab.engine.prepare(&spec, &template.origin(Identity::New))).await.unwrap();
        let machine = costs.of("activate", lab.engine.activate(prepared, &spec)).await.unwrap();
        costs.note("launch", machine.times.unwrap().launch);
        costs.note("resume to agent", machine.times.unwrap().boot);
        costs.note("template to configured", machine.times.unwrap().total());
        costs.of("first command", output(&machine.agent, "echo hi")).await;
        let live = costs.of("live save", lab.save_live(&spec, &machine, &template, &format!("live-{sample}"))).await;
        costs.note("stopped by a live save", stopped(&live));
        let save = Save { directory: lab.place(&format!("pause-{sample}")), then: Then::End };
        let manifest = costs.of("pause", lab.engine.save(&spec, &machine, &save)).await.unwrap();
        costs.of("pause: removing", lab.destroy(&spec, machine)).await;
        let saved = SavedMachine { directory: save.directory, disk: spec.disk.clone(), manifest, ..live };
        let machine = costs.of("resume", lab.start_from(&spec, &saved, Identity::Same)).await;
        costs.of("first command after it", output(&machine.agent, "echo hi")).await;
        lab.destroy(&spec, machine).await;
    }
    costs.print();
}

fn stopped(saved: &SavedMachine) -> Duration {
    Duration::from_micros(saved.manifest.saved.as_ref().and_then(|saved| saved.stopped_us).expect("it was told"))
}

#[derive(Debug, Default)]
struct Costs(Vec<(&'static str, Vec<Duration>)>);

impl Costs {
    async fn of<T>(&mut self, what: &'static str, work: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let done = work.await;
        self.note(what, began.elapsed());
        done
    }

    fn note(&mut self, what: &'static str, took: Duration) {
        match self.0.iter_mut().find(|(name, _)| *name == what) {
            Some((_, all)) => all.push(took),
            None => self.0.push((what, vec![took])),
        }
    }

    fn print(self) {
        for (what, mut all) in self.0 {
            all.sort();
            eprintln!("{what}: p50 {:?}, p90 {:?} of {}", all[all.len() / 2], all[all.len() * 9 / 10], all.len());
        }
    }
}
