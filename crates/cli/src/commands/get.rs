//! `hutch get`.

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::table::clean;

const AFTER_HELP: &str = "\
Examples:
  hutch get box
  hutch get box --json | jq -r .status";

/// Show all about a sandbox
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Get {
    /// The sandbox, by name or id
    sandbox: String,
}

impl Get {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let sandbox = service.client().sandbox(&self.sandbox).await.map_err(|error| service.explain(&error))?;
        if context.json() {
            output::print_json(&sandbox)?;
        } else {
            output::print(&lines(&sandbox)?)?;
        }
        Ok(0)
    }
}

/// One line for each field, under the names that the API has.
pub(crate) fn lines<T: Serialize>(view: &T) -> Result<String, Failure> {
    let value = serde_json::to_value(view);
    let value = value.map_err(|error| Failure::because("the answer cannot be shown", &error))?;
    let fields = value.as_object().into_iter().flatten();
    Ok(fields.map(|(name, value)| format!("{name:<24} {}\n", clean(&text(value)))).collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            map.iter().map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
