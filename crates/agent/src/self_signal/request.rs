//! The little of HTTP/1.1 that a self signal needs: the head of one request, and the reply to it. No I/O, no
//! state, and an answer for every sequence of bytes.
//!
//! | request | reply |
//! |---|---|
//! | `POST /self/pause`, `POST /self/delete`, either with `?reason=` | 202 |
//! | another method on these | 405 |
//! | another path | 404 |
//! | `reason` too long or wrongly encoded, or no HTTP | 400 |
//! | sent by a page in a browser (it has an `Origin`) | 403 |

use hutch_protocol::machine::{REASON_MAX, SelfAction};

use super::SelfSignal;

/// Most bytes of a request's head.
pub(crate) const HEAD_MAX: usize = 8 << 10;

/// What is to be done about the bytes that have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// More have to come.
    Incomplete,
    /// This is the reply, and what the request asks for.
    Reply(Reply),
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    status: Status,
    message: String,
    /// The method was HEAD: the reply has no body.
    head: bool,
    /// What is asked for, if that was accepted.
    pub(crate) signal: Option<SelfSignal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Accepted = 202,
    BadRequest = 400,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    HeadTooLarge = 431,
    Version = 505,
}

impl Status {
    const fn reason(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::BadRequest => "Bad Request",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not Found",
            Self::MethodNotAllowed => "Method Not Allowed",
            Self::HeadTooLarge => "Request Header Fields Too Large",
            Self::Version => "HTTP Version Not Supported",
        }
    }
}

impl Reply {
    fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), head: false, signal: None }
    }

    /// The bytes to send; afterwards the connection is closed.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let key = if self.status == Status::Accepted { "status" } else { "error" };
        let body = format!("{}\n", serde_json::json!({ key: self.message }));
        let allow = if self.status == Status::MethodNotAllowed { "allow: POST\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{allow}connection: close\r\n\r\n",
            self.status as u16,
            self.status.reason(),
            body.len()
        );
        let mut bytes = head.into_bytes();
        if !self.head {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// Judges what has come so far; `ended`: no more will.
pub(crate) fn judge(received: &[u8], ended: bool) -> Judgement {
    let head = received.get(..HEAD_MAX).unwrap_or(received);
    if let Some(length) = head_length(head) {
        return Judgement::Reply(answer(&head[..length]).unwrap_or_else(|reply| reply));
    }
    if received.len() >= HEAD_MAX {
        let message = format!("the head of the request is longer than {HEAD_MAX} bytes");
        return Judgement::Reply(Reply::new(Status::HeadTooLarge, message));
    }
    if ended && !received.is_empty() {
        return Judgement::Reply(Reply::new(Status::BadRequest, "the request ended before its empty line"));
    }
    Judgement::Incomplete
}

/// Length up to the empty line that ends the head, if it has come. Lines may end without a carriage return.
fn head_length(received: &[u8]) -> Option<usize> {
    let mut start = 0;
    while let Some(length) = received.get(start..)?.iter().position(|byte| *byte == b'\n') {
        let line = &received[start..start + length];
        // An empty first line is no head but a request that is missing, and an error below.
        if line.is_empty() || line == b"\r" {
            return Some(start);
        }
        start += length + 1;
    }
    None
}

fn answer(head: &[u8]) -> Result<Reply, Reply> {
    let bad = |message: &str| Reply::new(Status::BadRequest, message);
    let head = std::str::from_utf8(head).map_err(|_| bad("the head of the request is not UTF-8"))?;
    let mut lines = head.lines();
    let (method, target) = request_line(lines.next().unwrap_or_default())?;
    let with_head = |reply: Reply| Reply { head: method == "HEAD", ..reply };
    let page = "a page in a browser may not do this: send the request without an Origin";
    for line in lines {
        let (name, _) = line.split_once(':').ok_or_else(|| bad("a header has no colon"))?;
        if name.is_empty() || name.contains(|byte: char| byte.is_whitespace() || byte.is_control()) {
            return Err(bad("the name of a header is empty or contains a space"));
        }
        // Browsers put it into every such request that a page makes to another origin, and nothing else does.
        if name.eq_ignore_ascii_case("origin") {
            return Err(with_head(Reply::new(Status::Forbidden, page)));
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let action = match path {
        "/self/pause" => SelfAction::Pause,
        "/self/delete" => SelfAction::Delete,
        _ => {
            let message = "there is only POST /self/pause and POST /self/delete";
            return Err(with_head(Reply::new(Status::NotFound, message)));
        }
    };
    if method != "POST" {
        return Err(with_head(Reply::new(Status::MethodNotAllowed, format!("{path} takes POST"))));
    }
    let reason = reason(query).map_err(|message| bad(&message))?;
    Ok(Reply { signal: Some(SelfSignal { action, reason }), ..Reply::new(Status::Accepted, "accepted") })
}

/// Method and target; of an absolute target what follows the authority.
fn request_line(line: &str) -> Result<(&str, &str), Reply> {
    let bad = |message: &str| Reply::new(Status::BadRequest, message);
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the first line is not METHOD TARGET HTTP/1.1"));
    };
    let minor = match version.strip_prefix("HTTP/") {
        None => return Err(bad("the first line does not end with HTTP/1.1")),
        Some(version) => version.strip_prefix("1."),
    };
    if minor.is_none_or(|minor| minor.len() != 1 || !minor.as_bytes()[0].is_ascii_digit()) {
        return Err(Reply::new(Status::Version, "this speaks HTTP/1.1"));
    }
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(bad("the method is not in capital letters"));
    }
    let origin_form = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            rest.find('/').map_or("/", |start| rest.get(start..).unwrap_or("/"))
        }
        _ => target,
    };
    if origin_form.starts_with('/') { Ok((method, origin_form)) } else { Err(bad("the target is no path")) }
}

