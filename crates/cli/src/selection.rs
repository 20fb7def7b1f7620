//! Which sandboxes a command is about.

use clap::Args;
use futures_util::{Stream, StreamExt as _, stream};
use hutch_api::client::ClientError;
use hutch_api::{SandboxFilter, SandboxStatus};

use crate::context::Remote;
use crate::execution::variables;
use crate::failure::Failure;
use crate::pair::{self, Assignment};

/// How many sandboxes are worked on at once.
const AT_ONCE: usize = 16;

/// Sandboxes by name, by label, or all.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// The sandboxes, by name or id
    #[arg(required_unless_present_any = ["all", "label"])]
    pub(crate) sandboxes: Vec<String>,
    /// All with this label; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment, conflicts_with_all = ["sandboxes", "all"])]
    label: Vec<Assignment>,
    /// All of the account
    #[arg(long, conflicts_with = "sandboxes")]
    all: bool,
}

impl Selection {
    /// The sandboxes as they were named; where they were not, those in this state.
    pub(crate) async fn chosen(&self, service: &Remote, status: Option<SandboxStatus>) -> Result<Vec<String>, Failure> {
        if !self.sandboxes.is_empty() {
            return Ok(self.sandboxes.clone());
        }
        let filter = SandboxFilter { status, labels: variables(&self.label), ..SandboxFilter::default() };
        let found = service.client().list_sandboxes(&filter).await.map_err(|error| service.explain(&error))?;
        Ok(found.iter().map(|sandbox| sandbox.id.to_string()).collect())
    }
}

/// Does the same to each, several at once; the outcomes come in order.
pub(crate) fn each<'a, T, W>(
    names: &'a [String],
    work: impl Fn(&'a str) -> W + 'a,
) -> impl Stream<Item = (&'a str, Result<T, ClientError>)>
where
    W: Future<Output = Result<T, ClientError>> + 'a,
{
    let one = move |name: &'a String| {
        let work = work(name);
        async move { (name.as_str(), work.await) }
    };
    stream::iter(names).map(one).buffered(AT_ONCE)
}
