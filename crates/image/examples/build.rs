//! Builds an image of the catalogue: `cargo run -p hutch-image --example build -- debian:13`.

use anyhow::Context as _;
use hutch_image::{Cache, Cancel, Event, Image};

fn main() -> anyhow::Result<()> {
    let name = std::env::args().nth(1).context("usage: build IMAGE")?;
    let cache = Cache::from_environment()?;
    let progress = |event: Event| eprintln!("{event}");
    let built = Image::find(&name)?.build(&cache, &progress, &Cancel::default())?;
    println!("{}", built.path.display());
    Ok(())
}
