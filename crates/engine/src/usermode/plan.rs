//! From what is asked for to what the launcher is told: all the decisions, and no I/O.

use std::path::PathBuf;

use hutch_jail::cgroup::Group;
use hutch_jail::specification::{Descriptor, Limits, Source, Specification};
use hutch_units::{Bytes, Mebibytes};

use crate::guest::GuestFiles;
use crate::machine::MachineSpec;
use crate::snapshot::Identity;

/// The descriptors of a guest kernel, by their numbers.
mod number {
    pub(super) const CONSOLE: u32 = 1;
    pub(super) const MEMORY: u32 = 3;
    pub(super) const BOOT_IMAGE: u32 = 4;
    pub(super) const BASE_IMAGE: u32 = 5;
    pub(super) const DISK: u32 = 6;
    pub(super) const CHANNEL: u32 = 7;
    pub(super) const CONTROL: u32 = 8;
    /// The state of a saved machine, and its layers after it.
    pub(super) const STATE: u32 = 20;
}

/// The files of a saved machine that a process begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resume {
    /// What is not guest memory.
    pub(super) state: PathBuf,
    /// Guest memory, the base first.
    pub(super) layers: Vec<PathBuf>,
    /// Whether it is to be somebody new.
    pub(super) identity: Identity,
}

/// Processes and threads that the guest's users may have. Each process of the guest is one on the host.
pub(super) fn guest_processes(memory: Mebibytes) -> u32 {
    memory.0.saturating_mul(2).clamp(512, 8192)
}

/// What the guest's kernel may use on the host: more than the guest is told, so that the guest meets its own limits
/// first and a program in it gets an ordinary error.
pub(super) fn limits(spec: &MachineSpec, disk: Bytes) -> Limits {
    // Processes of the guest's root, which its own limit does not count, and the kernel's helper threads.
    let processes = guest_processes(spec.memory) + 256;
    // The kernel's own text and data, and for each process what the host's kernel needs for it: task, stack, page
    // tables. Measured 90 KiB for the smallest; large programs need more page tables.
    let beside = Bytes((64 << 20) + u64::from(processes) * (192 << 10));
    Limits {
        memory: Bytes(spec.memory.bytes().0 + beside.0),
        cpu_percent: spec.cpu_quota_percent.unwrap_or(spec.vcpu.saturating_mul(100)).max(1),
        cpu_weight: spec.vcpu.max(1),
        processes,
        // One for each process, and those of the kernel itself.
        open_files: processes + 128,
        file_size: disk.max(spec.memory.bytes()),
    }
}

/// The whole jail of one machine. `disk` is the size of its disk.
pub(super) fn specification(
    spec: &MachineSpec,
    guest: &GuestFiles,
    group: Group,
    disk: Bytes,
    resume: Option<&Resume>,
) -> Specification {
    let descriptor = |number, source| Descriptor { number, source };
    let saved = resume.into_iter().flat_map(|resume| [&resume.state].into_iter().chain(&resume.layers));
    let saved = (number::STATE..).zip(saved);
    let saved = saved.map(|(number, path)| descriptor(number, Source::ReadOnly { path: path.clone() }));
    // The same numbers as at the boot, which a kernel that goes on remembers.
    let always = [
        descriptor(number::MEMORY, Source::Memory { size: spec.memory.bytes() }),
        descriptor(number::BOOT_IMAGE, Source::ReadOnly { path: guest.boot_image.clone() }),
        descriptor(number::BASE_IMAGE, Source::ReadOnly { path: spec.base_image.clone() }),
        descriptor(number::DISK, Source::ReadWrite { path: spec.disk.clone() }),
        descriptor(number::CHANNEL, Source::Listener { path: spec.socket() }),
        descriptor(number::CONTROL, Source::Listener { path: spec.control_socket() }),
    ];
    Specification {
        format: Specification::FORMAT.to_owned(),
        version: Specification::VERSION,
        id: spec.id,
        uid: spec.host_uid,
        program: guest.kernel.clone(),
        arguments: resume.map_or_else(|| command_line(spec.memory), resume_command_line),
        // The kernel takes an empty environment for a mistake.
        environment: vec!["TERM=linux".to_owned()],
        mount_point: spec.state_dir.clone(),
        descriptors: always.into_iter().chain(saved).collect(),
        group,
        limits: limits(spec, disk),
    }
}

