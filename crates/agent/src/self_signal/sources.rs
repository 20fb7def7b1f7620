//! Both ways in which the guest can ask: the server and the FIFO.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::SelfSignal;
use super::server::Server;
use super::words::Words;

/// The port of the server in a guest.
pub(crate) const PORT: u16 = 1029;

/// The FIFO of a guest.
pub(crate) const FIFO: &str = "/run/self";

/// Bytes read from the FIFO in one turn.
const READ: usize = 4096;

/// The ways in which the guest can ask, as far as they could be made.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Over HTTP.
    pub(crate) server: Option<Server>,
    /// By a FIFO.
    pub(crate) fifo: Option<Fifo>,
}

/// The FIFO.
#[derive(Debug)]
pub(crate) struct Fifo {
    /// Open in both directions, so that it has no end when a writer closes it.
    file: OwnedFd,
    words: Words,
}

impl Sources {
    /// Makes both. What cannot be made is done without: commands and files do not need it.
    pub(crate) fn new(port: u16, path: &Path) -> (Self, Option<u16>) {
        let server = Server::bind(port);
        let fifo = Fifo::new(path);
        if let Err(error) = &server {
            crate::console::say(&format!("no self signals on port {port}: {error}"));
        }
        if let Err(error) = &fifo {
            crate::console::say(&format!("no self signals at {}: {error}", path.display()));
        }
        let (server, port) = server.ok().unzip();
        (Self { server, fifo: fifo.ok() }, port)
    }
}

impl Fifo {
    /// Makes it, in place of whatever is there, for everybody to write to.
    fn new(path: &Path) -> io::Result<Self> {
        match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::empty(), 0)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR | Mode::WGRP | Mode::WOTH)?;
        Ok(Self { file, words: Words::default() })
    }

    /// The descriptor to wait on.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads once; the last that is asked for.
    pub(crate) fn read(&mut self) -> Option<SelfSignal> {
        let mut buffer = [0; READ];
        let count = rustix::io::read(&self.file, &mut buffer).unwrap_or(0);
        let action = self.words.feed(&buffer[..count])?;
        Some(SelfSignal { action, reason: None })
    }
}
