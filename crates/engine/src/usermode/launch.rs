//! Running the launcher.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hutch_jail::report::{Failure, Outcome, Report, Started};
use hutch_jail::specification::Specification;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// A launch takes some ten milliseconds; a host on which it takes this long is of no use.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why there is no process.
#[derive(Debug)]
pub(super) enum LaunchError {
    /// The launcher could not be run, or did not say what a launcher says.
    Launcher(io::Error),
    /// The launcher says what failed. Nothing of the launch is left.
    Jail(Failure),
}

/// Starts what the specification describes. `console` becomes its standard output and error.
///
/// Not to be dropped half-way: the launcher would go on, and undo its work only when it comes to report.
pub(super) async fn launch(
    launcher: &Path,
    specification: &Specification,
    console: OwnedFd,
) -> Result<Started, LaunchError> {
    let text = serde_json::to_vec(specification).map_err(|error| LaunchError::Launcher(error.into()))?;
    let mut command = Command::new(launcher);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(console);
    let mut child = command.spawn().map_err(LaunchError::Launcher)?;
    // The command holds the console open, which nobody but the kernel should.
    drop(command);
    match tokio::time::timeout(DEADLINE, converse(&mut child, &text)).await {
        Ok(Ok(output)) => match Report::parse(&output).map(|report| report.outcome) {
            Some(Outcome::Started(started)) => Ok(started),
            Some(Outcome::Failed(failure)) => Err(LaunchError::Jail(failure)),
            None => Err(LaunchError::Launcher(io::Error::other("it printed no report of this version"))),
        },
        Ok(Err(error)) => Err(LaunchError::Launcher(error)),
        Err(_) => {
            child.kill().await.ok();
            Err(LaunchError::Launcher(io::Error::new(io::ErrorKind::TimedOut, "no report within 30 seconds")))
        }
    }
}

/// Hands the text over and takes all that is printed, until the launcher has ended.
async fn converse(child: &mut Child, text: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text).await?;
    }
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        tokio::io::AsyncReadExt::read_to_end(&mut stdout, &mut output).await?;
    }
    child.wait().await?;
    Ok(output)
}

/// The launcher to use: the given one, or the first that exists beside the running program or where a package
/// would put it. When there is none, the first place, so that an error can name it.
pub(super) fn find(given: Option<&Path>) -> PathBuf {
    if let Some(given) = given {
        return given.to_owned();
    }
    let name = "hutch-jail";
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(name)));
    let places: Vec<PathBuf> = beside.into_iter().chain([Path::new("/usr/lib/hutch").join(name)]).collect();
    let found = places.iter().find(|place| place.is_file()).or(places.first());
    found.cloned().unwrap_or_else(|| PathBuf::from(name))
}
