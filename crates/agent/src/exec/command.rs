//! From a request to what the kernel wants: arguments, environment, candidates in the path.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};

use hutch_protocol::exec::{Command, Exec, StartStep};
use hutch_protocol::{ByteText, Code, Failure};

use super::account::Account;

/// Where programs are looked for when nobody says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The kernel takes no single argument of this size or larger (`MAX_ARG_STRLEN`, with its NUL).
const ARGUMENT_MAX: usize = 128 << 10;

/// A command ready to be started.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Paths to try.
    pub(crate) candidates: Vec<CString>,
    /// Arguments, the program's name first.
    pub(crate) argv: Vec<CString>,
    /// `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Working directory.
    pub(crate) cwd: CString,
    /// Whether the request names it; a home that cannot be entered is no reason not to start.
    pub(crate) cwd_required: bool,
    /// User.
    pub(crate) account: Account,
    /// A shell script too long for an argument.
    pub(crate) script: Option<OwnedFd>,
}

/// Why a command cannot be prepared.
#[derive(Debug)]
pub(crate) enum PrepareError {
    /// The request is wrong.
    Request(Failure),
    /// The guest lacks what the request names.
    Start(StartStep, Failure),
}

impl Prepared {
    /// Checks the request and prepares it, `defaults` being the environment of the sandbox.
    pub(crate) fn new(exec: Exec, defaults: &BTreeMap<String, ByteText>) -> Result<Self, PrepareError> {
        let account = match &exec.user {
            None => Account::root(),
            Some(user) => Account::find(user).map_err(|failure| PrepareError::Start(StartStep::User, failure))?,
        };
        let cwd_required = exec.cwd.is_some();
        let cwd = exec.cwd.unwrap_or_else(|| home(&account));
        if cwd.as_bytes().first() != Some(&b'/') {
            return Err(invalid(format!("cwd {cwd:?} is not absolute: it must begin with /")));
        }
        let cwd = text(cwd.into_bytes(), "cwd")?;
        let mut argv = argv(exec.command)?;
        let script = move_long_script(&mut argv).map_err(|error| {
            PrepareError::Start(
                StartStep::Process,
                Failure {
                    code: Code::Exhausted,
                    message: format!("no memory for a long script: {error}"),
                    errno: error.raw_os_error(),
                },
            )
        })?;
        let variables = environment(exec.env, defaults, &account)?;
        let path = variables.get("PATH").map_or(PATH.as_bytes(), |path| path.as_bytes());
        let candidates =
            candidates(&argv[0], path).into_iter().map(|path| text(path, "argv[0]")).collect::<Result<_, _>>()?;
        let argv = argv
            .into_iter()
            .enumerate()
            .map(|(index, argument)| text(argument, &format!("argv[{index}]")))
            .collect::<Result<_, _>>()?;
        let env = variables
            .into_iter()
            .map(|(name, value)| {
                let mut entry = name.clone().into_bytes();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                text(entry, &format!("env {name:?}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { candidates, argv, env, cwd, cwd_required, account, script })
    }
}

/// The user's home; `/` where `/etc/passwd` has nonsense.
fn home(account: &Account) -> ByteText {
    let is_path = account.home.first() == Some(&b'/') && !account.home.contains(&0);
    if is_path { account.home.clone().into() } else { "/".into() }
}

fn invalid(message: String) -> PrepareError {
    PrepareError::Request(Failure::new(Code::InvalidRequest, message))
}

fn text(bytes: Vec<u8>, field: &str) -> Result<CString, PrepareError> {
    CString::new(bytes).map_err(|_| invalid(format!("{field} contains a NUL byte")))
}

fn argv(command: Command) -> Result<Vec<Vec<u8>>, PrepareError> {
    match command {
        Command::Shell(script) => Ok(vec![b"/bin/sh".to_vec(), b"-c".to_vec(), script.into_bytes()]),
        Command::Argv(argv) => match argv.first() {
            None => Err(invalid("command.argv is empty: it needs at least a program".to_owned())),
            Some(program) if program.as_bytes().is_empty() => {
                Err(invalid("argv[0] is empty: it must name a program".to_owned()))
            }
            Some(_) => Ok(argv.into_iter().map(ByteText::into_bytes).collect()),
        },
    }
}

/// The kernel refuses a single argument of 128 KiB, which people do give to `sh -c`. A shell can as well read
/// its script from a descriptor: then its length has no bound, and `$0` and the arguments stay what they are.
fn move_long_script(argv: &mut [Vec<u8>]) -> io::Result<Option<OwnedFd>> {
    let [shell, flag, script, ..] = argv else { return Ok(None) };
    let name = shell.rsplit(|byte| *byte == b'/').next().unwrap_or(shell);
    let is_shell = [&b"sh"[..], b"bash", b"dash", b"ash", b"ksh", b"zsh"].contains(&name);
    let is_script = flag.len() >= 2 && flag[0] == b'-' && flag.ends_with(b"c") && !flag.starts_with(b"--");
    if !is_shell || !is_script || script.len() < ARGUMENT_MAX || script.contains(&0) {
        return Ok(None);
    }
    let memory = rustix::fs::memfd_create("script", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(script)?;
    file.rewind()?;
    *script = format!(". /proc/self/fd/{}", file.as_raw_fd()).into_bytes();
    Ok(Some(file.into()))
}

fn environment(
    own: BTreeMap<String, ByteText>,
    defaults: &BTreeMap<String, ByteText>,
    account: &Account,
) -> Result<BTreeMap<String, ByteText>, PrepareError> {
    let mut variables: BTreeMap<String, ByteText> = [
        ("PATH", PATH.into()),
        ("HOME", account.home.clone().into()),
        ("USER", account.name.clone().into()),
        ("LOGNAME", account.name.clone().into()),
        ("SHELL", account.shell.clone().into()),
        ("LANG", "C.UTF-8".into()),
        ("TERM", "dumb".into()),
    ]
    .map(|(name, value): (&str, ByteText)| (name.to_owned(), value))
    .into();
    variables.extend(defaults.iter().map(|(name, value)| (name.clone(), value.clone())));
    variables.extend(own);
    if let Some(name) = variables.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(invalid(format!("env {name:?} is no name of a variable: it is empty or contains '=' or NUL")));
    }
    Ok(variables)
}

/// The paths that a name may mean, in the order of `PATH`; a name with a slash means only itself.
fn candidates(program: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    path.split(|byte| *byte == b':')
        .map(|directory| {
            // An empty entry is the working directory, as in every shell.
            let mut candidate = if directory.is_empty() { b".".to_vec() } else { directory.to_vec() };
            candidate.push(b'/');
            candidate.extend_from_slice(program);
            candidate
        })
        .take(256)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(exec: Exec) -> Result<Prepared, String> {
        Prepared::new(exec, &BTreeMap::from([("A".to_owned(), "default".into()), ("B".to_owned(), "b".into())]))
            .map_err(|error| match error {
                PrepareError::Request(failure) | PrepareError::Start(_, failure) => failure.message,
            })
    }

    fn env(prepared: &Prepared, name: &str) -> Option<String> {
        let entries = prepared.env.iter().map(|entry| entry.to_str().unwrap());
        entries
            .filter_map(|entry| entry.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned())
    }

    #[test]
    fn the_command_goes_before_the_sandbox_before_the_agent() {
        let mut exec = Exec::argv(["env"]);
        exec.env = BTreeMap::from([("A".to_owned(), "own".into()), ("TERM".to_owned(), "xterm".into())]);
        let prepared = prepare(exec).unwrap();
        let value = |name| env(&prepared, name).unwrap();
        assert_eq!((value("A"), value("B"), value("TERM")), ("own".into(), "b".into(), "xterm".into()));
        assert_eq!((value("HOME"), value("LANG")), ("/root".into(), "C.UTF-8".into()));
        assert_eq!(prepared.candidates[1].to_str().unwrap(), "/usr/local/bin/env");
        assert_eq!((prepared.cwd.to_str().unwrap(), prepared.cwd_required), ("/root", false));
        assert!(prepare(Exec { cwd: Some("/".into()), ..Exec::argv(["a"]) }).unwrap().cwd_required);
        let home_of = |path: &[u8]| home(&Account { home: path.to_vec(), ..Account::root() });
        assert_eq!((home_of(b"x"), home_of(b""), home_of(b"/a\0")), ("/".into(), "/".into(), "/".into()));
    }

    #[test]
    fn wrong_requests_name_the_field() {
        let wrong = |exec: Exec| prepare(exec).unwrap_err();
        assert!(wrong(Exec::argv::<&str>([])).contains("command.argv is empty"));
        assert!(wrong(Exec::argv([""])).contains("argv[0]"));
        assert!(wrong(Exec::argv(["a", "b\0"])).contains("argv[1] contains a NUL"));
        assert!(wrong(Exec { cwd: Some("tmp".into()), ..Exec::argv(["a"]) }).contains("cwd"));
        assert!(wrong(Exec { user: Some("no such".into()), ..Exec::argv(["a"]) }).contains("\"no such\""));
        for name in ["", "A=B", "A\0"] {
            let env = BTreeMap::from([(name.to_owned(), "x".into())]);
            assert!(wrong(Exec { env, ..Exec::argv(["a"]) }).contains("no name of a variable"));
        }
        let env = BTreeMap::from([("A".to_owned(), "x\0".into())]);
        assert!(wrong(Exec { env, ..Exec::argv(["a"]) }).contains("env \"A\" contains a NUL"));
    }

    #[test]
    fn a_long_script_moves_out_of_the_arguments() {
        let script = "#".repeat(ARGUMENT_MAX);
        let argument = |command: Exec| prepare(command).unwrap();
        let moved = argument(Exec::shell(script.clone()));
        assert!(moved.script.is_some() && moved.argv[2].to_str().unwrap().starts_with(". /proc/self/fd/"));
        let moved = argument(Exec::argv(["/usr/bin/bash", "-lc", &script, "zero", "one"]));
        assert!(moved.script.is_some() && moved.argv.len() == 5);
        for kept in [Exec::shell("true"), Exec::argv(["cat", "-c", &script]), Exec::argv(["sh", "-x", &script])] {
            assert!(argument(kept).script.is_none());
        }
    }

    #[test]
    fn an_empty_entry_of_the_path_is_the_working_directory() {
        assert_eq!(candidates(b"x", b"/bin::"), [&b"/bin/x"[..], b"./x", b"./x"]);
        assert_eq!(candidates(b"./x", b"/bin"), [b"./x"]);
    }
}
