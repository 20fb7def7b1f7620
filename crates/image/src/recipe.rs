//! Recipes: what an image is made of, read from TOML and checked.

use std::path::Path;

use hutch_units::Mebibytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Part of every key: raise it when the same recipe begins to give another image.
const FORMAT: u32 = 1;

/// What an image is made of. Made only by [`Recipe::parse`], so every field has passed its rule.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) description: String,
    pub(crate) is_default: bool,
    pub(crate) build_space: Mebibytes,
    /// The Debian release; without one the tree begins empty.
    pub(crate) suite: Option<String>,
    pub(crate) packages: Vec<String>,
    pub(crate) npm: Vec<NpmPackage>,
    pub(crate) hooks: Vec<Hook>,
}

/// A package of the npm registry whose files go into the tree, pinned by the digest of its tarball.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NpmPackage {
    pub(crate) package: String,
    pub(crate) version: String,
    /// Subresource Integrity, `sha512-` and base 64.
    pub(crate) integrity: String,
    /// What to take out of the tarball; the first component, `package`, is dropped from the names.
    pub(crate) members: Vec<String>,
    /// The directory in the tree, absolute.
    pub(crate) unpack_to: String,
}

/// A shell script that a build runs.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    pub(crate) file: String,
    pub(crate) script: String,
    pub(crate) place: Place,
}

/// Where a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// In the tree as its root.
    #[default]
    Tree,
    /// On the host, with the tree's path in `TREE`: for trees without a shell.
    Host,
}

