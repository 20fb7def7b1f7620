//! What is known of templates without asking the store.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hutch_engine::Engine;
use hutch_units::Mebibytes;
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::report::chain;

/// How long a key is taken for true: the guest or the image may be replaced while the daemon runs.
const FRESH: Duration = Duration::from_secs(10);
/// How long after a failure nobody tries again.
const REST: Duration = Duration::from_secs(60);
/// How many starts in a row must fail before it is the template's fault: a host that is overloaded fails some too.
const STRIKES: u32 = 3;
/// How many sizes of disk are remembered that were asked for once.
const MOST_SEEN: usize = 256;

/// What a template is made from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    /// The image's file.
    pub(crate) base_image: PathBuf,
    /// Guest memory in MiB.
    pub(crate) memory_mib: u32,
    /// Size of the disk in MiB.
    pub(crate) disk_mib: u32,
}

/// A template that somebody could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What it will be found by.
    pub(crate) key: String,
    /// The name of the image.
    pub(crate) image: String,
    /// What it is made from.
    pub(crate) recipe: Recipe,
    /// Processors of the machine that makes it.
    pub(crate) vcpu: u32,
}

/// The templates of this host.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    state: Mutex<State>,
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<String, Entry>,
    queue: VecDeque<Wanted>,
    keys: HashMap<Recipe, (Instant, String)>,
    /// What was asked for once and is not made before the second time.
    seen: VecDeque<String>,
    /// Starts that failed since the last one that worked.
    strikes: HashMap<String, u32>,
    /// Uses that are not in the store yet.
    used: HashMap<String, Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Building,
    Ready,
    /// It is there and nothing could be started from it. Where something needs it, it stays and is tried again later.
    Rejected {
        at: Instant,
    },
    /// It could not be made.
    Failed {
        at: Instant,
    },
}

impl Templates {
    /// What the template of a recipe is found by; `None` when the engine cannot tell, which a boot will explain.
    pub(crate) async fn key(&self, engine: &Arc<dyn Engine>, recipe: &Recipe) -> Option<String> {
        if let Some((at, key)) = self.state().keys.get(recipe)
            && at.elapsed() < FRESH
        {
            return Some(key.clone());
        }
        let asked = engine.template_key(&recipe.base_image, Mebibytes(recipe.memory_mib), Mebibytes(recipe.disk_mib));
        let key = asked.await.inspect_err(|error| tracing::warn!(error = chain(error), "there is no template's key"));
        let key = key.ok()?;
        let mut state = self.state();
        state.keys.retain(|_, (at, _)| at.elapsed() < FRESH);
        state.keys.insert(recipe.clone(), (Instant::now(), key.clone()));
        Some(key)
    }

    /// Whether sandboxes can begin as this template.
    pub(crate) fn is_ready(&self, key: &str) -> bool {
        match self.state().entries.get(key) {
            Some(Entry::Ready) => true,
            Some(Entry::Rejected { at }) => at.elapsed() >= REST,
            _ => false,
        }
    }

    /// How many there are to begin as.
    pub(crate) fn ready(&self) -> usize {
        self.state().entries.values().filter(|entry| **entry == Entry::Ready).count()
    }

    /// Notes that a sandbox begins as a template.
    pub(crate) fn touch(&self, key: &str, now: Moment) {
        self.state().used.insert(key.to_owned(), now);
    }

    /// Has a template made, unless it is there, under way, or failed a moment ago.
    pub(crate) fn want(&self, wanted: Wanted) {
        let mut state = self.state();
        match state.entries.get(&wanted.key) {
            Some(Entry::Failed { at }) if at.elapsed() >= REST => {}
            Some(_) => return,
            None => {}
        }
        state.entries.insert(wanted.key.clone(), Entry::Building);
        state.queue.push_back(wanted);
        drop(state);
        self.wake.notify_one();
    }