/// The parameter `reason`, decoded; of several the first.
fn reason(query: &str) -> Result<Option<String>, String> {
    let Some(encoded) = query.split('&').find_map(|pair| pair.strip_prefix("reason=")) else { return Ok(None) };
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'+', _) => (b' ', after),
            (b'%', [high, low, after @ ..]) => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                let value = digit(high).zip(digit(low)).map(|(high, low)| (high * 16 + low) as u8);
                (value.ok_or("reason has a % without two hexadecimal digits")?, after)
            }
            (b'%', _) => return Err("reason has a % without two hexadecimal digits".to_owned()),
            (byte, _) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    let text = String::from_utf8(bytes).map_err(|_| "reason is not UTF-8")?;
    let count = text.chars().count();
    if count > REASON_MAX {
        return Err(format!("reason has {count} characters: it may have {REASON_MAX}"));
    }
    // It is shown in lists and logs.
    let text: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Status and what is asked for.
    fn reply(request: &str) -> (u16, Option<SelfSignal>) {
        match judge(request.as_bytes(), false) {
            Judgement::Reply(reply) => (reply.status as u16, reply.signal),
            Judgement::Incomplete => panic!("no reply to {request:?}"),
        }
    }

    fn status(request: &str) -> u16 {
        let (status, signal) = reply(request);
        assert_eq!(signal.is_some(), status == 202);
        status
    }

    fn accepted(target: &str) -> (SelfAction, Option<String>) {
        let (status, signal) = reply(&format!("POST {target} HTTP/1.1\r\nhost: 127.0.0.1:1029\r\n\r\n"));
        let signal = signal.unwrap_or_else(|| panic!("{target}: {status}"));
        (signal.action, signal.reason)
    }

    #[test]
    fn what_is_meant_is_understood() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(accepted("/self/pause"), (SelfAction::Pause, None));
        assert_eq!(accepted("/self/delete?"), (SelfAction::Delete, None));
        assert_eq!(accepted("/self/delete?reason="), (SelfAction::Delete, None));
        assert_eq!(
            accepted("/self/pause?x=1&reason=all+is%20done%21&reason=no"),
            (SelfAction::Pause, text("all is done!"))
        );
        assert_eq!(accepted("/self/pause?reason=%C3%A9%0Aa"), (SelfAction::Pause, text("é a")));
        assert_eq!(accepted("http://127.0.0.1:1029/self/pause?reason=é"), (SelfAction::Pause, text("é")));
        assert_eq!(accepted(&format!("/self/pause?reason={}", "%C3%A9".repeat(128))).1, text(&"é".repeat(128)));
        assert_eq!(status("POST /self/pause HTTP/1.0\n\n"), 202, "lines without carriage return");
        assert_eq!(
            status("POST /self/pause HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello"),
            202,
            "a body is not looked at"
        );
    }

    #[test]
    fn what_is_not_there_or_not_so_is_said() {
        assert_eq!(status("GET /self/pause HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(status("DELETE /self/delete?reason=x HTTP/1.1\r\n\r\n"), 405);
        for path in ["/", "/self", "/self/pause/", "/self/resume", "//self/pause", "/self/../self/pause", "/SELF/PAUSE"]
        {
            assert_eq!(status(&format!("POST {path} HTTP/1.1\r\n\r\n")), 404, "{path}");
        }
        assert_eq!(status("POST /self/pause HTTP/1.1\r\nHost: x\r\nORIGIN: null\r\n\r\n"), 403);
        for query in ["reason=%", "reason=%4", "reason=%zz", "reason=%ff", &format!("reason={}", "a".repeat(129))] {
            assert_eq!(status(&format!("POST /self/pause?{query} HTTP/1.1\r\n\r\n")), 400, "{query}");
        }
        assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
        assert_eq!(status("POST /self/pause HTTP/1.11\r\n\r\n"), 505);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in [
            "",
            "POST",
            "POST /self/pause",
            "POST  /self/pause HTTP/1.1",
            "POST /self/pause HTTP/1.1 x",
            "POST /self/pause FTP/1.1",
            "post /self/pause HTTP/1.1",
            "POST self/pause HTTP/1.1",
            "POST https://x/self/pause HTTP/1.1",
            "POST /self/pause HTTP/1.1\r\nno colon",
            "POST /self/pause HTTP/1.1\r\n: x",
            "POST /self/pause HTTP/1.1\r\nname : x",
            "POST /self/pause HTTP/1.1\r\nname: x\r\n folded: y",
        ] {
            assert_eq!(status(&format!("{head}\r\n\r\n")), 400, "{head:?}");
        }
        assert_eq!(status(&format!("POST /self/pause HTTP/1.1\r\nx: {}", "y".repeat(HEAD_MAX))), 431);
        assert!(
            matches!(judge(b"POST /self/pau", true), Judgement::Reply(reply) if reply.status == Status::BadRequest)
        );
        assert_eq!(judge(b"", true), Judgement::Incomplete, "nothing was asked");
    }

    #[test]
    fn replies_are_what_clients_expect() {
        let Judgement::Reply(reply) = judge(b"GET /self/pause HTTP/1.1\r\n\r\n", false) else { panic!() };
        let text = String::from_utf8(reply.encode()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 405 Method Not Allowed\r\n") && head.contains("\r\nallow: POST\r\n"),
            "{head}"
        );
        assert!(head.contains(&format!("content-length: {}", body.len())));
        assert_eq!(body, "{\"error\":\"/self/pause takes POST\"}\n");
        let Judgement::Reply(reply) = judge(b"HEAD /self/pause HTTP/1.1\r\n\r\n", false) else { panic!() };
        assert!(reply.encode().ends_with(b"\r\n\r\n"), "no body after HEAD");
    }

    proptest! {
        #[test]
        fn every_sequence_of_bytes_has_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..400), ended in any::<bool>()) {
            if let Judgement::Reply(reply) = judge(&bytes, ended) {
                prop_assert!(reply.encode().len() < 1024);
            }
        }

        /// However a request is cut, the reply is the same and comes once the head is whole.
        #[test]
        fn nearly_requests_are_judged_when_they_are_whole(
            method in "(POST|GET|post|)", target in "(/self/(pause|delete)|/x|\\*)", query in "(\\?reason=[a-z%+0-9]{0,140})?",
            version in "(HTTP/1\\.[01]|HTTP/2|)", header in "([a-zA-Z-]{0,8}:? ?[a-z]{0,5})?", end in "(\r\n\r\n|\n\n)",
        ) {
            let line = if end.len() == 4 { "\r\n" } else { "\n" };
            let header = if header.is_empty() { header } else { format!("{line}{header}") };
            let request = format!("{method} {target}{query} {version}{header}{end}");
            let whole = judge(request.as_bytes(), false);
            prop_assert_ne!(&whole, &Judgement::Incomplete);
            for cut in 0..request.len() - 2 {
                let part = judge(&request.as_bytes()[..cut], false);
                prop_assert!(part == Judgement::Incomplete || part == whole);
            }
            if let Judgement::Reply(Reply { signal: Some(signal), .. }) = whole {
                prop_assert!(signal.reason.is_none_or(|reason| reason.chars().count() <= REASON_MAX));
            }
        }
    }
}
