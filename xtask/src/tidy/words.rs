//! What no tracked file may say: the name of a package registry's host, a path of the machine it was written on.

use std::path::Path;

use super::Finding;
use super::tree::Tree;

/// Files made by tools that cannot leave the registry out.
const EXEMPT: [&str; 1] = ["Cargo.lock"];

/// Hosts of package registries, in halves, for this file is checked like any other.
const HOSTS: [(&str, &str); 12] = [
    ("crates", "io"),
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("yarnpkg", "com"),
    ("deb.debian", "org"),
    ("ftp.debian", "org"),
    ("security.debian", "org"),
    ("snapshot.debian", "org"),
    ("static.rust-lang", "org"),
    ("proxy.golang", "org"),
];

/// Folders that many machines have: a checkout there does not make their name a secret of this machine.
const SHARED_FOLDERS: [&str; 8] = ["/", "/home", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr/src"];

pub(super) fn check(tree: &Tree, root: &Path) -> Vec<Finding> {
    let paths = machine_paths(root);
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !EXEMPT.contains(path)) {
        for (number, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", number + 1);
            if let Some(host) = registry_host(line) {
                let text = format!("names the registry's host {host}: ask the machine's own configuration for it");
                findings.push(Finding::error("hosts", place.clone(), text));
            }
            if let Some(found) = paths.iter().find(|found| names_path(line, found)) {
                findings.push(Finding::error("paths", place, format!("names {found}, a path of this machine")));
            }
        }
    }
    findings
}

fn registry_host(line: &str) -> Option<String> {
    HOSTS.iter().map(|(name, domain)| format!("{name}.{domain}")).find(|host| line.contains(host.as_str()))
}

/// The checkout and, unless it is a folder that every machine has, the folder around it.
fn machine_paths(root: &Path) -> Vec<String> {
    let around = root.parent().filter(|parent| !SHARED_FOLDERS.iter().any(|shared| Path::new(shared) == *parent));
    [Some(root), around].into_iter().flatten().map(|path| path.display().to_string()).collect()
}

/// Whether `line` names `path` or something in it.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let mut after = line[at + path.len()..].chars();
        let part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '$');
        !before.is_some_and(part_of_name) && after.next() == Some('/') && after.next().is_some_and(part_of_name)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tree::Tree;
    use super::check;

    #[track_caller]
    fn count(text: &str, expected: usize) {
        let findings = check(&Tree::of(&[("README.md", text)]), Path::new("/build/checkout"));
        assert_eq!(findings.len(), expected, "{findings:?}");
    }

    #[test]
    fn a_registrys_host_is_found() {
        count(&format!("see https://{}.{}/hutch", "crates", "io"), 1);
        count("see Debian's packages", 0);
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        count("built in /build/checkout/target", 1);
        count("notes in /build/notes", 1);
        count("a folder /build/ of its own", 0);
        count("under target/build/checkout and /builder/x and $HOME/build/x", 0);
    }

    #[test]
    fn a_lock_file_may_name_its_registry() {
        let tree = Tree::of(&[("Cargo.lock", &format!("{}.{}", "crates", "io"))]);
        assert!(check(&tree, Path::new("/build/checkout")).is_empty());
    }
}
