//! How an operation fails: a closed set of kinds, each with a stable code.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// A failed operation: what the caller is told and, apart from it, what the log is told.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of failure it is; decides the status and the code.
    pub kind: ErrorKind,
    /// The message for the caller: a sentence that names the problem and, where there is one, the way out.
    pub message: Cow<'static, str>,
    /// Messages about single fields of the request, by the name the field has on the wire.
    pub fields: BTreeMap<String, String>,
    /// The message for the log, with what the caller must not see (paths, causes). Boxed with its rarity in mind.
    pub log: Option<Box<str>>,
    /// When trying again may succeed, in whole seconds on the wire.
    pub retry_after: Option<Duration>,
    /// With [`ErrorKind::RangeNotSatisfiable`]: the size of the file, so that the caller can ask better.
    pub file_size: Option<u64>,
}

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])* $name:ident = $code:literal, $status:literal; )*) => {
        /// The kinds of failure. Closed: a client may match on [`ErrorKind::code`] without a default of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $( $(#[doc = $doc])* $name, )* }

        impl ErrorKind {
            /// Every kind there is.
            pub const ALL: &[Self] = &[$( Self::$name, )*];

            /// The stable code on the wire.
            pub const fn code(self) -> &'static str {
                match self { $( Self::$name => $code, )* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $( Self::$name => $status, )* }
            }

            /// When this kind happens, for the reference.
            pub const fn summary(self) -> &'static str {
                match self { $( Self::$name => concat!($($doc),*).trim_ascii(), )* }
            }
        }
    };
}

kinds! {
    /// The request is malformed or a value in it is not acceptable.
    InvalidRequest = "invalid_request", 400;
    /// No API key, or one that is not known.
    Unauthenticated = "unauthenticated", 401;
    /// The account may not do this: a quota, or a shape that it may not use.
    Forbidden = "forbidden", 403;
    /// There is no such thing, or it belongs to another account.
    NotFound = "not_found", 404;
    /// The path exists, the method does not.
    MethodNotAllowed = "method_not_allowed", 405;
    /// The name is in use by another living sandbox, or another snapshot, of the account.
    NameTaken = "name_taken", 409;
    /// The sandbox is not in a state that allows this.
    WrongState = "wrong_state", 409;
    /// The sandbox was paused while the operation ran: how it would have ended is not known.
    SandboxPaused = "sandbox_paused", 409;
    /// The snapshot, or the paused sandbox, was saved with another kernel, agent or processor, or its files are damaged.
    SnapshotUnusable = "snapshot_unusable", 409;
    /// The target exists already, or is not of the expected kind.
    Conflict = "conflict", 409;
    /// The same idempotency key came with another request before.
    IdempotencyMismatch = "idempotency_mismatch", 409;
    /// The body is larger than allowed.
    TooLarge = "too_large", 413;
    /// The requested range lies outside of the file.
    RangeNotSatisfiable = "range_not_satisfiable", 416;
    /// Too many requests.
    RateLimited = "rate_limited", 429;
    /// A fault of the service; the details are in its log.
    Internal = "internal", 500;
    /// The sandbox died or stopped answering while the operation ran.
    SandboxLost = "sandbox_lost", 500;
    /// This build or this machine cannot do that.
    NotImplemented = "not_implemented", 501;
    /// The service has no room or is not ready; nothing was begun.
    Unavailable = "unavailable", 503;
    /// The image is being built; nothing was begun.
    ImageBuilding = "image_building", 503;
    /// The sandbox's disk is full.
    StorageFull = "storage_full", 507;
}

impl Error {
    /// An error with a message for the caller.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), fields: BTreeMap::new(), log: None, retry_after: None, file_size: None }
    }

    /// A value of the request that is not acceptable: names the field.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self::new(ErrorKind::InvalidRequest, format!("{field}: {message}")).with_field(field, message)
    }

    /// Something that is not there: `what` with its article left out, for example `sandbox`.
    pub fn not_found(what: &str, reference: &str) -> Self {
        let reference: String = reference.chars().take(128).collect();
        Self::new(ErrorKind::NotFound, format!("there is no {what} {reference:?}"))
    }

    /// A range that lies outside of a file of this size.
    pub fn range_outside(size: u64) -> Self {
        let message = format!("the range lies outside of the file, which has {size} bytes");
        Self { file_size: Some(size), ..Self::new(ErrorKind::RangeNotSatisfiable, message) }
    }

    /// A fault of ours: the caller learns that it happened, the log learns what.
    pub fn internal(cause: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = cause.to_string();
        let mut next = cause.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        Self::new(ErrorKind::Internal, "the service failed; its log has the details").with_log(text)
    }

    /// Adds a message about one field of the request.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.fields.insert(field.into(), message.into());
        self
    }

    /// Adds what the log, not the caller, is told.
    #[must_use]
    pub fn with_log(mut self, text: impl Into<Box<str>>) -> Self {
        self.log = Some(text.into());
        self
    }

    /// Says when trying again may succeed.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}
