//! Rules about Rust source files.

use std::path::Path;

use super::Finding;
use super::rust_text::{RustText, has_word, word_positions};
use super::tree::Tree;

/// Lines of a file that is not a test.
const FILE_LINES: Limit = Limit { aim: 400, hard: 800 };
/// Lines of a function.
const FUNCTION_LINES: Limit = Limit { aim: 60, hard: 120 };

#[derive(Debug)]
struct Limit {
    aim: usize,
    hard: usize,
}

/// Words that say nothing; the field's own word is always better.
const EMPTY_WORDS: [&str; 8] = ["manager", "service", "helper", "util", "utils", "common", "handler", "info"];

/// Crates that must not know that `/dev/kvm` exists, for they never open it (invariant 2).
const WITHOUT_KVM: [&str; 3] = ["crates/daemon/", "crates/engine/", "crates/api/"];

/// Where a status code or a schema may be spoken of (invariant 3). The vocabulary's types say how they look in a schema
/// when the contract asks for it by a feature.
const CONTRACT: [&str; 2] = ["crates/api/", "crates/units/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let parsed = RustText::parse(path, text);
        findings.extend(unsafe_in_its_place(path, text, &parsed));
        findings.extend(no_unwrap(path, &parsed));
        findings.extend(names(path, &parsed));
        findings.extend(sizes(path, &parsed));
        findings.extend(only_modules(path, &parsed));
        findings.extend(no_kvm(path, &parsed));
        findings.extend(contract_words(path, &parsed));
    }
    findings
}

fn place(path: &str, line: usize) -> String {
    format!("{path}:{line}")
}

fn is_sys(path: &str) -> bool {
    path.ends_with("/sys.rs") || path.contains("/sys/")
}

fn unsafe_in_its_place(path: &str, text: &str, parsed: &RustText) -> Vec<Finding> {
    let original: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for (line, code) in parsed.code.lines().enumerate().map(|(line, code)| (line + 1, code)) {
        for at in word_positions(code, "unsafe") {
            let after = code[at + "unsafe".len()..].trim_start();
            if after.starts_with('(') {
                // `#[unsafe(no_mangle)]` and its like are said by an attribute, but belong in the same place.
            } else if !explained(&original[..line], after.starts_with("fn") || after.starts_with("extern")) {
                findings.push(Finding::error("unsafe", place(path, line), "needs a `// SAFETY:` comment right above"));
            }
            if !is_sys(path) {
                let text = "`unsafe` stands only in modules named `sys`";
                findings.push(Finding::error("unsafe", place(path, line), text));
            }
        }
    }
    findings
}

/// Whether the lines up to and with the one of the `unsafe` explain it: in the comment above the statement.
fn explained(lines: &[&str], declaration: bool) -> bool {
    const STATEMENT_LINES: usize = 8;
    let marks = if declaration { ["# Safety", "SAFETY:"] } else { ["SAFETY:", "SAFETY:"] };
    let above = lines.iter().rev().take(STATEMENT_LINES);
    let mut statement_ended = false;
    for (distance, line) in above.enumerate() {
        let line = line.trim();
        if marks.iter().any(|mark| line.contains(mark)) {
            return true;
        }
        let comment = line.starts_with("//") || line.starts_with("#[");
        statement_ended |= distance > 0 && !comment && (line.ends_with(';') || line.ends_with('}') || line.is_empty());
        if statement_ended && !comment {
            return false;
        }
    }
    false
}

fn no_unwrap(path: &str, parsed: &RustText) -> Vec<Finding> {
    let text = "no `unwrap` outside tests: `expect` states why it cannot fail, or the error is returned";
    let found = parsed.code_lines().filter(|(_, code)| code.replace(' ', "").contains(".unwrap()"));
    found.map(|(line, _)| Finding::error("unwrap", place(path, line), text)).collect()
}

fn names(path: &str, parsed: &RustText) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    findings
        .extend(empty_word(stem).map(|word| Finding::error("names", path, format!("the file's name says `{word}`"))));
    for (line, code) in parsed.code_lines() {
        for keyword in ["struct", "enum", "trait", "union", "type", "mod"] {
            for at in word_positions(code, keyword) {
                let name: String = code[at + keyword.len()..]
                    .trim_start()
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if let Some(word) = empty_word(&name) {
                    let text = format!("`{name}` says `{word}`, which says nothing: use the field's own word");
                    findings.push(Finding::error("names", place(path, line), text));
                }
            }
        }
    }
    findings
}

/// The empty word in a name, in `CamelCase` or `snake_case`.
fn empty_word(name: &str) -> Option<String> {
    let mut words = vec![String::new()];
    let mut lower_before = false;
    for c in name.chars() {
        if c == '_' || c == '-' || (c.is_uppercase() && lower_before) {
            words.push(String::new());
        }
        lower_before = c.is_lowercase() || c.is_ascii_digit();
        if let Some(word) = words.last_mut()
            && c.is_alphanumeric()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.into_iter().find(|word| EMPTY_WORDS.contains(&word.as_str()))
}

fn sizes(path: &str, parsed: &RustText) -> Vec<Finding> {
    let mut findings: Vec<Finding> = over(&FILE_LINES, parsed.length(), path, "the file").into_iter().collect();
    for function in parsed.functions() {
        let what = format!("`{}`", function.name);
        findings.extend(over(&FUNCTION_LINES, function.lines, &place(path, function.line), &what));
    }
    findings
}

fn over(limit: &Limit, lines: usize, place: &str, what: &str) -> Option<Finding> {
    let text = format!("{what} has {lines} lines outside tests (aim for {}, at most {})", limit.aim, limit.hard);
    match lines {
        lines if lines > limit.hard => Some(Finding::error("size", place, text)),
        lines if lines > limit.aim => Some(Finding::warning("size", place, text)),
        _ => None,
    }
}

/// `lib.rs` and `mod.rs` list modules; code lives in the modules.
fn only_modules(path: &str, parsed: &RustText) -> Vec<Finding> {
    if !(path.ends_with("/lib.rs") || path.ends_with("/mod.rs")) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, code) in parsed.code_lines() {
        let found = ["fn", "struct", "enum", "trait", "impl", "const", "static", "union", "macro_rules"]
            .into_iter()
            .find(|word| has_word(code, word));
        if let Some(word) = found {
            let text = format!("holds a `{word}`: this file is for module lines and re-exports");
            findings.push(Finding::error("only-modules", place(path, line), text));
        }
    }
    findings
}

