//! The loop that accepts connections.
//!
//! ```text
//! accepting ── shutdown ──> draining ── all connections ended, or `grace` over ──> done
//! ```
//!
//! Draining closes the listener and every idle connection at once; a connection with a request in it ends with that
//! request's answer. Only HTTP/1.1 is spoken: a client that is offered HTTP/2 buffers whole streams.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::tls::Tls;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Serve TLS with this certificate; plain HTTP without.
    pub tls: Option<Tls>,
    /// How long a connection may take to send a request's head, and how long it may be idle between requests. Clients
    /// close idle connections after at most 90 seconds; a longer time here spares them the race.
    pub head: Duration,
    /// How long requests may go on after the shutdown began.
    pub grace: Duration,
    /// Connections at a time; more wait to be accepted.
    pub connections: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let (head, grace) = (Duration::from_secs(120), Duration::from_secs(30));
        Self { tls: None, head, grace, connections: 4096 }
    }
}

/// Serves until `shutdown` completes, then drains. Returns when every connection has ended or was cut.
pub async fn serve(listener: TcpListener, router: Router, options: ServeOptions, shutdown: impl Future<Output = ()>) {
    let (closing, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < options.connections => match accepted {
                Ok((stream, _)) => {
                    let connection = connection(stream, router.clone(), options.clone(), closing.subscribe());
                    connections.spawn(connection);
                }
                Err(error) => pause_after(&error).await,
            },
        }
    }
    drop(listener);
    // Nobody listens any more when every connection has ended; that is no error.
    let _ = closing.send(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.grace, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests were still running at the deadline and are cut");
        connections.shutdown().await;
    }
}

/// An accept that fails for want of descriptors fails again at once: wait a little instead of spinning.
async fn pause_after(error: &io::Error) {
    let is_the_peer = matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset);
    if !is_the_peer {
        tracing::error!(%error, "accepting a connection failed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn connection(stream: TcpStream, router: Router, options: ServeOptions, closing: watch::Receiver<bool>) {
    // Small answers go out at once; failing to ask for that only costs time.
    let _ = stream.set_nodelay(true);
    match &options.tls {
        None => speak(stream, router, &options, closing).await,
        Some(tls) => match tokio::time::timeout(options.head, tls.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => speak(stream, router, &options, closing).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        },
    }
}

async fn speak<S>(stream: S, router: Router, options: &ServeOptions, mut closing: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // `changed` fails when the sender is gone, and then it is time to close as well.
    let early = tokio::select! {
        result = connection.as_mut() => Some(result),
        _ = closing.changed() => None,
    };
    let result = match early {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}
