//! `hutch fork`.

use std::time::Instant;

use clap::Args;
use hutch_api::ForkSandbox;

use super::create::title;
use crate::context::Context;
use crate::duration;
use crate::execution::variables;
use crate::failure::Failure;
use crate::idle::Limits;
use crate::output;
use crate::pair::{self, Assignment};
use crate::progress::Progress;

const AFTER_HELP: &str = "\
Examples:
  hutch fork box                             one copy, under a made-up name
  hutch fork box --name try                  one copy, called try
  hutch fork box --count 8 --name try        eight of the same moment: try-1 to try-8
  hutch fork box --label branch=a --paused   kept for later: it uses no memory until it is resumed
  for id in $(hutch fork box -q --count 4); do hutch exec $id -- ./attempt & done

The copies go on from where the sandbox is, with its processes. Each has a name, a host name, a
machine id and random numbers of its own.";

/// Copy a running or paused sandbox, memory and all
///
/// Prints the ids of the copies. The sandbox itself goes on. What is not given here is as the sandbox has it.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Fork {
    /// The sandbox, by name or id
    sandbox: String,
    /// How many copies, 1 to 100
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    count: Option<u32>,
    /// The copy's name; with --count the copies are called NAME-1, NAME-2 and so on; made up without it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Leave the copies paused
    #[arg(long)]
    paused: bool,
    /// The environment of all commands, in place of the sandbox's; may be given several times
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    env: Vec<Assignment>,
    /// The labels, in place of the sandbox's; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    label: Vec<Assignment>,
    #[command(flatten)]
    limits: Limits,
}

impl Fork {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let request = self.request()?;
        let text = match request.copies() {
            1 => format!("copying {}", self.sandbox),
            copies => format!("making {copies} copies of {}", self.sandbox),
        };
        let began = Instant::now();
        let copies = {
            let _progress = Progress::spinner(context, &text);
            service.client().fork_sandbox(&self.sandbox, &request).await.map_err(|error| service.explain(&error))?
        };
        let time = duration::show(began.elapsed());
        match copies.as_slice() {
            [copy] => context.tell(&format!("{}: {} in {time}", copy.status.as_str(), title(copy))),
            copies => {
                for copy in copies {
                    context.tell(&format!("{}: {}", copy.status.as_str(), title(copy)));
                }
                context.tell(&format!("{} copies of {} in {time}", copies.len(), self.sandbox));
            }
        }
        if context.json() {
            output::print_json(&copies)?;
        } else {
            output::print(&copies.iter().map(|copy| format!("{}\n", copy.id)).collect::<String>())?;
        }
        Ok(0)
    }

    fn request(&self) -> Result<ForkSandbox, Failure> {
        let given = |pairs: &[Assignment]| (!pairs.is_empty()).then(|| variables(pairs));
        Ok(ForkSandbox {
            start_paused: self.paused.then_some(true),
            envs: given(&self.env),
            count: self.count,
            name: self.name.clone(),
            labels: given(&self.label),
            auto_pause_after_seconds: self.limits.auto_pause(),
            disable_auto_pause: self.limits.never_pauses(),
            auto_destroy_after_seconds: self.limits.auto_destroy(),
            disable_auto_destroy: self.limits.never_destroys(),
            lifetime_seconds: self.limits.lifetime()?,
            ..ForkSandbox::default()
        })
    }
}
