//! The daemon from its start to its end.
//!
//! ```text
//! lock the data directory, open the store, first key
//!   -> listen: /healthz answers; /readyz says "starting"
//!   -> every sandbox of an earlier run gets its owner: adopt, undo, destroy
//!   -> what belongs to nobody is removed
//!   -> ready
//!   -> SIGTERM or SIGINT: no new connections, requests end within the grace, owners let go of their machines
//! ```
//!
//! Stopping leaves the sandboxes running unless told otherwise. A second signal cuts the grace short.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hutch_api::http::{Limits, ServeOptions, Tls, TlsError, router};
use hutch_engine::Engine;
use hutch_engine::usermode::{Options, UserMode};
use hutch_image::{Cache, CacheError};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::capacity::{Bounds, Capacity};
use crate::clock::Clock;
use crate::config::{Config, OnStop};
use crate::core::{Core, Settings};
use crate::data_directory::{DataDirectory, DataError, Lock, write_file};
use crate::images::{Catalogue, ImageSource, Images};
use crate::keys::{self, KeyError};
use crate::log;
use crate::metering::Meter;
use crate::metrics::Metrics;
use crate::operations::Daemon;
use crate::owner::Command;
use crate::pool::{self, Pool};
use crate::registry::Registry;
use crate::store::{Store, StoreError, query};
use crate::templates::{self, Templates};
use crate::{recovery, sweep};

/// How long owners are given to come to an end when the daemon stops.
const LAST_STEPS: Duration = Duration::from_secs(15);

/// The daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// `HUTCH_LOG` is no filter.
    #[error("HUTCH_LOG is not a filter of the log; an example is `info,hutch_engine=debug`")]
    Log(#[source] tracing_subscriber::filter::ParseError),
    /// The data directory cannot be used.
    #[error("the data directory cannot be used")]
    Data(#[source] DataError),
    /// The store cannot be used.
    #[error("the store cannot be used")]
    Store(#[source] StoreError),
    /// The first key cannot be made.
    #[error("the first API key cannot be made")]
    Key(#[source] KeyError),
    /// The cache cannot be used.
    #[error("the image cache cannot be used")]
    Cache(#[source] CacheError),
    /// The address cannot be listened at.
    #[error("cannot listen at {address}; choose another with --listen")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate or key cannot be used.
    #[error("TLS cannot be served")]
    Tls(#[source] TlsError),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signal(#[source] std::io::Error),
}

/// Runs the daemon until it is asked to stop by SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`] when it cannot start. Once it has started it does not fail.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    log::install(config.log_format).map_err(ServeError::Log)?;
    let mut signals = Signals::new().map_err(ServeError::Signal)?;
    let parts = gather(&config)?;
    let tls = match &config.tls {
        Some(files) => Some(Tls::load(&files.certificate, &files.key).map_err(ServeError::Tls)?),
        None => None,
    };
    let (listener, url) = listen(&config).await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), url, data = %parts.data.root().display(), "starting");
    let started = Started::open(parts).await?;
    write_file(&started.core.data.url(), 0o644, &format!("{url}\n")).map_err(ServeError::Data)?;

    let limits = Limits { file_bytes: config.upload_bytes, ..Limits::default() };
    let options = ServeOptions { tls, grace: config.stop_grace, ..ServeOptions::default() };
    let router = router(Arc::new(started.daemon()), limits);
    let (close, mut closed) = watch::channel(false);
    let asked = async move { drop(closed.wait_for(|closed| *closed).await) };
    let mut serving = tokio::spawn(hutch_api::http::serve(listener, router, options, asked));

    let recovered = tokio::select! {
        () = started.recover() => true,
        () = signals.received() => false,
    };
    if recovered {
        announce(&started, &url);
        signals.received().await;
    }
    tracing::info!("stopping");
    close.send_replace(true);
    tokio::select! {
        _ = &mut serving => {}
        () = signals.received() => {
            tracing::warn!("stopping at once: requests are cut");
            serving.abort();
        }
    }
    started.stop(config.on_stop).await;
    // Nobody listens there any more; that the note is gone already is as well.
    let _ = std::fs::remove_file(started.core.data.url());
    tracing::info!("stopped");
    Ok(())
}

/// Takes the data directory and puts together what the daemon consists of.
fn gather(config: &Config) -> Result<Parts, ServeError> {
    let data = DataDirectory::create(&config.data).map_err(ServeError::Data)?;
    let lock = data.lock().map_err(ServeError::Data)?;
    let cache = Cache::open(&config.cache).map_err(ServeError::Cache)?;
    let engine = UserMode::new(Options {
        guest: config.guest.clone(),
        launcher: config.launcher.clone(),
        ..Options::new(data.sandboxes())
    });
    Ok(Parts {
        data,
        lock,
        engine: Arc::new(engine),
        images: Arc::new(Catalogue::new(cache)),
        clock: Clock::system(),
        bounds: config.bounds,
        settings: Settings { region: config.region.clone(), preparation: config.preparation, ..Settings::default() },
    })
}

/// Takes the address, and says what it is in a URL.
async fn listen(config: &Config) -> Result<(TcpListener, String), ServeError> {
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let address = listener.local_addr().unwrap_or(address);
    if config.tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!(%address, "API keys cross the network in clear: listen on a loopback address, or serve TLS");
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    Ok((listener, format!("{scheme}://{address}")))
}

/// What a daemon is put together from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) data: DataDirectory,
    pub(crate) lock: Lock,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) images: Arc<dyn ImageSource>,
    pub(crate) clock: Clock,
    pub(crate) bounds: Bounds,
    pub(crate) settings: Settings,
}

