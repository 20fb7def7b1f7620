//! The daemon alone, for the tests that start and kill one: `serve LISTEN DATA GUEST LAUNCHER`.

use std::path::PathBuf;

use anyhow::Context as _;
use hutch_daemon::{Config, serve};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &'static str| arguments.next().with_context(|| format!("missing argument: {what}"));
    let config = Config {
        listen: next("LISTEN")?.parse().context("LISTEN is an address like 127.0.0.1:0")?,
        cache: std::env::var_os("HUTCH_CACHE").map_or_else(|| Config::CACHE.into(), PathBuf::from),
        ..Config::new(next("DATA")?)
    };
    let config = Config { guest: Some(next("GUEST")?.into()), launcher: Some(next("LAUNCHER")?.into()), ..config };
    Ok(serve(config).await?)
}
