//! An agent that says its preamble and then nothing.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hutch_engine::agent::protocol::preamble::{LENGTH, Preamble};

/// Answers at a socket until it is dropped. Lives on a thread of its own and so outlives the runtime of a daemon.
#[derive(Debug)]
pub(crate) struct FakeAgent {
    path: PathBuf,
    connections: Arc<Mutex<Vec<UnixStream>>>,
}

impl FakeAgent {
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let connections = Arc::<Mutex<Vec<UnixStream>>>::default();
        let accepted = Arc::downgrade(&connections);
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let Some(connections) = accepted.upgrade() else { return };
                if greet(&mut stream).is_ok() {
                    connections.lock().unwrap().push(stream);
                }
            }
        });
        Ok(Self { path: path.to_owned(), connections })
    }

    /// Cuts every connection; the agent goes on to answer new ones.
    pub(crate) fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.cut();
        // Wakes the thread, which then finds that nobody needs it.
        let path = self.path.clone();
        self.connections = Arc::default();
        let _ = UnixStream::connect(&path);
        let _ = std::fs::remove_file(path);
    }
}

fn greet(stream: &mut UnixStream) -> io::Result<()> {
    let mut theirs = [0; LENGTH];
    stream.read_exact(&mut theirs)?;
    stream.write_all(&Preamble::OURS.encode())
}
