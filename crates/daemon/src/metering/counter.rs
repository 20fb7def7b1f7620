//! The processor time of a machine, as its host's kernel counts it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// An open file with the processor time of a cgroup and all that is in it.
#[derive(Debug)]
pub(crate) struct Counter {
    file: File,
    form: Form,
}

/// How the number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Version 1, `cpuacct.usage`: nanoseconds.
    Nanoseconds,
    /// Version 2, `cpu.stat`: a line `usage_usec <microseconds>`, the first.
    Statistics,
}

impl Counter {
    /// The counter of a machine with these cgroup directories; `None` when none of them counts, or they are gone.
    pub(crate) fn open(cgroups: &[PathBuf]) -> Option<Self> {
        let of = |name, form| {
            cgroups.iter().find_map(move |path| Some(Self { file: File::open(path.join(name)).ok()?, form }))
        };
        of("cpuacct.usage", Form::Nanoseconds)
            .or_else(|| of("cpu.stat", Form::Statistics).filter(|it| it.read().is_some()))
    }

    /// Processor time since the cgroup was made, in microseconds; `None` once it is gone.
    pub(crate) fn read(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.file.read_at(&mut text, 0).ok()?;
        parse(self.form, std::str::from_utf8(&text[..length]).ok()?)
    }
}

fn parse(form: Form, text: &str) -> Option<u64> {
    match form {
        Form::Nanoseconds => text.trim().parse::<u64>().ok().map(|nanoseconds| nanoseconds / 1000),
        Form::Statistics => text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_as_microseconds() {
        let folder = tempfile::tempdir().unwrap();
        let (memory, one) = (folder.path().join("memory"), folder.path().join("cpuacct"));
        for directory in [&memory, &one] {
            std::fs::create_dir(directory).unwrap();
        }
        // In version 1 there is a cpu.stat too, which counts something else.
        std::fs::write(memory.join("cpu.stat"), "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n").unwrap();
        assert!(Counter::open(&[memory.clone(), one.clone()]).is_none());
        std::fs::write(one.join("cpuacct.usage"), "61234567890\n").unwrap();
        let counter = Counter::open(&[memory, one.clone()]).unwrap();
        assert_eq!(counter.read(), Some(61_234_567));
        std::fs::write(one.join("cpuacct.usage"), "61234568999\n").unwrap();
        assert_eq!(counter.read(), Some(61_234_568), "the file stays open");

        let two = folder.path().join("two");
        std::fs::create_dir(&two).unwrap();
        std::fs::write(two.join("cpu.stat"), "usage_usec 4711\nuser_usec 4000\nsystem_usec 711\n").unwrap();
        assert_eq!(Counter::open(&[two]).unwrap().read(), Some(4711));
    }
}
