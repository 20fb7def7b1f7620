//! `hutch keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hutch_daemon::data_directory::DataDirectory;
use hutch_daemon::keys;
use serde_json::json;

use crate::connection::data_directory;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;

const AFTER_HELP: &str = "\
Examples:
  hutch keys create laptop     prints the key, this once
  hutch keys ls
  hutch keys revoke skp_1a2b3c4d

Works on the service's data directory, as the user that the service runs as; the service need not run.";

/// Make, list and revoke API keys
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Keys {
    /// The service's data directory
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key and print it; it is stored only as a digest
    Create {
        /// What it is for
        name: String,
    },
    /// List the keys
    Ls,
    /// Revoke a key: the next request with it is refused
    Revoke {
        /// The key's id, or its first characters as `ls` shows them
        key: String,
    },
}

impl Keys {
    pub(crate) fn run(self, context: &Context) -> Result<u8, Failure> {
        let data = DataDirectory::at(&self.data.unwrap_or_else(data_directory));
        let failed = |error: keys::KeyError| Failure::of(&error);
        match self.action {
            Action::Create { name } => {
                let key = keys::create(&data, &name).map_err(failed)?;
                if context.json() {
                    output::print_json(&json!({ "name": name, "key": key.reveal() }))?;
                } else {
                    output::print(&format!("{}\n", key.reveal()))?;
                }
            }
            Action::Ls => list(context, &keys::list(&data).map_err(failed)?)?,
            Action::Revoke { key } => {
                if !keys::revoke(&data, &key).map_err(failed)? {
                    return Err(Failure::new(format!("there is no key {key:?} that could be revoked"))
                        .with_hint("`hutch keys ls` lists them"));
                }
                context.tell(&format!("revoked: {key}"));
            }
        }
        Ok(0)
    }
}

fn list(context: &Context, rows: &[hutch_daemon::store::KeyRow]) -> Result<(), Failure> {
    if context.json() {
        let rows: Vec<_> = rows.iter().map(shown).collect();
        return output::print_json(&rows);
    }
    let mut table = Table::new(["ID", "NAME", "KEY", "STATUS"]);
    for row in rows {
        let status = if row.revoked_at.is_some() { "revoked" } else { "valid" };
        table.row([row.id.clone(), row.name.clone(), format!("{}…", row.hint), status.to_owned()]);
    }
    output::print(&table.text())
}

fn shown(row: &hutch_daemon::store::KeyRow) -> serde_json::Value {
    json!({ "id": row.id, "name": row.name, "hint": row.hint, "revoked": row.revoked_at.is_some() })
}
