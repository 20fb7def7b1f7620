//! Builds in the background.
//!
//! ```text
//!            start                 built
//!  absent ----------> building ------------> ready
//!     ^                  |
//!     |   told once      | failed
//!     +------- failed <--+
//! ```
//!
//! A failure is told to the next who needs the image, and forgotten by that: the one after them builds again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hutch_api::{BuildProgress, Error, ErrorKind, ImageStatus, ImageView, Timestamp};
use hutch_image::{Cancel, Event, Step};

use super::source::{CatalogueEntry, ImageSource, ReadyImage};
use crate::clock::{Clock, Moment};
use crate::metrics::{Count, Metrics};
use crate::report::chain;

/// When to ask again about a build.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long an image is taken to be the one that a name means.
const RECENT: Duration = Duration::from_secs(10);

/// The images of this host.
#[derive(Debug, Clone)]
pub struct Images(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Arc<dyn ImageSource>,
    /// Images that are being built or whose build failed; all others are as the source says.
    builds: Mutex<HashMap<String, Build>>,
    /// Images that were looked for, and when.
    recent: Mutex<HashMap<String, (Instant, ReadyImage)>>,
    clock: Clock,
    metrics: Arc<Metrics>,
    cancel: Cancel,
}

#[derive(Debug, Clone)]
enum Build {
    Running { started_at: Moment, step: String, number: u32, of: u32, percent: Option<u8>, detail: Option<String> },
    Failed { error: String },
}

impl Images {
    /// Images from this source, none being built.
    pub fn new(source: Arc<dyn ImageSource>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared {
            source,
            builds: Mutex::default(),
            recent: Mutex::default(),
            clock,
            metrics,
            cancel: Cancel::default(),
        }))
    }

    /// Where they come from.
    pub fn source(&self) -> Arc<dyn ImageSource> {
        Arc::clone(&self.0.source)
    }

    /// Every image and how far it is, the default first. Blocks for some file reads.
    pub fn views(&self) -> Vec<ImageView> {
        self.0.source.catalogue().into_iter().map(|entry| self.0.view(entry)).collect()
    }

    /// One image, by its name or an alias; `None` when there is no such image.
    pub fn view(&self, name: &str) -> Option<ImageView> {
        let name = self.0.source.resolve(name).ok()?;
        let entry = self.0.source.catalogue().into_iter().find(|entry| entry.name == name)?;
        Some(self.0.view(entry))
    }

    /// The built image of this proper name; without one, begins to build it and answers that.
    ///
    /// # Errors
    /// [`ErrorKind::ImageBuilding`] with the progress while it is built; [`ErrorKind::Internal`], once, when the
    /// build failed.
    pub fn require(&self, name: &str) -> Result<ReadyImage, Error> {
        let mut builds = self.0.builds();
        match builds.get(name) {
            Some(Build::Failed { error }) => {
                let message = format!("the image {name:?} could not be built: {error}; the next request tries again");
                builds.remove(name);
                return Err(Error::new(ErrorKind::Internal, message));
            }
            Some(running @ Build::Running { .. }) => return Err(building(name, running)),
            None => {}
        }
        if let Some(ready) = self.0.source.built(name) {
            let mut recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.insert(name.to_owned(), (Instant::now(), ready.clone()));
            return Ok(ready);
        }
        let running = self.start(&mut builds, name);
        Err(building(name, &running))
    }

    /// The image of this proper name as it was found a moment ago, if it still lies there.
    pub(crate) fn recent(&self, name: &str) -> Option<ReadyImage> {
        let recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, ready) = recent.get(name)?;
        let is_there = || ready.path.metadata().is_ok_and(|metadata| metadata.len() == ready.size.0);
        (at.elapsed() < RECENT && is_there()).then(|| ready.clone())
    }

    /// The built image of this proper name, if there is one. Blocks for some file reads.
    pub(crate) fn built(&self, name: &str) -> Option<ReadyImage> {
        self.0.source.built(name)
    }

    /// Begins to build the image of this proper name, unless it is built or being built.
    pub fn build(&self, name: &str) {
        let mut builds = self.0.builds();
        let is_running = matches!(builds.get(name), Some(Build::Running { .. }));
        if !is_running && self.0.source.built(name).is_none() {
            self.start(&mut builds, name);
        }
    }

    /// Stops the builds that run; they remove what they made.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    fn start(&self, builds: &mut HashMap<String, Build>, name: &str) -> Build {
        let started_at = self.0.clock.now();
        let step = "starting".to_owned();
        let running = Build::Running { started_at, step, number: 0, of: 0, percent: None, detail: None };
        builds.insert(name.to_owned(), running.clone());
        tracing::info!(image = name, "building an image");
        let (shared, name) = (Arc::clone(&self.0), name.to_owned());
        tokio::task::spawn_blocking(move || shared.run(&name));
        running
    }
}

