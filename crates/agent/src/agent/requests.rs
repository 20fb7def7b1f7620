//! What the host sends: each frame to the stream that it is for.

use std::collections::{BTreeMap, HashMap};

use hutch_protocol::exec::{Exec, Signal};
use hutch_protocol::frame::{Body, Channel, Frame};
use hutch_protocol::machine::{
    Configure, Configured, ReadStats, Reseed, SetClock, Shutdown, ShuttingDown, Stats, Warm, Watch, Watched,
};
use hutch_protocol::{Code, Failure, Operation, Request};

use super::commands::Purpose;
use super::event_loop::Agent;
use crate::channel::{ConnectionEnd, Outgoing};
use crate::exec::execution::Execution;
use crate::files::archive::Archiving;
use crate::files::change;
use crate::files::list::Listing;
use crate::files::read::{Reading, stat};
use crate::files::task::{Once, Task, json};
use crate::files::write::Writing;
use crate::machine::stats;

/// Streams that may be open at once.
const STREAMS: usize = 4096;

/// Bytes of a file's content that may be under way to the agent.
const UPLOAD_WINDOW: u32 = 1 << 20;

/// How long `/bin/sh` may take to be warmed up; it does nothing.
const WARM_TIMEOUT_MS: u64 = 20_000;

/// Which table a stream is in, under which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// A command.
    Command(u64),
    /// A stream about files.
    Transfer(u64),
    /// A stream of what the guest asks for.
    Watch,
}

/// The streams of the connection.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    open: HashMap<u32, Route>,
    last: u32,
}

impl Routes {
    /// The stream has been answered.
    pub(crate) fn close(&mut self, stream: u32) {
        self.open.remove(&stream);
    }

    fn get(&self, stream: u32) -> Result<Option<Route>, ConnectionEnd> {
        match self.open.get(&stream) {
            Some(route) => Ok(Some(*route)),
            // It was answered while this frame was under way.
            None if stream <= self.last => Ok(None),
            None => Err(ConnectionEnd::Unexpected(stream)),
        }
    }
}

/// What a request led to.
enum Begun {
    /// It is answered already.
    Answer(Result<Vec<u8>, Failure>),
    /// It goes on in a table.
    Open(Route),
}

impl Agent {
    /// Does what a frame says. An error ends the connection.
    pub(crate) fn take_frame(&mut self, frame: Frame<'_>, outgoing: &mut Outgoing) -> Result<(), ConnectionEnd> {
        let stream = frame.stream;
        match frame.body {
            Body::Open { operation, request } => self.open(stream, operation, request, outgoing),
            Body::Data { channel: Channel::Input, bytes } => self.input(stream, Some(bytes), outgoing),
            Body::End { channel: Channel::Input } => self.input(stream, None, outgoing),
            Body::Credit { channel, bytes } => self.credit(stream, channel, bytes),
            Body::Signal(signal) => self.signal(stream, signal),
            Body::Cancel => self.cancel(stream, outgoing),
            Body::Ping(token) => {
                let sent = outgoing.frame(0, Body::Pong(token));
                debug_assert!(sent.is_ok(), "a pong has eight bytes");
                Ok(())
            }
            Body::Data { .. } | Body::End { .. } | Body::Item(_) | Body::Result(_) | Body::Error(_) | Body::Pong(_) => {
                Err(ConnectionEnd::Unexpected(stream))
            }
        }
    }

    fn open(
        &mut self,
        stream: u32,
        operation: u8,
        request: &[u8],
        outgoing: &mut Outgoing,
    ) -> Result<(), ConnectionEnd> {
        if stream <= self.routes.last {
            return Err(ConnectionEnd::Unexpected(stream));
        }
        self.routes.last = stream;
        let begun = if self.routes.open.len() >= STREAMS {
            Err(Failure::new(Code::Exhausted, format!("{STREAMS} streams are open: wait for some to end")))
        } else {
            self.begin(stream, operation, request)
        };
        match begun.unwrap_or_else(|failure| Begun::Answer(Err(failure))) {
            Begun::Answer(answer) => outgoing.answer(stream, &answer),
            Begun::Open(route) => {
                self.routes.open.insert(stream, route);
                self.widen(stream, route, operation, outgoing);
            }
        }
        Ok(())
    }

