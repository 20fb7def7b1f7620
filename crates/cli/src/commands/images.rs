//! `hutch images`.

use clap::{Args, Subcommand};
use hutch_api::{ImageStatus, ImageView, Timestamp};
use hutch_image::{Cache, Cancel, Event, Image, Listing};
use hutch_units::Bytes;
use serde::Serialize;

use crate::context::{Context, Remote};
use crate::failure::Failure;
use crate::image_build;
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::table::Table;

const AFTER_HELP: &str = "\
Examples:
  hutch images ls
  hutch images build devbox:1     now, and not with the first create that names it

Without a service on this machine both work on the cache itself (HUTCH_CACHE), building as root.";

/// List and build images, the root file systems of sandboxes
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Images {
    /// Work on this machine's cache and do not ask a service
    #[arg(long, global = true)]
    local: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the images and how far each is
    Ls,
    /// Build an image, if it is not built, and wait for it
    Build {
        /// The image
        image: String,
    },
}

/// An image in the cache of this machine, for `--json`.
#[derive(Serialize)]
struct Cached {
    #[serde(flatten)]
    view: ImageView,
    /// Its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<std::path::PathBuf>,
}

impl Images {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = if self.local { None } else { Some(context.service()?) };
        match &self.action {
            Action::Ls => list(context, service.as_ref()).await,
            Action::Build { image } => build(context, service.as_ref(), image).await,
        }
    }
}

async fn list(context: &Context, service: Option<&Remote>) -> Result<u8, Failure> {
    let answered = match service {
        Some(service) => service.if_there(service.client().images().await)?,
        None => None,
    };
    let images = match answered {
        Some(images) => images.into_iter().map(|view| Cached { view, path: None }).collect(),
        None => Image::list(&cache()?).into_iter().map(cached).collect::<Vec<_>>(),
    };
    if context.json() {
        output::print_json(&images)?;
        return Ok(0);
    }
    let mut table = Table::new(["NAME", "STATUS", "SIZE", "DESCRIPTION"]);
    for Cached { view, .. } in images {
        let status = match view.status {
            ImageStatus::Absent => "not built".to_owned(),
            ImageStatus::Ready => "ready".to_owned(),
            ImageStatus::Failed => "failed".to_owned(),
            ImageStatus::Building => match view.progress {
                Some(progress) => format!("building, {} %", progress.percent),
                None => "building".to_owned(),
            },
        };
        let default = if view.default { " (default of the API)" } else { "" };
        let description = format!("{}{default}", view.description.unwrap_or_default());
        let size = view.size_bytes.map_or_else(|| "-".to_owned(), |size| Bytes(size).to_string());
        table.row([view.name, status, size, description]);
    }
    output::print(&table.text())?;
    Ok(0)
}

async fn build(context: &Context, service: Option<&Remote>, name: &str) -> Result<u8, Failure> {
    let answered = match service {
        Some(service) => service.if_there(service.client().build_image(name).await)?.map(|_| service),
        None => None,
    };
    let built = match answered {
        Some(service) => {
            let view = image_build::wait(context, service, name).await?;
            Cached { view, path: None }
        }
        None => build_here(context, name).await?,
    };
    let size = built.view.size_bytes.map(|size| format!(", {}", Bytes(size))).unwrap_or_default();
    context.tell(&format!("ready: {}{size}", built.view.name));
    if context.json() {
        output::print_json(&built)?;
    }
    Ok(0)
}

/// Builds in this process. A signal ends the build, which then removes what it made.
async fn build_here(context: &Context, name: &str) -> Result<Cached, Failure> {
    let image = Image::find(name).map_err(|error| Failure::of(&error))?;
    let cache = cache()?;
    let (cancel, mut signals) = (Cancel::default(), Signals::take()?);
    let mut shown = Shown { progress: Progress::percent(context, name), step: 0, of: 1, title: String::new() };
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let (for_build, stop) = (cache.clone(), cancel.clone());
    let mut build = tokio::task::spawn_blocking(move || {
        // When nobody shows it any more, the progress is of no interest.
        let report = move |event: Event| drop(sender.send(event));
        image.build(&for_build, &report, &stop)
    });
    let built = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => shown.take(event),
            built = &mut build => break built,
            _ = signals.next() => cancel.cancel(),
        }
    };
    drop(shown);
    let built = built.map_err(|error| Failure::because("the build broke off", &error))?;
    built.map_err(|error| Failure::of(&error))?;
    let listed = Image::list(&cache).into_iter().find(|listing| listing.name == image.name());
    listed.map(cached).ok_or_else(|| Failure::new(format!("the image {name} is not where it was put")))
}

fn cache() -> Result<Cache, Failure> {
    Cache::from_environment().map_err(|error| Failure::of(&error))
}

fn cached(listing: Listing) -> Cached {
    let Listing { name, description, is_default, built, .. } = listing;
    let status = if built.is_some() { ImageStatus::Ready } else { ImageStatus::Absent };
    let at = |built: &hutch_image::BuiltImage| i64::try_from(built.built_at).ok()?.checked_mul(1000);
    Cached {
        view: ImageView {
            name: name.to_owned(),
            status,
            default: is_default,
            description: Some(description.to_owned()),
            size_bytes: built.as_ref().map(|built| built.size.0),
            built_at: built.as_ref().and_then(at).and_then(Timestamp::from_unix_milliseconds),
            progress: None,
            error: None,
        },
        path: built.map(|built| built.path),
    }
}

/// A build's events as one bar: each step has an equal part of it.
struct Shown {
    progress: Progress,
    step: u32,
    of: u32,
    title: String,
}

impl Shown {
    fn take(&mut self, event: Event) {
        match event {
            Event::Step { step, number, of } => {
                (self.step, self.of, self.title) = (number, of.max(1), format!("[{number}/{of}] {step}"));
                self.show(0, None);
            }
            Event::Detail { text, percent, .. } => self.show(percent.unwrap_or(0), Some(&text)),
            other => self.progress.at(0, &other.to_string(), None),
        }
    }

    fn show(&mut self, within: u8, detail: Option<&str>) {
        let whole = (self.step.saturating_sub(1) * 100 + u32::from(within)) / self.of;
        self.progress.at(u8::try_from(whole).unwrap_or(100), &self.title, detail);
    }
}
