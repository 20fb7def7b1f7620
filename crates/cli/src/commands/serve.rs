//! `hutch serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hutch_daemon::{Config, LogFormat, OnStop, TlsFiles};

use crate::duration;
use crate::failure::Failure;

const AFTER_HELP: &str = "\
Examples:
  hutch serve                                    on this machine only
  hutch serve --listen 127.0.0.1:0 --data ./d    on a free port, printed when ready, with data of its own
  hutch serve --listen 0.0.0.0:8480 --tls-cert cert.pem --tls-key key.pem

The first start makes an API key and says where it lies: <DIR>/api-key. A stop (Ctrl-C, SIGTERM) leaves sandboxes
running, and the next start finds them again. Whoever has the key can use as much of this machine as sandboxes may.";

/// Start the service that runs sandboxes (as root)
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Serve {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = Config::LISTEN)]
    listen: SocketAddr,
    /// The data directory: what must outlive the service
    #[arg(long, value_name = "DIR", env = "HUTCH_DATA", hide_env_values = true, default_value = Config::DATA)]
    data: PathBuf,
    /// The directory of built images
    #[arg(long, value_name = "DIR", env = "HUTCH_CACHE", hide_env_values = true, default_value = Config::CACHE)]
    cache: PathBuf,
    /// The directory of the guest's kernel and boot image; searched for beside this program without it
    #[arg(long, value_name = "DIR", env = "HUTCH_GUEST", hide_env_values = true)]
    guest: Option<PathBuf>,
    /// The program hutch-jail; searched for beside this program without it
    #[arg(long, value_name = "FILE")]
    jail: Option<PathBuf>,
    /// Serve TLS with this certificate chain, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Memory of all sandboxes together, in MiB; most of the machine's without it
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// How many sandboxes there may be
    #[arg(long, value_name = "COUNT")]
    max_sandboxes: Option<u64>,
    /// The largest file that may be uploaded, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 500)]
    max_upload: u64,
    /// How long requests may go on after a stop was asked for
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "10s")]
    stop_grace: Duration,
    /// What becomes of the sandboxes at a stop
    #[arg(long, value_name = "WHAT", default_value = "leave")]
    on_stop: Fate,
    /// The region that requests may name
    #[arg(long, value_name = "NAME", default_value = "local")]
    region: String,
    /// How the log on standard error looks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Form,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Fate {
    /// They run on
    Leave,
    /// They are destroyed
    Destroy,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// A line for each event
    Text,
    /// A JSON object for each event
    Json,
}

impl Serve {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        hutch_daemon::serve(self.config()?).await.map_err(|error| Failure::of(&error))?;
        Ok(0)
    }

    fn config(self) -> Result<Config, Failure> {
        let cache = std::path::absolute(&self.cache);
        let cache = cache.map_err(|error| Failure::because("the cache directory cannot be used", &error))?;
        let mut config = Config::new(self.data);
        config.listen = self.listen;
        config.cache = cache;
        config.guest = self.guest;
        config.launcher = self.jail;
        config.tls = self.tls_cert.zip(self.tls_key).map(|(certificate, key)| TlsFiles { certificate, key });
        config.bounds.memory_mib = self.memory.unwrap_or(config.bounds.memory_mib);
        config.bounds.sandboxes = self.max_sandboxes.unwrap_or(config.bounds.sandboxes);
        config.upload_bytes = self.max_upload.saturating_mul(1 << 20);
        config.stop_grace = self.stop_grace;
        config.region = self.region;
        config.on_stop = match self.on_stop {
            Fate::Leave => OnStop::Leave,
            Fate::Destroy => OnStop::Destroy,
        };
        config.log_format = match self.log_format {
            Form::Text => LogFormat::Text,
            Form::Json => LogFormat::Json,
        };
        Ok(config)
    }
}
