//! The log, on standard error.
//!
//! | level   | means                                                                    | who should care        |
//! |---------|--------------------------------------------------------------------------|------------------------|
//! | `error` | the daemon could not do what it must do                                  | the operator, now      |
//! | `warn`  | a sandbox was lost, something was repaired, or a setting is risky        | the operator, some day |
//! | `info`  | the daemon starts and stops; sandboxes come and go; images are built     | who reads along        |
//! | `debug` | each request with its answer, each refusal with its reason               | who looks for a cause  |
//! | `trace` | nothing of ours; what the libraries say                                  | nobody                 |
//!
//! `HUTCH_LOG` takes the directives of `tracing`'s `EnvFilter`, for example `debug` or `info,hutch_engine=debug`.
//! A line about a sandbox carries its id, a line about a request the id that the answer has in `X-Request-Id`.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for each event.
    Text,
    /// A JSON object for each event, one a line.
    Json,
}

/// Sends this process's log to standard error. When the process has a log already, that one stays.
///
/// # Errors
/// When `HUTCH_LOG` is no filter; says what is wrong with it.
pub fn install(format: LogFormat) -> Result<(), tracing_subscriber::filter::ParseError> {
    let directives = std::env::var("HUTCH_LOG").unwrap_or_default();
    let filter = EnvFilter::try_new(if directives.is_empty() { "info" } else { &directives })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            builder.with_ansi(colours).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // A process that embeds the daemon, and a test, have their own.
    drop(installed);
    Ok(())
}
