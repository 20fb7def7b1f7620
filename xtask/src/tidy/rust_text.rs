//! Just enough of Rust's grammar to ask questions of a source file: what is code, what is comment, where the tests
//! are, where each function begins and ends. Line numbers survive every step.

/// A source file, taken apart.
#[derive(Debug)]
pub(super) struct RustText {
    /// Comments and the insides of strings and characters replaced by spaces.
    pub(super) code: String,
    /// Comments replaced by spaces, strings kept.
    pub(super) without_comments: String,
    /// For each line (from 0), whether it belongs to a test.
    test_lines: Vec<bool>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) lines: usize,
}

impl RustText {
    pub(super) fn parse(path: &str, text: &str) -> Self {
        let (code, without_comments) = strip(text);
        let mut test_lines = vec![is_test_path(path); text.lines().count() + 1];
        for (from, to) in test_regions(&code) {
            for line in &mut test_lines[from..=to] {
                *line = true;
            }
        }
        Self { code, without_comments, test_lines }
    }

    /// Lines of code outside of tests, numbered from 1.
    pub(super) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.outside_tests(&self.code)
    }

    /// The same with the strings in it.
    pub(super) fn lines_with_strings(&self) -> impl Iterator<Item = (usize, &str)> {
        self.outside_tests(&self.without_comments)
    }

    /// Lines that do not belong to tests.
    pub(super) fn length(&self) -> usize {
        self.test_lines.iter().filter(|test| !**test).count().saturating_sub(1)
    }

    /// Functions outside of tests.
    pub(super) fn functions(&self) -> Vec<Function> {
        let bytes = self.code.as_bytes();
        let mut functions = Vec::new();
        for at in word_positions(&self.code, "fn") {
            let name: String =
                self.code[at + 2..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(open) = body_start(bytes, at) else { continue };
            let Some(close) = matching_brace(bytes, open) else { continue };
            let (line, last) = (line_of(&self.code, at), line_of(&self.code, close));
            if !name.is_empty() && !self.test_lines[line] {
                functions.push(Function { name, line: line + 1, lines: last - line + 1 });
            }
        }
        functions
    }

    fn outside_tests<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        text.lines().enumerate().filter(|(line, _)| !self.test_lines[*line]).map(|(line, text)| (line + 1, text))
    }
}

/// Whether `word` stands in `line` as a whole word.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    !word_positions(line, word).is_empty()
}

/// Where `word` stands in `text` as a whole word.
pub(super) fn word_positions(text: &str, word: &str) -> Vec<usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| {
            !text[..*at].chars().next_back().is_some_and(part_of_word)
                && !text[at + word.len()..].chars().next().is_some_and(part_of_word)
        })
        .collect()
}

fn is_test_path(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/benches/")
        || path.contains("/fuzz_targets/")
}

/// The text twice: once with comments and strings blanked, once with comments blanked.
fn strip(text: &str) -> (String, String) {
    let mut code = Blanker::default();
    let mut with_strings = Blanker::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, kind) = token(rest, code.previous);
        let piece = &rest[..length];
        match kind {
            Kind::Code => {
                code.keep(piece);
                with_strings.keep(piece);
                code.previous = Some(first);
            }
            Kind::Comment => {
                code.blank(piece);
                with_strings.blank(piece);
            }
            Kind::Text => {
                code.quote(piece);
                with_strings.keep(piece);
                code.previous = Some('"');
            }
        }
        rest = &rest[length..];
    }
    (code.out, with_strings.out)
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Text,
}

/// The length and kind of what `rest` begins with. `previous` is the last character of code before it.
fn token(rest: &str, previous: Option<char>) -> (usize, Kind) {
    let bytes = rest.as_bytes();
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(bytes), Kind::Comment);
    }
    let after_word = previous.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !after_word {
        let prefix = rest.bytes().take_while(|b| matches!(b, b'b' | b'c' | b'r')).count();
        if prefix <= 2 {
            let raw = rest[..prefix].contains('r');
            let hashes = rest[prefix..].bytes().take_while(|b| *b == b'#').count();
            if raw && bytes.get(prefix + hashes) == Some(&b'"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let start = prefix + hashes + 1;
                return (rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len()), Kind::Text);
            }
            if bytes.get(prefix) == Some(&b'"') {
                return (prefix + quoted(&bytes[prefix..], b'"'), Kind::Text);
            }
        }
    }
    if bytes[0] == b'\'' && is_character(rest) {
        return (quoted(bytes, b'\''), Kind::Text);
    }
    (rest.chars().next().map_or(0, char::len_utf8), Kind::Code)
}

/// A quote opens a character, not a lifetime, when an escape follows or the next character is followed by a quote.
fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[derive(Debug, Default)]
struct Blanker {
    out: String,
    previous: Option<char>,
}

impl Blanker {
    fn keep(&mut self, piece: &str) {
        self.out.push_str(piece);
    }

    fn blank(&mut self, piece: &str) {
        self.out.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    }

    /// A string without its inside, so that the code around it keeps its form.
    fn quote(&mut self, piece: &str) {
        self.out.push('"');
        self.blank(piece.get(1..piece.len() - 1).unwrap_or(""));
        self.out.push('"');
    }
}

/// First and last line (from 0) of every item under `#[cfg(test)]`.
fn test_regions(code: &str) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut regions = Vec::new();
    for (at, attribute) in code.match_indices("#[cfg(test)]").chain(code.match_indices("#[cfg(all(test")) {
        let after = at + attribute.len();
        let end = match body_start(bytes, after) {
            Some(open) => matching_brace(bytes, open),
            None => code[after..].find(';').map(|offset| after + offset),
        };
        regions.push((line_of(code, at), line_of(code, end.unwrap_or(code.len()))));
    }
    regions
}

/// The brace that opens the body of the item at `from`, if a body comes before the item's end.
fn body_start(bytes: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn matching_brace(bytes: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::{Function, RustText};

    fn code(text: &str) -> String {
        RustText::parse("crates/x/src/x.rs", text).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(code("a // unsafe\nb /* unsafe /* */ unsafe */ c"), "a b c");
        assert_eq!(code(r#"let a = "unsafe \" unsafe"; b"#), "let a = \" \"; b");
        assert_eq!(code(r###"let a = r#"unsafe " unsafe"#; b"###), "let a = \" \"; b");
        assert_eq!(code("let a = b\"x\"; c"), "let a = \" \"; c");
        assert_eq!(code("fn f<'a>(x: &'a str) -> char { '\"' }"), "fn f<'a>(x: &'a str) -> char { \" \" }");
        assert_eq!(code(r"let a = '\''; b"), r#"let a = " "; b"#);
    }

    #[test]
    fn lines_of_tests_are_left_out() {
        let text = "fn a() {\n    b();\n}\n#[cfg(test)]\nmod tests {\n    fn c() { d.unwrap(); }\n}\nfn e() {}\n";
        let parsed = RustText::parse("crates/x/src/x.rs", text);
        let lines: Vec<usize> = parsed.code_lines().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3, 8]);
        assert_eq!(parsed.length(), 4);
        let functions = parsed.functions();
        assert_eq!(
            functions,
            [
                Function { name: "a".to_owned(), line: 1, lines: 3 },
                Function { name: "e".to_owned(), line: 8, lines: 1 }
            ]
        );
    }

    #[test]
    fn a_whole_file_of_tests_is_left_out() {
        assert_eq!(RustText::parse("crates/x/tests/x.rs", "fn a() {}\n").code_lines().count(), 0);
    }
}