/// Why a recipe was refused.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// No TOML, an unknown field or one of the wrong type.
    #[error("the recipe is not valid TOML of the expected form")]
    Form {
        /// Where and what.
        #[source]
        source: toml::de::Error,
    },
    /// A field breaks its rule.
    #[error("recipe field `{field}` is {value:?}: expected {expected}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it held.
        value: String,
        /// What it may hold.
        expected: &'static str,
    },
    /// A hook's script was not given.
    #[error("the recipe names the hook {file:?}, which does not exist")]
    Hook {
        /// The file name in the recipe.
        file: String,
    },
    /// `extends` names a recipe that was not given.
    #[error("the recipe extends {name:?}, which is not known")]
    Extends {
        /// The name in the recipe.
        name: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    description: String,
    #[serde(default)]
    default: bool,
    build_space_mib: u32,
    suite: Option<String>,
    extends: Option<String>,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    npm: Vec<NpmPackage>,
    #[serde(default)]
    hook: Vec<HookText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookText {
    file: String,
    #[serde(default)]
    place: Place,
}

impl Recipe {
    /// Reads a recipe. `hooks` are the scripts it may name, as (file name, script); `bases` are the recipes it may
    /// extend: from one of them it takes the suite and the packages.
    pub fn parse(text: &str, hooks: &[(&str, &str)], bases: &[&Self]) -> Result<Self, RecipeError> {
        let text: Text = toml::from_str(text).map_err(|source| RecipeError::Form { source })?;
        let base = match &text.extends {
            None => None,
            Some(name) => match bases.iter().find(|base| base.name == *name) {
                Some(base) => Some(*base),
                None => return Err(RecipeError::Extends { name: name.clone() }),
            },
        };
        let mut packages = base.map(|base| base.packages.clone()).unwrap_or_default();
        packages.extend(text.packages);
        let recipe = Self {
            name: text.name,
            aliases: text.aliases,
            description: text.description,
            is_default: text.default,
            build_space: Mebibytes(text.build_space_mib),
            suite: text.suite.or_else(|| base.and_then(|base| base.suite.clone())),
            packages,
            npm: text.npm,
            hooks: find_hooks(text.hook, hooks)?,
        };
        recipe.check()?;
        Ok(recipe)
    }

    /// The key of the image: SHA-256, in hexadecimal, of all that decides what the image holds, as far as this
    /// recipe decides it (the versions of the Debian packages are those of the day of the build).
    pub fn key(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            // With its length before it, no text can pass for the end of one and the beginning of the next.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add("hutch-image");
        add(&FORMAT.to_string());
        add(&self.name);
        add(self.suite.as_deref().unwrap_or_default());
        add(&self.packages.len().to_string());
        self.packages.iter().for_each(|package| add(package));
        add(&self.npm.len().to_string());
        for npm in &self.npm {
            [&npm.package, &npm.version, &npm.integrity, &npm.unpack_to].into_iter().for_each(|text| add(text));
            add(&npm.members.len().to_string());
            npm.members.iter().for_each(|member| add(member));
        }
        for hook in &self.hooks {
            add(&hook.file);
            add(&hook.script);
            add(&format!("{:?}", hook.place));
        }
        crate::built::hexadecimal(&hash.finalize())
    }

    fn check(&self) -> Result<(), RecipeError> {
        let colon = |name: &str| name.split_once(':').is_some_and(|(left, right)| is_word(left) && is_word(right));
        rule("name", &self.name, colon(&self.name), "a name and a version, for example `debian:13`")?;
        for alias in &self.aliases {
            rule("aliases", alias, is_word(alias) || colon(alias), "lower-case words")?;
        }
        for package in &self.packages {
            rule("packages", package, is_word(package), "names of Debian packages")?;
        }
        if let Some(suite) = &self.suite {
            rule("suite", suite, is_word(suite), "a Debian release, for example `trixie`")?;
        }
        let needs_suite = self.suite.is_none() && !self.packages.is_empty();
        rule("suite", "", !needs_suite, "a Debian release, since there are packages")?;
        self.npm.iter().try_for_each(NpmPackage::check)
    }
}

impl NpmPackage {
    fn check(&self) -> Result<(), RecipeError> {
        let bare = self.package.strip_prefix('@').unwrap_or(&self.package);
        rule("package", &self.package, bare.split('/').all(is_word), "the name of an npm package")?;
        rule("version", &self.version, is_word(&self.version), "one exact version")?;
        rule("integrity", &self.integrity, self.integrity.starts_with("sha512-"), "`sha512-` and base 64")?;
        for member in &self.members {
            rule("members", member, is_inside(member), "relative paths without `..`")?;
        }
        let target = self.unpack_to.strip_prefix('/');
        rule("unpack_to", &self.unpack_to, target.is_some_and(is_inside), "an absolute path without `..`")
    }
}

fn find_hooks(wanted: Vec<HookText>, scripts: &[(&str, &str)]) -> Result<Vec<Hook>, RecipeError> {
    let find = |hook: HookText| match scripts.iter().find(|(file, _)| *file == hook.file) {
        Some((_, script)) => Ok(Hook { file: hook.file, script: (*script).to_owned(), place: hook.place }),
        None => Err(RecipeError::Hook { file: hook.file }),
    };
    wanted.into_iter().map(find).collect()
}

fn rule(field: &'static str, value: &str, holds: bool, expected: &'static str) -> Result<(), RecipeError> {
    if holds { Ok(()) } else { Err(RecipeError::Field { field, value: value.to_owned(), expected }) }
}

/// Lower-case letters and digits first, then also `.`, `+`, `_` and `-`: cannot be taken for an option or a path.
fn is_word(text: &str) -> bool {
    let simple = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(simple) && text.bytes().all(|byte| simple(byte) || b".+_-".contains(&byte))
}

fn is_inside(path: &str) -> bool {
    let path = Path::new(path);
    path.is_relative() && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "name = \"a:1\"\ndescription = \"d\"\nbuild_space_mib = 1\n";

    fn parse(more: &str) -> Result<Recipe, RecipeError> {
        Recipe::parse(&format!("{MINIMAL}{more}"), &[("x.sh", "true\n"), ("y.sh", "false\n")], &[])
    }

    #[track_caller]
    fn refused(more: &str, expected: &str) {
        let error = parse(more).expect_err("the recipe is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn mistakes_name_the_field() {
        refused("sweet = 1", "not valid TOML");
        refused("packages = [\"bash\"]", "`suite`");
        refused("suite = \"trixie\"\npackages = [\"--simulate\"]", "`packages` is \"--simulate\"");
        refused("suite = \"../x\"", "`suite`");
        refused("[[hook]]\nfile = \"z.sh\"", "\"z.sh\"");
        refused("extends = \"b:1\"", "\"b:1\"");
        let npm = |to: &str| {
            format!(
                "[[npm]]\npackage = \"@a/b\"\nversion = \"1.0\"\nintegrity = \"sha512-\"\nmembers = [\"package\"]\nunpack_to = \"{to}\""
            )
        };
        refused(&npm("usr"), "`unpack_to`");
        refused(&npm("/usr/../.."), "`unpack_to`");
        assert!(parse(&npm("/usr/local")).is_ok());
    }

    #[test]
    fn the_key_follows_everything_that_shapes_the_image() {
        let key = |more: &str| parse(more).expect("a valid recipe").key();
        let plain = key("suite = \"trixie\"\npackages = [\"ab\", \"c\"]");
        assert_eq!(plain.len(), 64);
        assert_eq!(plain, key("# A comment.\nsuite = \"trixie\"\npackages = [\"ab\", \"c\"]\naliases = [\"other\"]"));
        for other in [
            "suite = \"trixie\"\npackages = [\"a\", \"bc\"]",
            "suite = \"sid\"\npackages = [\"ab\", \"c\"]",
            "suite = \"trixie\"\npackages = [\"ab\", \"c\"]\n[[hook]]\nfile = \"x.sh\"",
            "suite = \"trixie\"\npackages = [\"ab\", \"c\"]\n[[hook]]\nfile = \"x.sh\"\nplace = \"host\"",
        ] {
            assert_ne!(plain, key(other), "{other}");
        }
        assert_ne!(key("[[hook]]\nfile = \"x.sh\""), key("[[hook]]\nfile = \"y.sh\""));
    }

    #[test]
    fn an_extending_recipe_takes_suite_and_packages() {
        let base = parse("suite = \"trixie\"\npackages = [\"bash\"]\n[[hook]]\nfile = \"x.sh\"").expect("a base");
        let text = "name = \"b:1\"\ndescription = \"d\"\nbuild_space_mib = 1\nextends = \"a:1\"\npackages = [\"git\"]";
        let recipe = Recipe::parse(text, &[], &[&base]).expect("a valid recipe");
        assert_eq!(recipe.packages, ["bash", "git"]);
        assert_eq!(recipe.suite.as_deref(), Some("trixie"));
        assert!(recipe.hooks.is_empty());
    }
}