fn command_line(memory: Mebibytes) -> Vec<String> {
    use number::{BASE_IMAGE, BOOT_IMAGE, CHANNEL, CONSOLE, CONTROL, DISK, MEMORY};
    let arguments = [
        "linux-um".to_owned(),
        format!("mem={}M", memory.0),
        format!("physmem=fd:{MEMORY}"),
        "seccomp=on".to_owned(),
        format!("ubd0r=fd:{BOOT_IMAGE}"),
        format!("ubd1r=fd:{BASE_IMAGE}"),
        format!("ubd2=fd:{DISK}"),
        format!("hostchan=fd:{CHANNEL}"),
        format!("control=fd:{CONTROL}"),
        "root=/dev/ubda".to_owned(),
        "rootfstype=erofs".to_owned(),
        "ro".to_owned(),
        "init=/init".to_owned(),
        "con=null".to_owned(),
        format!("con0=null,fd:{CONSOLE}"),
        "quiet".to_owned(),
        // A panic ends the process at once: nobody is there to look at a halted machine.
        "panic=-1".to_owned(),
    ];
    arguments.to_vec()
}

/// All else holds as it was said at the boot.
fn resume_command_line(resume: &Resume) -> Vec<String> {
    let files = (number::STATE..).take(1 + resume.layers.len()).map(|number| format!("fd:{number}"));
    let identity = match resume.identity {
        Identity::New => "clone",
        Identity::Same => "same",
    };
    let files: Vec<String> = files.collect();
    vec!["linux-um".to_owned(), format!("resume={}", files.join(",")), format!("resume_as={identity}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_units::{SHAPES, SandboxId};

    fn spec(memory: Mebibytes, vcpu: u32, cpu_quota_percent: Option<u32>) -> MachineSpec {
        MachineSpec {
            id: SandboxId::generate(),
            state_dir: "/data/sb".into(),
            base_image: "/images/debian.erofs".into(),
            disk: "/data/sb/disk".into(),
            memory,
            vcpu,
            cpu_quota_percent,
            host_uid: 0x4000_0000,
            hostname: "box".to_owned(),
        }
    }

    #[test]
    fn the_host_allows_more_than_the_guest_is_told() {
        for shape in SHAPES {
            let spec = spec(shape.memory, shape.vcpu, shape.cpu_quota_percent);
            let limits = limits(&spec, Bytes(10 << 30));
            assert!(limits.memory > shape.memory.bytes(), "{}", shape.id);
            assert!(limits.processes > guest_processes(shape.memory), "{}", shape.id);
            assert!(limits.open_files > limits.processes, "{}", shape.id);
            assert!(limits.file_size >= shape.memory.bytes(), "{}", shape.id);
        }
    }

    #[test]
    fn processor_time_is_that_of_the_shape_unless_a_quota_says_less() {
        assert_eq!(limits(&spec(Mebibytes(256), 2, None), Bytes(1)).cpu_percent, 200);
        assert_eq!(limits(&spec(Mebibytes(256), 2, Some(50)), Bytes(1)).cpu_percent, 50);
    }

    #[test]
    fn the_command_line() {
        assert_eq!(
            command_line(Mebibytes(256)).join(" "),
            "linux-um mem=256M physmem=fd:3 seccomp=on ubd0r=fd:4 ubd1r=fd:5 ubd2=fd:6 hostchan=fd:7 control=fd:8 \
             root=/dev/ubda rootfstype=erofs ro init=/init con=null con0=null,fd:1 quiet panic=-1"
        );
    }

    #[test]
    fn the_command_line_of_what_goes_on() {
        let layers = vec!["/t/memory".into(), "/s/memory".into()];
        let resume = Resume { state: "/s/state".into(), layers, identity: Identity::Same };
        assert_eq!(resume_command_line(&resume).join(" "), "linux-um resume=fd:20,fd:21,fd:22 resume_as=same");
        let resume = Resume { layers: vec!["/t/memory".into()], identity: Identity::New, ..resume };
        assert_eq!(resume_command_line(&resume).join(" "), "linux-um resume=fd:20,fd:21 resume_as=clone");
    }
}
