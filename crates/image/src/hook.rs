//! The scripts of a recipe.

use crate::build::Site;
use crate::error::BuildError;
use crate::program::Program;
use crate::progress::Reporter;
use crate::recipe::{Hook, Place};

/// Enters the tree ($1) and runs the script ($2) there. The mount is in the program's own namespace.
const ENTER: &str = r#"mount -t proc proc "$1/proc"; exec chroot "$1" /bin/sh -euc "$2""#;

/// Runs the script here.
const STAY: &str = r#"exec sh -euc "$2""#;

/// Runs the hooks in their order.
pub(crate) fn run(hooks: &[Hook], site: &Site<'_>, reporter: &mut Reporter<'_>) -> Result<(), BuildError> {
    for hook in hooks {
        reporter.detail(format!("running {}", hook.file));
        let wrapper = match hook.place {
            Place::Tree => ENTER,
            Place::Host => STAY,
        };
        let program = Program::enclosed("sh").args(["-euc", wrapper, "sh"]).arg(site.tree).arg(&hook.script);
        let program = program.plain_environment().env("HOME", "/root").env("DEBIAN_FRONTEND", "noninteractive");
        let program = match hook.place {
            Place::Tree => program,
            Place::Host => program.env("TREE", site.tree),
        };
        program
            .run(site.cancel, |line| reporter.detail(line))
            .map_err(|source| BuildError::Hook { file: hook.file.clone(), source })?;
    }
    Ok(())
}
