//! The images there are.

use std::path::PathBuf;
use std::sync::LazyLock;

use hutch_units::Bytes;

use crate::build;
use crate::built::{BuiltImage, ImageError};
use crate::cache::Cache;
use crate::error::BuildError;
use crate::progress::{Cancel, Progress};
use crate::recipe::Recipe;

const HOOKS: [(&str, &str); 2] = [
    ("finish.sh", include_str!("../../../guest/images/finish.sh")),
    ("devbox.sh", include_str!("../../../guest/images/devbox.sh")),
];

static CATALOGUE: LazyLock<[Image; 2]> = LazyLock::new(|| {
    let parse = |text, bases: &[&Recipe]| {
        Recipe::parse(text, &HOOKS, bases).expect("the recipes in guest/images are valid, a test parses them")
    };
    let debian = parse(include_str!("../../../guest/images/debian-13.toml"), &[]);
    let devbox = parse(include_str!("../../../guest/images/devbox-1.toml"), &[&debian]);
    [Image::from_recipe(devbox), Image::from_recipe(debian)]
});

/// An image that can be built: a recipe and its key.
#[derive(Debug, Clone)]
pub struct Image {
    recipe: Recipe,
    key: String,
}

/// No image has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown image {name:?}, choices: [{}]", choices.join(" "))]
pub struct UnknownImage {
    /// The name that was asked for, cut after 64 characters.
    pub name: String,
    /// The names that exist, without aliases.
    pub choices: Vec<&'static str>,
}

/// An image of the catalogue and what the cache holds of it.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The name, for example `debian:13`.
    pub name: &'static str,
    /// Other names that [`Image::find`] takes.
    pub aliases: Vec<&'static str>,
    /// One line for people.
    pub description: &'static str,
    /// Whether it is what an empty name means.
    pub is_default: bool,
    /// The built image, if there is one.
    pub built: Option<BuiltImage>,
}

impl Image {
    /// All images, the default first.
    pub fn all() -> &'static [Self] {
        &*CATALOGUE
    }

    /// The image that is used when the caller names none.
    pub fn default_image() -> &'static Self {
        let default = Self::all().iter().find(|image| image.recipe.is_default);
        default.expect("one recipe of the catalogue is the default, a test looks for it")
    }

    /// The image with this name or alias; the empty name means the default. The error lists the choices.
    pub fn find(name: &str) -> Result<&'static Self, UnknownImage> {
        if name.is_empty() {
            return Ok(Self::default_image());
        }
        let named = |image: &&Self| image.name() == name || image.recipe.aliases.iter().any(|alias| alias == name);
        Self::all().iter().find(named).ok_or_else(|| UnknownImage {
            name: name.chars().take(64).collect(),
            choices: Self::all().iter().map(Self::name).collect(),
        })
    }

    /// Every image of the catalogue with what the cache holds of it. A damaged image counts as not built.
    pub fn list(cache: &Cache) -> Vec<Listing> {
        let listing = |image: &'static Self| Listing {
            name: image.name(),
            aliases: image.recipe.aliases.iter().map(String::as_str).collect(),
            description: image.description(),
            is_default: image.recipe.is_default,
            built: image.built(cache).ok().flatten(),
        };
        Self::all().iter().map(listing).collect()
    }

    /// An image beyond the catalogue.
    pub fn from_recipe(recipe: Recipe) -> Self {
        let key = recipe.key();
        Self { recipe, key }
    }

    /// The name, for example `debian:13`.
    pub fn name(&self) -> &str {
        &self.recipe.name
    }

    /// One line for people.
    pub fn description(&self) -> &str {
        &self.recipe.description
    }

    /// The content key: changes with the recipe, names the files in the cache.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Where the image lies in the cache once it is built.
    pub fn path(&self, cache: &Cache) -> PathBuf {
        cache.image(&self.key)
    }

    /// The built image, or `None` when the cache has none. Checks size and header, not the content: see
    /// [`BuiltImage::verify`].
    pub fn built(&self, cache: &Cache) -> Result<Option<BuiltImage>, ImageError> {
        BuiltImage::open(cache, &self.key)
    }

    /// The free space that a build needs in the cache.
    pub fn build_space(&self) -> Bytes {
        self.recipe.build_space.bytes()
    }

    /// Builds the image unless the cache has it. Takes from half a minute to some minutes on this thread. Of several
    /// builders, in whatever process, one builds and the others wait for its result.
    ///
    /// # Errors
    /// See [`BuildError`]; nothing is left behind, whichever it is.
    pub fn build(&self, cache: &Cache, progress: &dyn Progress, cancel: &Cancel) -> Result<BuiltImage, BuildError> {
        build::build(self, cache, progress, cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_the_default() {
        assert_eq!(Image::find("debian:13").map(Image::name), Ok("debian:13"));
        assert_eq!(Image::find("devbox").map(Image::name), Ok("devbox:1"));
        assert_eq!(Image::find("").map(Image::name), Ok("devbox:1"));
        assert_eq!(Image::all()[0].name(), Image::default_image().name());
        assert_eq!(Image::all().iter().filter(|image| image.recipe.is_default).count(), 1);
    }

    #[test]
    fn an_unknown_name_lists_the_choices() {
        let error = Image::find("ubuntu:26.04").expect_err("not in the catalogue");
        assert_eq!(error.to_string(), "unknown image \"ubuntu:26.04\", choices: [devbox:1 debian:13]");
        assert_eq!(Image::find(&"x".repeat(1000)).expect_err("no such image").name.len(), 64);
    }

    #[test]
    fn keys_differ() {
        assert_ne!(Image::all()[0].key(), Image::all()[1].key());
    }
}
