//! The allowlist compiled to a seccomp filter.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use crate::allowlist::{Allowed, NOT_IMPLEMENTED, When};

/// The allowlist could not be compiled.
#[derive(Debug, thiserror::Error)]
#[error("the allowlist cannot be compiled to a filter")]
pub struct CompileError(#[from] seccompiler::BackendError);

/// Compiles a table to the program that the kernel runs at every system call: what the table does not allow
/// fails with EPERM, `clone3` and calls of a foreign architecture with ENOSYS.
///
/// # Errors
/// When the table is too long for a filter or allows nothing.
pub fn compile(table: &[Allowed]) -> Result<BpfProgram, CompileError> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
    for allowed in table {
        rules.insert(allowed.number, rules_of(allowed.when)?);
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?;
    let body = BpfProgram::try_from(filter)?;
    Ok(prologue().into_iter().chain(body).collect())
}

fn rules_of(when: When) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let condition = |argument, operator, value: u32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value))
    };
    let rule = |condition| SeccompRule::new(vec![condition]);
    match when {
        When::Always => Ok(Vec::new()),
        When::OneOf { argument, values } => {
            values.iter().map(|value| rule(condition(argument, SeccompCmpOp::Eq, *value)?)).collect()
        }
        When::Without { argument, bits } => {
            Ok(vec![rule(condition(argument, SeccompCmpOp::MaskedEq(u64::from(bits)), 0)?)?])
        }
        When::Null { argument } => {
            Ok(vec![rule(SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?)?])
        }
    }
}

/// What comes before the compiled table. The table's own answer to a foreign architecture would be to kill, and
/// that would win over the trap of the children's filter: a guest program could then not even make an `int 0x80`
/// without its process vanishing from under the guest's kernel.
fn prologue() -> [sock_filter; 6] {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const NUMBER: u32 = 0; // offset in struct seccomp_data
    const ARCHITECTURE: u32 = 4;
    const X86_64: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
    const NOSYS: u32 = 0x0005_0000 | libc::ENOSYS.unsigned_abs(); // SECCOMP_RET_ERRNO
    let clone3 = u32::try_from(NOT_IMPLEMENTED).expect("system call numbers are small");
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    [
        step(LOAD, 0, 0, ARCHITECTURE),
        step(JUMP_IF_EQUAL, 1, 0, X86_64),
        step(RETURN, 0, 0, NOSYS),
        step(LOAD, 0, 0, NUMBER),
        step(JUMP_IF_EQUAL, 0, 1, clone3),
        step(RETURN, 0, 0, NOSYS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowlist::ALLOWLIST;

    /// Runs a filter as the kernel would, on the instructions that ours are made of.
    fn run(program: &[sock_filter], architecture: u32, number: libc::c_long, arguments: [u64; 6]) -> u32 {
        let number = u32::try_from(number).unwrap();
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(architecture.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        arguments.iter().for_each(|argument| data.extend(argument.to_le_bytes()));
        let (mut accumulator, mut at) = (0_u32, 0_usize);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |condition: bool| usize::from(if condition { step.jt } else { step.jf });
            match step.code {
                0x20 => {
                    let from = step.k as usize;
                    accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                }
                0x54 => accumulator &= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += jump(accumulator == step.k),
                0x25 => at += jump(accumulator > step.k),
                0x35 => at += jump(accumulator >= step.k),
                0x06 => return step.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    const X86_64: u32 = 0xc000_003e;
    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    const ENOSYS: u32 = 0x0005_0026;

    fn answer(number: libc::c_long, arguments: [u64; 6]) -> u32 {
        run(&compile(ALLOWLIST).unwrap(), X86_64, number, arguments)
    }

    #[test]
    fn the_table_decides() {
        assert_eq!(answer(libc::SYS_read, [0; 6]), ALLOW);
        assert_eq!(answer(libc::SYS_openat, [0; 6]), EPERM);
        assert_eq!(answer(libc::SYS_clone3, [0; 6]), ENOSYS);
        assert_eq!(answer(libc::SYS_read + 0x4000_0000, [0; 6]), EPERM, "x32");
        assert_eq!(run(&compile(ALLOWLIST).unwrap(), 0x4000_0003, 5, [0; 6]), ENOSYS, "i386");
    }

    #[test]
    fn arguments_decide_where_the_table_says_so() {
        let with = |position: usize, value: u64| {
            let mut arguments = [0; 6];
            arguments[position] = value;
            arguments
        };
        assert_eq!(answer(libc::SYS_clone, with(0, 0x4111)), ALLOW);
        assert_eq!(answer(libc::SYS_clone, with(0, 0x1000_0011)), EPERM, "CLONE_NEWUSER");
        assert_eq!(answer(libc::SYS_socketpair, with(0, 1)), ALLOW);
        assert_eq!(answer(libc::SYS_socketpair, with(0, 16)), EPERM, "AF_NETLINK");
        assert_eq!(answer(libc::SYS_prlimit64, with(2, 0)), ALLOW);
        assert_eq!(answer(libc::SYS_prlimit64, with(2, 1 << 40)), EPERM);
        assert_eq!(answer(libc::SYS_mmap, with(3, 0x22)), ALLOW);
        assert_eq!(answer(libc::SYS_mmap, with(3, 0x4_0022)), EPERM, "MAP_HUGETLB");
        assert_eq!(answer(libc::SYS_execveat, with(4, 0)), EPERM);
        assert_eq!(answer(libc::SYS_execveat, with(4, 0x1000)), ALLOW);
        assert_eq!(answer(libc::SYS_prctl, with(0, 22)), EPERM, "PR_SET_SECCOMP");
        assert_eq!(answer(libc::SYS_prctl, with(0, 15 + (1 << 32))), ALLOW, "the kernel takes an int");
    }
}
