//! The program, run as a user runs it.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

#[path = "../../../api/tests/fake/mod.rs"]
pub mod fake;

use std::process::{Command, Stdio};

use fake::{KEY, Server};
use hutch_api::http::{Limits, ServeOptions};

pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn program(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hutch"));
    command
        .args(arguments)
        .env_clear()
        .env("HUTCH_URL", format!("http://{}", server.address))
        .env("HUTCH_API_KEY", KEY)
        .env("HUTCH_DATA", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the program to its end beside the service.
pub async fn run(server: &Server, arguments: &[&str]) -> Ran {
    run_command(program(server, arguments)).await
}

pub async fn run_command(mut command: Command) -> Ran {
    tokio::task::spawn_blocking(move || {
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    })
    .await
    .unwrap()
}

pub async fn server() -> Server {
    Server::start_with(Limits::default(), ServeOptions::default()).await
}