impl Shared {
    /// Builds on this thread.
    fn run(&self, name: &str) {
        // Whatever happens here, also a panic, must not leave a build that is said to run for ever.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.source.build(name, &|event| self.note(name, event), &self.cancel)
        }));
        let error = match outcome {
            Ok(Ok(built)) => {
                self.metrics.count(Count::ImageBuilt);
                tracing::info!(image = name, size = %built.size, "the image is built");
                None
            }
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some("the build panicked".to_owned()),
        };
        let mut builds = self.builds();
        match error {
            Some(error) => {
                self.metrics.count(Count::ImageBuildFailed);
                tracing::error!(image = name, error, "the image could not be built");
                builds.insert(name.to_owned(), Build::Failed { error });
            }
            None => drop(builds.remove(name)),
        }
    }

    /// Takes in an event of a build.
    fn note(&self, name: &str, event: Event) {
        tracing::debug!(image = name, "{event}");
        if let Some(Build::Running { step, number, of, percent, detail, .. }) = self.builds().get_mut(name) {
            match event {
                Event::Step { step: begun, number: place, of: all } => {
                    (*step, *number, *of, *percent, *detail) = (step_text(begun), place, all, None, None);
                }
                Event::Detail { text, percent: done, .. } => {
                    *percent = done;
                    *detail = Some(text);
                }
                Event::Waiting { .. } => "waiting for another build".clone_into(step),
                _ => {}
            }
        }
    }

    fn view(&self, entry: CatalogueEntry) -> ImageView {
        let mut view = ImageView {
            name: entry.name,
            status: ImageStatus::Absent,
            default: entry.is_default,
            description: Some(entry.description),
            size_bytes: None,
            built_at: None,
            progress: None,
            error: None,
        };
        let build = self.builds().get(&view.name).cloned();
        match build {
            Some(running @ Build::Running { .. }) => {
                view.status = ImageStatus::Building;
                view.progress = running.progress();
            }
            Some(Build::Failed { error }) => {
                view.status = ImageStatus::Failed;
                view.error = Some(error);
            }
            None => {
                if let Some(ready) = self.source.built(&view.name) {
                    view.status = ImageStatus::Ready;
                    view.size_bytes = Some(ready.size.0);
                    view.built_at = Timestamp::from_unix_milliseconds(ready.built_at.0);
                }
            }
        }
        view
    }

    fn builds(&self) -> MutexGuard<'_, HashMap<String, Build>> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Build {
    fn progress(&self) -> Option<BuildProgress> {
        let Self::Running { started_at, step, number, of, percent, detail } = self else { return None };
        Some(BuildProgress {
            step: step.clone(),
            percent: overall(*number, *of, *percent),
            detail: detail.clone(),
            started_at: Timestamp::from(started_at.date_time()),
        })
    }
}

/// How much of the whole is done, when all steps count the same.
fn overall(number: u32, of: u32, percent: Option<u8>) -> u8 {
    let done = number.saturating_sub(1) * 100 + u32::from(percent.unwrap_or(0));
    u8::try_from((done / of.max(1)).min(99)).unwrap_or(99)
}

fn step_text(step: Step) -> String {
    step.to_string().to_lowercase()
}

fn building(name: &str, running: &Build) -> Error {
    let message = running.progress().map_or_else(
        || format!("the image {name:?} is being built"),
        |progress| {
            let detail = progress.detail.map(|detail| format!(", {detail}")).unwrap_or_default();
            format!("the image {name:?} is being built: {} % ({}{detail}); try again", progress.percent, progress.step)
        },
    );
    Error::new(ErrorKind::ImageBuilding, message).with_retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests;