    /// As [`Templates::want`], for what only pays when it is asked for again: an unusual size of disk.
    pub(crate) fn want_again(&self, wanted: Wanted) {
        let is_second = {
            let mut state = self.state();
            let is_second = state.seen.contains(&wanted.key);
            if !is_second {
                state.seen.push_back(wanted.key.clone());
                if state.seen.len() > MOST_SEEN {
                    state.seen.pop_front();
                }
            }
            is_second
        };
        if is_second {
            self.want(wanted);
        }
    }

    /// Nothing can be started from a template: it is out of use until it was removed and made again.
    pub(crate) fn reject(&self, key: &str) {
        tracing::error!(key, "nothing can be started from a template: it will be made again");
        let mut state = self.state();
        state.strikes.remove(key);
        state.entries.insert(key.to_owned(), Entry::Rejected { at: Instant::now() });
    }

    /// A start from a template failed, and it may be the template's fault.
    pub(crate) fn blame(&self, key: &str) {
        let is_out = {
            let mut state = self.state();
            let strikes = state.strikes.entry(key.to_owned()).or_default();
            *strikes += 1;
            *strikes >= STRIKES
        };
        if is_out {
            self.reject(key);
        }
    }

    /// A start from a template worked.
    pub(crate) fn praise(&self, key: &str) {
        let mut state = self.state();
        state.strikes.remove(key);
        if let Some(entry @ Entry::Rejected { .. }) = state.entries.get_mut(key) {
            *entry = Entry::Ready;
        }
    }

    pub(super) fn next(&self) -> Option<Wanted> {
        self.state().queue.pop_front()
    }

    pub(super) fn is_rejected(&self, key: &str) -> bool {
        matches!(self.state().entries.get(key), Some(Entry::Rejected { .. }))
    }

    pub(super) fn made(&self, key: &str) {
        self.state().entries.insert(key.to_owned(), Entry::Ready);
    }

    pub(super) fn failed(&self, key: &str) {
        self.state().entries.insert(key.to_owned(), Entry::Failed { at: Instant::now() });
    }

    pub(super) fn removed(&self, key: &str) {
        self.state().entries.remove(key);
    }

    /// The uses that are not in the store yet.
    pub(super) fn take_used(&self) -> Vec<(String, Moment)> {
        std::mem::take(&mut self.state().used).into_iter().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(key: &str) -> Wanted {
        let recipe = Recipe { base_image: "/a".into(), memory_mib: 256, disk_mib: 1024 };
        Wanted { key: key.to_owned(), image: "debian:13".to_owned(), recipe, vcpu: 1 }
    }

    #[test]
    fn what_is_wanted_often_is_made_once() {
        let templates = Templates::default();
        for _ in 0..3 {
            templates.want(wanted("a"));
        }
        assert!(templates.next().is_some() && templates.next().is_none());
        templates.made("a");
        templates.want(wanted("a"));
        assert!(templates.is_ready("a") && templates.next().is_none());
        for _ in 0..STRIKES {
            assert!(templates.is_ready("a"));
            templates.blame("a");
        }
        assert!(!templates.is_ready("a") && templates.is_rejected("a"));
        templates.removed("a");
        templates.want(wanted("a"));
        assert!(templates.next().is_some());
        templates.failed("a");
        templates.want(wanted("a"));
        assert!(templates.next().is_none(), "not so soon after a failure");
    }

    #[test]
    fn a_start_that_works_makes_up_for_those_that_failed() {
        let templates = Templates::default();
        templates.made("a");
        for _ in 0..2 * STRIKES {
            templates.blame("a");
            templates.praise("a");
        }
        assert!(templates.is_ready("a"));
        templates.reject("a");
        templates.praise("a");
        assert!(templates.is_ready("a") && !templates.is_rejected("a"));
    }

    #[test]
    fn what_is_unusual_is_made_the_second_time() {
        let templates = Templates::default();
        templates.want_again(wanted("a"));
        assert!(templates.next().is_none());
        templates.want_again(wanted("a"));
        assert!(templates.next().is_some());
    }
}
