//! The build of an image, step by step.
//!
//! ```text
//! built already? ──────────────────────────────────────────────┐
//!   │ no                                                       │
//! lock of the key ── another had it: built now? ───────────────┤
//!   │ no                                                       │
//! work directory ─► packages ─► npm ─► hooks ─► pack ─► rename ─► built
//!   └─ error, cancelled: work directory removed, lock free
//!   └─ killed: lock free; the next build removes the work directory
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use crate::built::{self, BuiltImage, Package};
use crate::cache::{Cache, Lock, Work};
use crate::catalogue::Image;
use crate::erofs::{self, Labels, Owners, Times};
use crate::error::BuildError;
use crate::file::{self, At};
use crate::prerequisite::Prerequisite;
use crate::progress::{Cancel, Event, Progress, Reporter, Step};
use crate::{debian, hook, npm, tree};

pub(crate) fn build(
    image: &Image,
    cache: &Cache,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<BuiltImage, BuildError> {
    // A damaged image counts as not built: the build replaces it.
    if let Ok(Some(built)) = image.built(cache) {
        return Ok(built);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(BuildError::NotRoot { image: image.name().to_owned() });
    }
    let missing = Prerequisite::missing(image);
    if !missing.is_empty() {
        return Err(BuildError::Missing { image: image.name().to_owned(), missing });
    }
    let waiting = || progress.report(Event::Waiting { image: image.name().to_owned() });
    let Some(lock) = cache.lock(image.key(), waiting, cancel)? else {
        return Err(BuildError::Cancelled { image: image.name().to_owned() });
    };
    if let Ok(Some(built)) = image.built(cache) {
        return Ok(built);
    }
    let mut run = Run { image, cache, progress, cancel, steps: steps(image), number: 0 };
    run.all(&lock).map_err(|error| error.or_cancelled(image.name()))
}

/// The steps that this image needs.
fn steps(image: &Image) -> Vec<Step> {
    let recipe = image.recipe();
    let mut steps = vec![Step::Prepare];
    steps.extend(recipe.suite.as_ref().map(|_| Step::Packages));
    steps.extend((!recipe.npm.is_empty()).then_some(Step::Npm));
    steps.extend((!recipe.hooks.is_empty()).then_some(Step::Configure));
    steps.extend([Step::Pack, Step::Publish]);
    steps
}

/// Where the parts of a tree are put.
pub(crate) struct Site<'a> {
    pub(crate) tree: &'a Path,
    /// Takes temporary files.
    pub(crate) scratch: &'a Path,
    pub(crate) cancel: &'a Cancel,
}

struct Run<'a> {
    image: &'a Image,
    cache: &'a Cache,
    progress: &'a dyn Progress,
    cancel: &'a Cancel,
    steps: Vec<Step>,
    number: usize,
}

impl<'a> Run<'a> {
    fn all(&mut self, lock: &Lock) -> Result<BuiltImage, BuildError> {
        let began = SystemTime::now();
        let work = self.prepare(lock)?;
        let tree = work.path().join("tree");
        let packed = work.path().join("image");
        let packages = self.fill(&tree, work.path())?;

        let mut reporter = self.begin(Step::Pack)?;
        tree::clear(&tree)?;
        reporter.detail(format!("{} packages", packages.len()));
        let newest = tree::settle_times(&tree, began)?;
        let uuid = erofs::uuid(self.image.key());
        let labels = Labels { uuid: &uuid, times: Times::AtMost(newest), owners: Owners::Kept };
        erofs::pack([&tree, &packed], labels, self.cancel)?;
        self.publish(&packed, packages)
    }

    fn prepare(&mut self, lock: &Lock) -> Result<Work, BuildError> {
        let mut reporter = self.begin(Step::Prepare)?;
        let work = self.cache.work(lock)?;
        let needed = self.image.build_space();
        let free = self.cache.free_space()?;
        reporter.detail(format!("needs {needed} in {}, free are {free}", self.cache.root().display()));
        if free < needed {
            let cache = self.cache.root().to_owned();
            return Err(BuildError::Space { image: self.image.name().to_owned(), cache, needed, free });
        }
        Ok(work)
    }

    /// Makes the tree; returns what is in it.
    fn fill(&mut self, tree: &Path, work: &Path) -> Result<Vec<Package>, BuildError> {
        let recipe = self.image.recipe();
        let scratch = work.join("scratch");
        file::create_directory(&scratch)?;
        let site = Site { tree, scratch: &scratch, cancel: self.cancel };
        match &recipe.suite {
            Some(suite) => {
                let mut reporter = self.begin(Step::Packages)?;
                debian::install(recipe, suite, &site, &mut reporter)?;
            }
            None => file::create_directory(tree)?,
        }
        if !recipe.npm.is_empty() {
            let mut reporter = self.begin(Step::Npm)?;
            npm::install(&recipe.npm, &site, &mut reporter)?;
        }
        if !recipe.hooks.is_empty() {
            let mut reporter = self.begin(Step::Configure)?;
            hook::run(&recipe.hooks, &site, &mut reporter)?;
        }
        let mut packages = tree::packages(tree)?;
        packages.extend(recipe.npm.iter().map(crate::recipe::NpmPackage::entry));
        Ok(packages)
    }

    /// The image gets its name first, then its description: only with both is it built.
    fn publish(&mut self, packed: &Path, packages: Vec<Package>) -> Result<BuiltImage, BuildError> {
        let mut reporter = self.begin(Step::Publish)?;
        let key = self.image.key();
        let (digest, size) = built::digest(packed)?;
        let built = BuiltImage {
            name: self.image.name().to_owned(),
            key: key.to_owned(),
            path: self.cache.image(key),
            digest,
            size,
            built_at: tree::seconds(SystemTime::now()),
            packages,
        };
        fs::set_permissions(packed, fs::Permissions::from_mode(0o444)).at("set the mode of", packed)?;
        file::publish(packed, &built.path)?;
        let description = packed.with_extension("json");
        fs::write(&description, built.encode()).at("write", &description)?;
        file::publish(&description, &self.cache.description(key))?;
        reporter.detail(format!("{} {}, {}", built.path.display(), built.size, built.digest));
        Ok(built)
    }

    /// Begins a step, unless the build is cancelled.
    fn begin(&mut self, step: Step) -> Result<Reporter<'a>, BuildError> {
        if self.cancel.is_cancelled() {
            return Err(BuildError::Cancelled { image: self.image.name().to_owned() });
        }
        self.number += 1;
        let count = |number: usize| u32::try_from(number).expect("a handful of steps");
        Ok(Reporter::begin(self.progress, step, count(self.number), count(self.steps.len())))
    }
}
