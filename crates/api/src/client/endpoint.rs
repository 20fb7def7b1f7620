//! Where a service is, and how to connect to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderValue, Uri};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::EndpointError;

/// Where Debian keeps the certificates that the machine trusts.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A service's address and the key to use there.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// What stands before a path of the table; empty or beginning with `/`.
    prefix: String,
    key: Option<HeaderValue>,
    tls: Option<TlsConnector>,
}

/// A byte stream to the service, encrypted or not.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Endpoint({}{})", self.address(), self.prefix)
    }
}

impl Endpoint {
    /// Reads a URL. For `https`, `roots` is a file of trusted certificates in PEM form, the system's when `None`.
    ///
    /// # Errors
    /// [`EndpointError`], which names what is wrong.
    pub fn parse(url: &str, key: Option<&str>, roots: Option<&Path>) -> Result<Self, EndpointError> {
        let wrong = || EndpointError::Url { url: url.to_owned() };
        let uri: Uri = url.trim().parse().map_err(|_| wrong())?;
        let (scheme, host) = (uri.scheme_str().ok_or_else(wrong)?, uri.host().ok_or_else(wrong)?);
        let (encrypted, default_port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            other => return Err(EndpointError::Scheme { url: url.to_owned(), scheme: other.to_owned() }),
        };
        if uri.query().is_some() {
            return Err(wrong());
        }
        let key = key.map(|key| {
            let mut value = HeaderValue::from_str(key).map_err(|_| EndpointError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(default_port),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            key: key.transpose()?,
            tls: if encrypted { Some(connector(roots)?) } else { None },
        })
    }

    /// Host and port, as in a URL and the header `Host`.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn key(&self) -> Option<&HeaderValue> {
        self.key.as_ref()
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Wire>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

fn connector(roots: Option<&Path>) -> Result<TlsConnector, EndpointError> {
    let path = roots.map_or_else(|| PathBuf::from(SYSTEM_ROOTS), Path::to_owned);
    let certificates: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(&path).and_then(Iterator::collect);
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.map_err(|source| EndpointError::Roots { path, source })?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let address = |url| Endpoint::parse(url, None, None).map(|endpoint| (endpoint.address(), endpoint.prefix));
        assert_eq!(address("http://127.0.0.1:8480").unwrap(), ("127.0.0.1:8480".into(), String::new()));
        assert_eq!(address("http://[::1]:1/").unwrap(), ("[::1]:1".into(), String::new()));
        assert_eq!(address("http://box/hutch/").unwrap(), ("box:80".into(), "/hutch".into()));
        for wrong in ["", "127.0.0.1:8480", "localhost", "http://", "http://a/?b", "ftp://a"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(Endpoint::parse("http://a", Some("a\nb"), None), Err(EndpointError::Key)));
    }
}
