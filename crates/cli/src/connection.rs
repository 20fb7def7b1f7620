//! Which service, with which key.

use std::path::{Path, PathBuf};

use hutch_api::client::{Client, Endpoint};
use hutch_daemon::Config;
use hutch_daemon::data_directory::DataDirectory;

use crate::failure::Failure;

/// The service that commands speak to, and where that was found.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Whether the user named the service.
    pub(crate) is_named: bool,
    /// Where the key came from, or why there is none; for errors.
    pub(crate) key_origin: String,
}

/// The data directory of the service on this machine.
pub(crate) fn data_directory() -> PathBuf {
    environment("HUTCH_DATA").map_or_else(|| PathBuf::from(Config::DATA), PathBuf::from)
}

impl Connection {
    /// Decides on service and key. Nothing is sent.
    pub(crate) fn new(named: Option<&str>) -> Result<Self, Failure> {
        let data = DataDirectory::at(&data_directory());
        let named = named.filter(|url| !url.is_empty());
        let url = named.map_or_else(|| url_on_this_machine(&data), str::to_owned);
        let key = environment("HUTCH_API_KEY");
        let (key, key_origin) = match key {
            Some(key) => (Some(key), "the key came from HUTCH_API_KEY".to_owned()),
            None if named.is_some_and(|url| !is_on_this_machine(url)) => {
                (None, "HUTCH_API_KEY is not set; the key of this machine's service is for that one only".to_owned())
            }
            None => key_on_this_machine(&data.api_key()),
        };
        let roots = environment("HUTCH_CA").map(PathBuf::from);
        let endpoint = Endpoint::parse(&url, key.as_deref(), roots.as_deref());
        let endpoint = endpoint.map_err(|error| Failure::of(&error))?;
        Ok(Self { client: Client::new(endpoint), is_named: named.is_some(), key_origin })
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where the service says that it listens, else where it listens by default.
fn url_on_this_machine(data: &DataDirectory) -> String {
    let written = std::fs::read_to_string(data.url()).ok().map(|text| text.trim().to_owned());
    written.filter(|url| !url.is_empty()).unwrap_or_else(|| format!("http://{}", Config::LISTEN))
}

/// The key that the service wrote at its first start must not travel to another machine.
fn is_on_this_machine(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once(':').filter(|_| !authority.ends_with(']')).map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn key_on_this_machine(path: &Path) -> (Option<String>, String) {
    match std::fs::read_to_string(path) {
        Ok(text) => (Some(text.trim().to_owned()), format!("the key came from {}", path.display())),
        Err(error) => (None, format!("HUTCH_API_KEY is not set and {} cannot be read: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_this_machine_stays_on_it() {
        for near in ["http://127.0.0.1:1", "http://[::1]:1/x", "https://localhost", "http://127.9.9.9"] {
            assert!(is_on_this_machine(near), "{near}");
        }
        for far in ["http://127.0.0.1.example:1", "http://example", "http://10.0.0.1", "http://localhost@far:1", ""] {
            assert!(!is_on_this_machine(far), "{far}");
        }
    }
}