    /// An upload may be further ahead than input of commands.
    fn widen(&mut self, stream: u32, route: Route, operation: u8, outgoing: &mut Outgoing) {
        if let (Route::Transfer(key), true) = (route, operation == Operation::WriteFile as u8) {
            let more = self.transfers.get(key).and_then(|transfer| transfer.widen(UPLOAD_WINDOW));
            if let Some(bytes) = more {
                let sent = outgoing.frame(stream, Body::Credit { channel: Channel::Input, bytes });
                debug_assert!(sent.is_ok(), "credit has four bytes");
            }
        }
    }

    fn begin(&mut self, stream: u32, operation: u8, request: &[u8]) -> Result<Begun, Failure> {
        let operation = Operation::from_number(operation).ok_or_else(|| {
            Failure::new(Code::Unsupported, format!("this agent does not know operation {operation}"))
        })?;
        match operation {
            Operation::Configure => {
                let configured = self.configure(parse(request)?)?;
                Ok(Begun::Answer(Ok(json(&configured))))
            }
            Operation::SetClock => {
                let set = self.configuration.set_clock(&parse::<SetClock>(request)?)?;
                Ok(Begun::Answer(Ok(json(&set))))
            }
            Operation::Reseed => {
                let reseeded = self.configuration.reseed(&parse::<Reseed>(request)?)?;
                Ok(Begun::Answer(Ok(json(&reseeded))))
            }
            Operation::ReadStats => {
                parse::<ReadStats>(request)?;
                let (execs, detached) = self.commands.counts();
                let groups = self.commands.groups().map(|groups| &*groups);
                let stats = Stats { execs, detached, ..stats::read(groups) };
                Ok(Begun::Answer(Ok(json(&stats))))
            }
            Operation::Shutdown => {
                parse::<Shutdown>(request)?;
                self.prepare_to_end();
                Ok(Begun::Answer(Ok(json(&ShuttingDown {}))))
            }
            Operation::Warm => {
                parse::<Warm>(request)?;
                self.begin_warm(stream)
            }
            Operation::Watch => {
                parse::<Watch>(request)?;
                self.self_signals.watchers.add(stream);
                Ok(Begun::Open(Route::Watch))
            }
            Operation::Exec => self.begin_exec(stream, parse(request)?),
            _ => {
                self.configuration.env()?;
                let task = file_task(operation, request)?;
                let key = self.next_key();
                self.transfers.start((stream, key), task);
                Ok(Begun::Open(Route::Transfer(key)))
            }
        }
    }

    fn begin_exec(&mut self, stream: u32, exec: Exec) -> Result<Begun, Failure> {
        let key = self.next_key();
        let env = self.configuration.env()?;
        Ok(match self.commands.start((stream, key), exec, Purpose::Exec, env, &self.poll) {
            Some(answer) => Begun::Answer(answer),
            None => Begun::Open(Route::Command(key)),
        })
    }

    /// What the request says, and with it what becomes of the commands of a connection before.
    fn configure(&mut self, request: Configure) -> Result<Configured, Failure> {
        let (continues, is_fresh) = (request.continues, request.machine_id.is_some());
        let configured = self.configuration.apply(request, self.commands.groups())?;
        self.commands.settle_orphans(continues);
        if is_fresh {
            self.self_signals.watchers.forget();
        }
        Ok(configured)
    }

    /// Does what makes the first command and the first `Configure` of a machine faster that is saved after this.
    fn begin_warm(&mut self, stream: u32) -> Result<Begun, Failure> {
        let key = self.next_key();
        self.configuration.warm(self.commands.groups());
        // With output, so that its way has been gone as well; nobody gets it.
        let exec = Exec { max_output_bytes: Some(0), timeout_ms: Some(WARM_TIMEOUT_MS), ..Exec::shell("echo") };
        Ok(match self.commands.start((stream, key), exec, Purpose::Warm, &BTreeMap::new(), &self.poll) {
            Some(answer) => Begun::Answer(answer),
            None => Begun::Open(Route::Command(key)),
        })
    }

