//! `cargo xtask codegen`: writes what is made from the program itself, or checks that it is up to date.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Write `docs/reference` from the program, or check it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing; fail when a file is not what the program says.
    #[arg(long)]
    check: bool,
}

/// Each file and the word that `hutch reference` knows it by.
const REFERENCES: [(&str, &str); 2] = [("docs/reference/cli.md", "cli"), ("docs/reference/openapi.json", "openapi")];

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the repository above xtask")?;
    let mut stale = Vec::new();
    for (file, name) in REFERENCES {
        let text = generated(root, name)?;
        let path = root.join(file);
        if std::fs::read(&path).unwrap_or_default() == text {
            continue;
        }
        if options.check {
            stale.push(file);
        } else {
            let folder = path.parent().context("a reference lies in a folder")?;
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
            std::fs::write(&path, text).with_context(|| format!("write {file}"))?;
            println!("wrote {file}");
        }
    }
    if !stale.is_empty() {
        bail!("not what the program says: {}; run `cargo xtask codegen`", stale.join(", "));
    }
    Ok(())
}

fn generated(root: &Path, name: &str) -> Result<Vec<u8>> {
    // The program is run, not linked: this tool must build without the whole of Hutch.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["run", "--quiet", "--locked", "--package", "hutch-cli", "--bin", "hutch", "--", "reference", name])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run hutch reference")?;
    if !output.status.success() {
        bail!("`hutch reference {name}` ended with {}", output.status);
    }
    Ok(output.stdout)
}
