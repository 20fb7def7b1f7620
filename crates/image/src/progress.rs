//! What a build tells while it runs, and how it is told to stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One step of a build, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Looks for the programs and the space that the build needs, removes what a killed build left.
    Prepare,
    /// Downloads, unpacks and configures the Debian packages.
    Packages,
    /// Downloads and unpacks the programs that come from npm.
    Npm,
    /// Runs the recipe's own scripts.
    Configure,
    /// Writes the tree as a read-only file system image.
    Pack,
    /// Computes the digest and puts image and description in place.
    Publish,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Prepare => "Preparing",
            Self::Packages => "Installing packages",
            Self::Npm => "Fetching from npm",
            Self::Configure => "Configuring",
            Self::Pack => "Packing the image",
            Self::Publish => "Putting it in place",
        })
    }
}

/// What a build reports. Texts are for people and may change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Another process builds the same image; this one waits and then takes the other's result.
    Waiting {
        /// The image's name.
        image: String,
    },
    /// A step begins.
    Step {
        /// Which one.
        step: Step,
        /// Its place, from 1.
        number: u32,
        /// How many steps this build has.
        of: u32,
    },
    /// Something happened within the current step.
    Detail {
        /// The step.
        step: Step,
        /// What happened, one line.
        text: String,
        /// How much of the step is done, 0 to 100 and never falling, where that is known.
        percent: Option<u8>,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { image } => write!(out, "waiting for another build of {image}"),
            Self::Step { step, number, of } => write!(out, "[{number}/{of}] {step}"),
            Self::Detail { text, percent: Some(percent), .. } => write!(out, "      {percent:>3} % {text}"),
            Self::Detail { text, percent: None, .. } => write!(out, "            {text}"),
        }
    }
}

/// Receives the events of a build, on the thread that builds. Any `Fn(Event)` is one.
pub trait Progress {
    /// Called for each event in order; should return at once.
    fn report(&self, event: Event);
}

impl<F: Fn(Event)> Progress for F {
    fn report(&self, event: Event) {
        self(event);
    }
}

/// Receives the events and drops them.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _: Event) {}
}

/// Stops a build from another thread or a signal handler. Clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the build to stop: within a fraction of a second it ends its programs, removes what it wrote and
    /// returns [`BuildError::Cancelled`](crate::BuildError::Cancelled).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The step that runs, bound to the receiver of its events.
pub(crate) struct Reporter<'a> {
    progress: &'a dyn Progress,
    step: Step,
    percent: Option<u8>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn begin(progress: &'a dyn Progress, step: Step, number: u32, of: u32) -> Self {
        progress.report(Event::Step { step, number, of });
        Self { progress, step, percent: None }
    }

    pub(crate) fn detail(&mut self, text: impl Into<String>) {
        self.progress.report(Event::Detail { step: self.step, text: text.into(), percent: self.percent });
    }

    /// Like [`detail`](Self::detail) with a share of the step; one that falls is held at its highest.
    pub(crate) fn advance(&mut self, text: impl Into<String>, percent: u8) {
        self.percent = Some(percent.min(100).max(self.percent.unwrap_or(0)));
        self.detail(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_percentage_never_falls() {
        let seen = RefCell::new(Vec::new());
        let progress = |event| seen.borrow_mut().push(event);
        let mut reporter = Reporter::begin(&progress, Step::Packages, 2, 5);
        reporter.detail("start");
        reporter.advance("a", 30);
        reporter.advance("b", 20);
        reporter.advance("c", 200);
        let texts: Vec<_> = seen.borrow().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["[2/5] Installing packages", "            start", "       30 % a", "       30 % b", "      100 % c",]
        );
    }
}