/// A daemon that has opened its store.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) core: Arc<Core>,
    made_key: bool,
    /// What prepares machines for creates to come.
    preparing: Mutex<Vec<JoinHandle<()>>>,
    _lock: Lock,
}

impl Started {
    /// Opens the store and puts the daemon together. Nothing of an earlier run is touched yet.
    pub(crate) async fn open(parts: Parts) -> Result<Self, ServeError> {
        let Parts { data, lock, engine, images, clock, bounds, mut settings } = parts;
        let store = Store::open(&data.store()).map_err(ServeError::Store)?;
        let made_key = keys::ensure_first(&data, &clock).map_err(ServeError::Key)?;
        settings.host_id = host_id(&store).await.map_err(ServeError::Store)?;
        let metrics = Arc::new(Metrics::default());
        let core = Core {
            images: Images::new(images, clock.clone(), Arc::clone(&metrics)),
            templates: Templates::default(),
            pool: Pool::default(),
            capacity: Capacity::new(bounds),
            creates: Arc::new(Semaphore::new(settings.concurrent_creates)),
            adoptions: Semaphore::new(settings.concurrent_adoptions),
            registry: Registry::new(),
            meter: Meter::default(),
            prerequisites: crate::doctor::Prerequisites::default(),
            recovering: watch::Sender::new(true),
            stopping: watch::Sender::new(false),
            settings,
            data,
            store,
            engine,
            metrics,
            clock,
        };
        Ok(Self { core: Arc::new(core), made_key, preparing: Mutex::default(), _lock: lock })
    }

    /// The contract, implemented by this daemon.
    pub(crate) fn daemon(&self) -> Daemon {
        Daemon(Arc::clone(&self.core))
    }

    /// Takes over what an earlier run left, and begins to sweep. Ready afterwards.
    pub(crate) async fn recover(&self) {
        match recovery::take_over(&self.core).await {
            Ok(handles) => recovery::settle(&self.core, handles).await,
            Err(error) => {
                // Without its rows this daemon would remove living sandboxes as orphans: it stays unready.
                tracing::error!(error = crate::report::chain(&error), "the sandboxes of an earlier run cannot be read");
                return std::future::pending().await;
            }
        }
        if let Err(error) = self.take_over_prepared().await {
            tracing::error!(error = crate::report::chain(&error), "what an earlier run prepared cannot be read");
            return std::future::pending().await;
        }
        recovery::remove_orphans(&self.core).await;
        recovery::sweep_builds(&self.core);
        tokio::spawn(sweep::run(Arc::clone(&self.core)));
        self.core.recovering.send_replace(false);
    }

    /// Removes or takes over what an earlier run prepared, and begins to prepare.
    async fn take_over_prepared(&self) -> Result<(), StoreError> {
        let core = &self.core;
        pool::take_over(core).await?;
        templates::take_over(core).await?;
        let (making, filling) = (templates::run(Arc::clone(core)), pool::run(Arc::clone(core)));
        let mut preparing = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        *preparing = vec![tokio::spawn(making), tokio::spawn(filling), tokio::spawn(templates::keep(Arc::clone(core)))];
        Ok(())
    }

    /// Lets go of the sandboxes, or takes them down, and waits for their owners to end.
    pub(crate) async fn stop(&self, on_stop: OnStop) {
        let core = &self.core;
        core.images.cancel();
        if on_stop == OnStop::Destroy {
            for handle in core.registry.all() {
                let (done, _nobody_waits) = oneshot::channel();
                // An owner whose queue is closed has ended.
                drop(handle.commands.send(Command::Destroy { cause: "the service stops".into(), done }).await);
            }
            if tokio::time::timeout(LAST_STEPS, core.registry.emptied()).await.is_err() {
                tracing::warn!("not every sandbox was destroyed in time; the next start goes on with it");
            }
        }
        core.stopping.send_replace(true);
        let preparing = std::mem::take(&mut *self.preparing.lock().unwrap_or_else(PoisonError::into_inner));
        if tokio::time::timeout(LAST_STEPS, join_all(preparing)).await.is_err() {
            tracing::warn!("not everything that was prepared is removed; the next start removes it");
        }
        if tokio::time::timeout(LAST_STEPS, core.registry.emptied()).await.is_err() {
            tracing::warn!("not every sandbox came to rest in time; the next start takes over");
        }
    }
}

/// This host's id: made once, remembered in the store.
async fn host_id(store: &Store) -> Result<String, StoreError> {
    let remembered = store.write("remember this host's id", |db| match query::remembered(db, "host_id")? {
        Some(id) => Ok(id),
        None => {
            let id = format!("host-{}", ulid::Ulid::new().to_string().to_ascii_lowercase());
            query::remember(db, "host_id", &id).map(|()| id)
        }
    });
    remembered.await
}

/// Tells where the daemon listens and where the first key lies: people on standard output, the log too.
fn announce(started: &Started, url: &str) {
    let key = started.core.data.api_key();
    tracing::info!(url, "ready");
    let mut text = format!("hutch is ready at {url}\n");
    if started.made_key {
        tracing::info!(path = %key.display(), "made the first API key");
        text.push_str(&format!("the API key of the first account is in {}\n", key.display()));
    }
    // A closed standard output is no reason to end.
    drop(std::io::stdout().write_all(text.as_bytes()));
}

/// The signals that end the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