    fn input(&mut self, stream: u32, bytes: Option<&[u8]>, outgoing: &mut Outgoing) -> Result<(), ConnectionEnd> {
        let overrun = |_| ConnectionEnd::Unexpected(stream);
        match self.routes.get(stream)? {
            None | Some(Route::Watch) => {}
            Some(Route::Transfer(key)) => {
                if let Some(transfer) = self.transfers.get(key) {
                    match bytes {
                        Some(bytes) => transfer.push(bytes).map_err(overrun)?,
                        None => transfer.end(),
                    }
                }
            }
            Some(Route::Command(key)) => {
                // Input that nobody asked for would have nowhere to go.
                if let Some(input) = self.commands.get(key).and_then(Execution::input) {
                    let written = match bytes {
                        Some(bytes) => input.push(bytes).map_err(overrun)?,
                        None => input.end(),
                    };
                    Execution::report_input(stream, &written, outgoing);
                }
            }
        }
        Ok(())
    }

    fn credit(&mut self, stream: u32, channel: Channel, bytes: u32) -> Result<(), ConnectionEnd> {
        let credit = match self.routes.get(stream)? {
            None => return Ok(()),
            Some(Route::Command(key)) => {
                let execution = self.commands.get(key);
                execution.and_then(|execution| execution.output(channel)).map(|output| output.credit())
            }
            Some(Route::Transfer(key)) => self.transfers.get(key).map(|transfer| transfer.credit()),
            Some(Route::Watch) => {
                let granted = self.self_signals.watchers.grant(stream, bytes);
                return granted.map_err(|_| ConnectionEnd::Unexpected(stream));
            }
        };
        match credit {
            Some(credit) => credit.grant(bytes).map_err(|_| ConnectionEnd::Unexpected(stream)),
            None => Ok(()),
        }
    }

    fn signal(&mut self, stream: u32, signal: &[u8]) -> Result<(), ConnectionEnd> {
        let Some(Route::Command(key)) = self.routes.get(stream)? else { return Ok(()) };
        let sent = parse::<Signal>(signal).and_then(|signal| match self.commands.get(key) {
            Some(execution) => execution.signal(signal),
            None => Ok(()),
        });
        // A signal has no answer of its own.
        if let Err(failure) = sent {
            crate::console::say(&failure.message);
        }
        Ok(())
    }

    fn cancel(&mut self, stream: u32, outgoing: &mut Outgoing) -> Result<(), ConnectionEnd> {
        match self.routes.get(stream)? {
            None => {}
            Some(Route::Command(key)) => {
                if let Some(execution) = self.commands.get(key) {
                    execution.cancel();
                }
            }
            Some(Route::Watch) => {
                self.self_signals.watchers.remove(stream);
                outgoing.answer(stream, &Ok(json(&Watched {})));
                self.routes.close(stream);
            }
            Some(Route::Transfer(key)) => {
                if let Some(answer) = self.transfers.cancel(key) {
                    outgoing.answer(stream, &answer);
                    self.routes.close(stream);
                }
            }
        }
        Ok(())
    }
}

fn file_task(operation: Operation, request: &[u8]) -> Result<Box<dyn Task>, Failure> {
    Ok(match operation {
        Operation::ReadFile => Box::new(Reading::new(parse(request)?)),
        Operation::WriteFile => Box::new(Writing::new(parse(request)?)),
        Operation::List => Box::new(Listing::new(parse(request)?)),
        Operation::Archive => Box::new(Archiving::new(parse(request)?)),
        Operation::Stat => once(request, stat)?,
        Operation::Move => once(request, change::rename)?,
        Operation::Delete => once(request, change::delete)?,
        Operation::MakeDirectory => once(request, change::make_directory)?,
        Operation::Configure
        | Operation::SetClock
        | Operation::Reseed
        | Operation::ReadStats
        | Operation::Shutdown
        | Operation::Warm
        | Operation::Watch
        | Operation::Exec => {
            return Err(Failure::new(Code::Unsupported, format!("{} is not about files", operation.name())));
        }
    })
}

fn once<R: Request + Send + 'static>(
    request: &[u8],
    work: fn(&R) -> Result<R::Answer, Failure>,
) -> Result<Box<dyn Task>, Failure>
where
    R::Answer: 'static,
{
    let request: R = parse(request)?;
    Ok(Box::new(Once::new(move || work(&request))))
}

fn parse<T: serde::de::DeserializeOwned>(request: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(request)
        .map_err(|error| Failure::new(Code::InvalidRequest, format!("the request is not what was expected: {error}")))
}