fn no_kvm(path: &str, parsed: &RustText) -> Vec<Finding> {
    let probe = path.ends_with("/probe.rs");
    if probe || !WITHOUT_KVM.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let found = parsed.lines_with_strings().filter(|(_, code)| code.contains("/dev/kvm"));
    let text = "names /dev/kvm: only a probe may, the service never opens it";
    found.map(|(line, _)| Finding::error("no-kvm", place(path, line), text)).collect()
}

fn contract_words(path: &str, parsed: &RustText) -> Vec<Finding> {
    if !path.starts_with("crates/") || CONTRACT.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, code) in parsed.code_lines() {
        for word in ["StatusCode", "JsonSchema", "schemars", "schema_for"] {
            if has_word(code, word) {
                let text = format!("`{word}`: only `api` knows a status code or a schema");
                findings.push(Finding::error("contract", place(path, line), text));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::{Finding, check, empty_word};

    #[track_caller]
    fn rules(path: &str, text: &str, expected: &[&str]) {
        let findings: Vec<Finding> = check(&Tree::of(&[(path, text)]));
        let found: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(found, expected, "{findings:?}");
    }

    #[test]
    fn unsafe_stands_in_sys_and_says_why() {
        let explained = "fn a() {\n    // SAFETY: it is.\n    let b = unsafe { c() };\n}\n";
        rules("crates/jail/src/sys.rs", explained, &[]);
        rules("crates/jail/src/sys/mount.rs", explained, &[]);
        rules("crates/jail/src/mount.rs", explained, &["unsafe"]);
        rules("crates/jail/src/sys.rs", "fn a() {\n    unsafe { c() };\n}\n", &["unsafe"]);
        let far = "fn a() {\n    // SAFETY: it is.\n    unsafe { c() };\n\n    unsafe { d() };\n}\n";
        rules("crates/jail/src/sys.rs", far, &["unsafe"]);
        let split = "fn a() {\n    // SAFETY: it is.\n    let b =\n        unsafe { c() };\n}\n";
        rules("crates/jail/src/sys.rs", split, &[]);
        rules("crates/jail/src/lib.rs", "#![deny(unsafe_op_in_unsafe_fn)]\n// unsafe\n", &[]);
    }

    #[test]
    fn unwrap_is_for_tests() {
        rules("crates/a/src/a.rs", "fn a() { b.unwrap(); }\n", &["unwrap"]);
        rules("crates/a/src/a.rs", "fn a() { b\n    .unwrap(); }\n", &["unwrap"]);
        rules(
            "crates/a/src/a.rs",
            "fn a() { b.unwrap_or(1); }\n#[cfg(test)]\nmod tests { fn a() { b.unwrap(); } }\n",
            &[],
        );
        rules("crates/a/tests/a.rs", "fn a() { b.unwrap(); }\n", &[]);
    }

    #[test]
    fn empty_words_are_found_in_names() {
        rules("crates/a/src/a.rs", "struct SandboxManager;\n", &["names"]);
        rules("crates/a/src/a.rs", "mod path_utils;\n", &["names"]);
        rules("crates/a/src/common.rs", "", &["names"]);
        rules("crates/a/src/a.rs", "struct Information; // a Manager\nuse tower::Service;\n", &[]);
        assert_eq!(empty_word("HTTPHandler").as_deref(), None, "an acronym runs into the next word");
        assert_eq!(empty_word("HttpHandler").as_deref(), Some("handler"));
        assert_eq!(empty_word("Informed"), None);
    }

    #[test]
    fn long_files_and_functions_are_found() {
        let function = |lines: usize| format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines));
        rules("crates/a/src/a.rs", &function(58), &[]);
        rules("crates/a/src/a.rs", &function(59), &["size"]);
        rules("crates/a/src/a.rs", &"use a;\n".repeat(400), &[]);
        rules("crates/a/src/a.rs", &"use a;\n".repeat(401), &["size"]);
        let findings = check(&Tree::of(&[("crates/a/src/a.rs", &function(130))]));
        assert_eq!(findings[0].level, super::super::Level::Error);
    }

    #[test]
    fn a_list_of_modules_holds_no_code() {
        rules("crates/a/src/lib.rs", "//! A fn.\nmod b;\npub use b::C;\n#[cfg(test)]\nmod tests { fn a() {} }\n", &[]);
        rules("crates/a/src/lib.rs", "mod b;\nfn c() {}\n", &["only-modules"]);
    }

    #[test]
    fn only_a_probe_names_the_virtualization_device() {
        let text = "fn a() { open(\"/dev/kvm\"); }\n// opens /dev/kvm\n";
        rules("crates/daemon/src/a.rs", text, &["no-kvm"]);
        rules("crates/engine/src/probe.rs", text, &[]);
        rules("crates/cli/src/doctor.rs", text, &[]);
    }

    #[test]
    fn status_codes_are_the_contracts() {
        let text = "use http::StatusCode;\n";
        rules("crates/daemon/src/a.rs", text, &["contract"]);
        rules("crates/api/src/http.rs", text, &[]);
    }
}
