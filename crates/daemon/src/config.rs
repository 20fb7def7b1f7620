//! What the daemon must be told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::capacity::Bounds;
use crate::log::LogFormat;

/// What the daemon must be told. [`Config::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The data directory.
    pub data: PathBuf,
    /// The cache of images; absolute.
    pub cache: PathBuf,
    /// The directory of the guest's kernel and boot image; searched for when `None`.
    pub guest: Option<PathBuf>,
    /// The program `hutch-jail`; searched for when `None`.
    pub launcher: Option<PathBuf>,
    /// Serve TLS with these files; plain HTTP when `None`.
    pub tls: Option<TlsFiles>,
    /// How the log looks.
    pub log_format: LogFormat,
    /// What sandboxes may take of the host.
    pub bounds: Bounds,
    /// What is prepared for creates to come.
    pub preparation: Preparation,
    /// The region that requests may name.
    pub region: String,
    /// The largest file that may be uploaded, in bytes.
    pub upload_bytes: u64,
    /// How long requests may go on when the daemon is asked to stop.
    pub stop_grace: Duration,
    /// What becomes of the sandboxes when the daemon stops.
    pub on_stop: OnStop,
}

/// A certificate chain and its key, both in PEM form.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What is prepared so that a create need not boot anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preparation {
    /// How many templates there may be; the ones used least recently go first. With 0 every create boots.
    pub templates: u32,
    /// What templates may take of the host's disk, in bytes.
    pub templates_bytes: u64,
    /// How many templates are made at the start of the daemon.
    pub templates_at_start: u32,
    /// How many machines may wait for a create. With 0 every create clones its machine when it comes.
    pub pool: u32,
    /// How many of those may be of one template and shape.
    pub pool_of_a_kind: u32,
}

/// What becomes of the sandboxes when the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// They run on, and the next start finds them again.
    Leave,
    /// They are destroyed.
    Destroy,
}

impl Config {
    /// Where the daemon listens unless told otherwise.
    pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8480);
    /// The data directory unless told otherwise.
    pub const DATA: &'static str = "/var/lib/hutch";
    /// The cache directory unless told otherwise.
    pub const CACHE: &'static str = "/var/cache/hutch";

    /// The defaults, with this data directory.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            listen: Self::LISTEN,
            data: data.into(),
            cache: Self::CACHE.into(),
            guest: None,
            launcher: None,
            tls: None,
            log_format: LogFormat::Text,
            bounds: Bounds::of_host(),
            preparation: Preparation::default(),
            region: "local".to_owned(),
            upload_bytes: 500 << 20,
            stop_grace: Duration::from_secs(10),
            on_stop: OnStop::Leave,
        }
    }
}

impl Default for Preparation {
    fn default() -> Self {
        Self { templates: 32, templates_bytes: 16 << 30, templates_at_start: 4, pool: 32, pool_of_a_kind: 24 }
    }
}

impl Preparation {
    /// Nothing is prepared: every create boots.
    pub const NONE: Self = Self { templates: 0, templates_bytes: 0, templates_at_start: 0, pool: 0, pool_of_a_kind: 0 };
}
