//! TLS for the listener: a certificate and its key from two files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate chain and its key, ready to serve.
#[derive(Clone)]
pub struct Tls {
    pub(super) acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tls")
    }
}

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate file cannot be read or has no certificate in PEM form.
    #[error("the certificate {path} cannot be read")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate file has no certificate.
    #[error("{path} holds no certificate in PEM form")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The key file cannot be read or has no private key in PEM form.
    #[error("the private key {path} cannot be read")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    #[error("the certificate {certificate} and the private key {key} cannot be used together")]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        #[source]
        source: rustls::Error,
    },
}

impl Tls {
    /// Reads a certificate chain and its private key, both in PEM form.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unreadable = |source| TlsError::Certificate { path: certificate.to_owned(), source };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(unreadable)?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { path: certificate.to_owned() });
        }
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Key { path: key.to_owned(), source })?;
        let unusable = |source| TlsError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), source };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}
