//! The programs that a build needs, and what of them ends up in the kernel.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::key;

/// Programs and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 13] = [
    ("gcc", "build-essential"),
    ("make", "build-essential"),
    ("ld", "binutils"),
    ("strip", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("m4", "m4"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("patch", "patch"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];

/// Fails with the command that installs what is missing.
pub(super) fn check() -> Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| env::split_paths(&path).any(|directory| directory.join(program).is_file());
    let missing = missing(is_there);
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    bail!("the kernel's build needs {}: run `apt-get install {}`", programs.join(", "), packages.join(" "))
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
    PROGRAMS.into_iter().filter(|(program, _)| !is_there(program)).collect()
}

/// The compiler and the linker by version, the C library by the digest of what is linked in.
pub(super) fn toolchain() -> Result<String> {
    let compiler = first_line("gcc", &["--version"])?;
    let linker = first_line("ld", &["--version"])?;
    let library = first_line("gcc", &["-print-file-name=libc.a"])?;
    let library = Path::new(&library);
    if !library.is_absolute() {
        bail!("there is no static C library to link the kernel with: run `apt-get install libc6-dev`");
    }
    Ok(format!("{compiler}\n{linker}\n{}\n", key::file_sha256(library)?))
}

fn first_line(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|_| output.status.success());
    line.map(str::to_owned).with_context(|| format!("{program} {} said nothing", arguments.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_its_package() {
        assert_eq!(missing(|_| true), []);
        assert_eq!(missing(|program| program != "xz"), [("xz", "xz-utils")]);
    }
}
