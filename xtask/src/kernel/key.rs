//! The key of a kernel: a digest of all that its bytes depend on.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::Patch;

/// All that a kernel is made of.
#[derive(Debug)]
pub(super) struct Ingredients<'a> {
    /// The digest of the source package, in hexadecimal.
    pub(super) source_sha256: &'a str,
    /// In the order in which they apply.
    pub(super) patches: &'a [Patch],
    /// The fragment of the configuration.
    pub(super) config: &'a [u8],
    /// The versions of compiler and linker, and the C library that is linked in.
    pub(super) toolchain: &'a str,
    /// How the build is run.
    pub(super) recipe: &'a str,
}

impl Ingredients<'_> {
    /// The key, in hexadecimal.
    pub(super) fn key(&self) -> String {
        let mut digest = Sha256::new();
        let mut part = |name: &str, bytes: &[u8]| {
            // With its length, so that no part can pass for a piece of its neighbour.
            digest.update(format!("{name} {}\n", bytes.len()));
            digest.update(bytes);
        };
        part("source", self.source_sha256.as_bytes());
        for patch in self.patches {
            part("patch", patch.name.as_bytes());
            part("text", &patch.text);
        }
        part("config", self.config);
        part("toolchain", self.toolchain.as_bytes());
        part("recipe", self.recipe.as_bytes());
        hexadecimal(&digest.finalize())
    }
}

/// The digest of a file, in hexadecimal.
pub(super) fn file_sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut digest = Sha256::new();
    io::copy(&mut file, &mut digest).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hexadecimal(&digest.finalize()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(name: &str, text: &str) -> Patch {
        Patch { name: name.to_owned(), text: text.as_bytes().to_owned() }
    }

    fn key(patches: &[Patch], config: &str, toolchain: &str, recipe: &str) -> String {
        Ingredients { source_sha256: "00", patches, config: config.as_bytes(), toolchain, recipe }.key()
    }

    #[test]
    fn every_ingredient_counts_and_nothing_else() {
        let patches = [patch("0001-a.patch", "one"), patch("0002-b.patch", "two")];
        let first = key(&patches, "CONFIG_A=y", "gcc 12", "1");
        assert_eq!(first, key(&patches, "CONFIG_A=y", "gcc 12", "1"));
        assert_eq!(first.len(), 64);

        let swapped = [patches[1].clone(), patches[0].clone()];
        let renamed = [patch("0001-c.patch", "one"), patches[1].clone()];
        let moved = [patch("0001-a.patch", "onet"), patch("0002-b.patch", "wo")];
        let others = [
            key(&swapped, "CONFIG_A=y", "gcc 12", "1"),
            key(&renamed, "CONFIG_A=y", "gcc 12", "1"),
            key(&moved, "CONFIG_A=y", "gcc 12", "1"),
            key(&patches[..1], "CONFIG_A=y", "gcc 12", "1"),
            key(&patches, "CONFIG_B=y", "gcc 12", "1"),
            key(&patches, "CONFIG_A=y", "gcc 13", "1"),
            key(&patches, "CONFIG_A=y", "gcc 12", "2"),
        ];
        for (position, other) in others.iter().enumerate() {
            assert_ne!(&first, other, "change {position} does not change the key");
        }
    }
}
