//! What is shown while something takes time: on a terminal a bar or a spinner, elsewhere a line when a step begins.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::context::Context;

/// A bar or spinner on standard error that goes when this goes.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether lines are printed in its place.
    lines: bool,
    last: String,
}

impl Progress {
    /// Shows that something happens whose length is not known.
    pub(crate) fn spinner(context: &Context, text: &str) -> Self {
        Self::new(context, ProgressBar::new_spinner(), "{spinner} {wide_msg}", text)
    }

    /// Shows bytes that go over the wire.
    pub(crate) fn bytes(context: &Context, text: &str, length: Option<u64>) -> Self {
        match length {
            Some(length) => {
                let template = "{msg} {bar:24} {bytes}/{total_bytes} {binary_bytes_per_sec}";
                Self::new(context, ProgressBar::new(length), template, text)
            }
            None => Self::new(context, ProgressBar::new_spinner(), "{spinner} {msg} {bytes}", text),
        }
    }

    /// Shows a build of 100 parts.
    pub(crate) fn percent(context: &Context, text: &str) -> Self {
        let mut progress = Self::new(context, ProgressBar::new(100), "{bar:24} {pos:>3} % {wide_msg}", text);
        progress.lines = !context.quiet() && progress.bar.is_hidden();
        progress
    }

    fn new(context: &Context, bar: ProgressBar, template: &str, text: &str) -> Self {
        if context.quiet() || !std::io::stderr().is_terminal() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        bar.set_style(ProgressStyle::with_template(template).expect("the templates above are well formed"));
        bar.set_message(text.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, lines: false, last: String::new() }
    }

    /// Says something in between without tearing the bar.
    pub(crate) fn above(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    /// So many bytes more.
    pub(crate) fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// How far a build is. In lines, only a new step is worth one.
    pub(crate) fn at(&mut self, percent: u8, step: &str, detail: Option<&str>) {
        self.bar.set_position(u64::from(percent));
        self.bar.set_message(detail.map_or_else(|| step.to_owned(), |detail| format!("{step}: {detail}")));
        if self.lines && self.last != step {
            crate::output::tell(&format!("  {step}"));
            step.clone_into(&mut self.last);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
