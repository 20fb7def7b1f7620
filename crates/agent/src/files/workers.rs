//! Threads that do the steps of tasks. As many as are needed, up to a bound; then steps wait their turn.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hutch_protocol::{Code, Failure};
use rustix::event::{EventfdFlags, eventfd};

use super::task::{Frames, Next, Step, Task, Work};

/// Threads at most: what hangs in a file system of the user's own making takes one of them away.
const THREADS: usize = 16;

/// Stack of a thread, bytes.
const STACK: usize = 256 << 10;

/// The threads and the queues to and from them.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: usize,
}

/// A step that was done.
pub(crate) struct Completed {
    /// The stream that it was done for.
    pub(crate) key: u64,
    /// The task, for its next step.
    pub(crate) task: Box<dyn Task>,
    /// What it led to.
    pub(crate) step: Step,
}

enum Job {
    Step {
        key: u64,
        task: Box<dyn Task>,
        work: Work,
    },
    /// Undoing what a task had begun may block too.
    Drop(Box<dyn Task>),
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    available: Condvar,
    completed: Mutex<Vec<Completed>>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    idle: usize,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Jobs").field("queue", &self.queue.len()).field("idle", &self.idle).finish()
    }
}

impl std::fmt::Debug for Completed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Completed").field("key", &self.key).field("step", &self.step).finish_non_exhaustive()
    }
}

impl Workers {
    /// No threads yet.
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared { jobs: Mutex::default(), available: Condvar::new(), completed: Mutex::default(), wake };
        Ok(Self { shared: Arc::new(shared), threads: 0 })
    }

    /// Becomes readable when steps are done.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Does the task's next step for the stream with this key.
    pub(crate) fn step(&mut self, key: u64, task: Box<dyn Task>, work: Work) {
        self.submit(Job::Step { key, task, work });
    }

    /// Forgets a task, undoing what it had begun.
    pub(crate) fn discard(&mut self, task: Box<dyn Task>) {
        self.submit(Job::Drop(task));
    }

    /// The steps that are done.
    pub(crate) fn completed(&self) -> Vec<Completed> {
        let mut counter = [0; 8];
        // It may have been read already: then nothing is lost, the list says what is done.
        let _ = rustix::io::read(&self.shared.wake, &mut counter);
        std::mem::take(&mut *lock(&self.shared.completed))
    }

    fn submit(&mut self, job: Job) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.queue.push_back(job);
        let starts = jobs.idle < jobs.queue.len() && self.threads < THREADS;
        drop(jobs);
        self.shared.available.notify_one();
        if starts {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().stack_size(STACK).name("files".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(_) => self.threads += 1,
                // With no thread at all somebody has to do it; otherwise the others will.
                Err(_) if self.threads == 0 => self.shared.work_off(),
                Err(_) => {}
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let mut jobs = lock(&self.jobs);
            jobs.idle += 1;
            while jobs.queue.is_empty() {
                jobs = self.available.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
            jobs.idle -= 1;
            let job = jobs.queue.pop_front();
            drop(jobs);
            job.into_iter().for_each(|job| self.run(job));
        }
    }

    fn work_off(&self) {
        loop {
            let job = lock(&self.jobs).queue.pop_front();
            match job {
                Some(job) => self.run(job),
                None => return,
            }
        }
    }

    fn run(&self, job: Job) {
        let (key, mut task, work) = match job {
            Job::Step { key, task, work } => (key, task, work),
            Job::Drop(task) => return drop(task),
        };
        let stream = work.frames.stream();
        let step = catch_unwind(AssertUnwindSafe(|| task.step(work))).unwrap_or_else(|_| Step {
            frames: Frames::new(stream, 0),
            next: Next::Done(Err(Failure::new(Code::Other, "the agent failed at this; its console says why"))),
        });
        lock(&self.completed).push(Completed { key, task, step });
        // The counter is far from full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing can panic while one of these locks is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
