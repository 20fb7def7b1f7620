//! HTTP/1.1 over one kept connection: just what the bench asks for, with nothing between the clock and the socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A connection that is used again and again.
#[derive(Debug)]
pub(super) struct Connection {
    address: String,
    key: String,
    stream: BufReader<TcpStream>,
}

/// How the answer's body ends.
#[derive(Debug, PartialEq, Eq)]
enum Length {
    Known(u64),
    Chunked,
}

impl Connection {
    pub(super) fn open(address: &str, key: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true).context("send without delay")?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).context("set the deadline")?;
        Ok(Self { address: address.to_owned(), key: key.to_owned(), stream: BufReader::with_capacity(1 << 18, stream) })
    }

    /// Another connection to the same service.
    pub(super) fn another(&self) -> Result<Self> {
        Self::open(&self.address, &self.key)
    }

    /// Sends JSON (or nothing) and returns the answer's JSON.
    pub(super) fn json(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<serde_json::Value> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        self.head(method, path, "application/json", body.len() as u64)?;
        self.stream.get_mut().write_all(body.as_bytes()).context("send the body")?;
        let mut answer = Vec::new();
        let status = self.answer(&mut answer)?;
        let value: serde_json::Value = serde_json::from_slice(&answer).context("read the answer")?;
        if !(200..300).contains(&status) {
            bail!("{method} {path} answered {status}: {value}");
        }
        Ok(value)
    }

    /// Sends bytes: `block` again and again until `bytes` are sent.
    pub(super) fn send(&mut self, path: &str, bytes: u64, block: &[u8]) -> Result<()> {
        self.head("PUT", path, "application/octet-stream", bytes)?;
        let mut left = bytes;
        while left > 0 {
            let count = usize::try_from(left.min(block.len() as u64)).context("a block fits in memory")?;
            self.stream.get_mut().write_all(&block[..count]).context("send the body")?;
            left -= count as u64;
        }
        let mut answer = Vec::new();
        let status = self.answer(&mut answer)?;
        if status != 200 {
            bail!("PUT {path} answered {status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    /// Fetches bytes and returns how many came.
    pub(super) fn fetch(&mut self, path: &str) -> Result<u64> {
        self.head("GET", path, "application/json", 0)?;
        let mut counted = Counter(0);
        let status = self.answer(&mut counted)?;
        if status != 200 {
            bail!("GET {path} answered {status}");
        }
        Ok(counted.0)
    }

    fn head(&mut self, method: &str, path: &str, content: &str, length: u64) -> Result<()> {
        let (address, key) = (&self.address, &self.key);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {key}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.stream.get_mut().write_all(head.as_bytes()).context("send the request")
    }

    /// Reads a whole answer into `body` and returns its status.
    fn answer(&mut self, body: &mut impl Write) -> Result<u16> {
        let (status, length) = read_head(&mut self.stream)?;
        match length {
            Length::Known(length) => {
                let copied = std::io::copy(&mut (&mut self.stream).take(length), body).context("read the body")?;
                if copied != length {
                    bail!("the body ended after {copied} of {length} bytes");
                }
            }
            Length::Chunked => read_chunks(&mut self.stream, body)?,
        }
        Ok(status)
    }
}

fn read_line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).context("read a line")? == 0 {
        bail!("the connection was closed");
    }
    Ok(line.trim_end().to_owned())
}

fn read_head(stream: &mut impl BufRead) -> Result<(u16, Length)> {
    let line = read_line(stream)?;
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.with_context(|| format!("{line:?} is no status line"))?;
    let mut length = Length::Known(0);
    loop {
        let line = read_line(stream)?.to_ascii_lowercase();
        match line.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("content-length", value)) => {
                length = Length::Known(value.parse().with_context(|| format!("{value:?} is no length"))?);
            }
            Some(("transfer-encoding", "chunked")) => length = Length::Chunked,
            None => return Ok((status, length)),
            Some(_) => {}
        }
    }
}

fn read_chunks(stream: &mut impl BufRead, body: &mut impl Write) -> Result<()> {
    loop {
        let line = read_line(stream)?;
        let size = u64::from_str_radix(&line, 16).with_context(|| format!("{line:?} is no size of a chunk"))?;
        std::io::copy(&mut stream.by_ref().take(size), body).context("read a chunk")?;
        read_line(stream)?;
        if size == 0 {
            return Ok(());
        }
    }
}

/// Takes bytes and only counts them.
#[derive(Debug)]
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Length, read_chunks, read_head};

    #[test]
    fn heads_are_read() {
        let mut text: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello";
        assert_eq!(read_head(&mut text).unwrap(), (200, Length::Known(5)));
        assert_eq!(text, b"hello");
        let mut text: &[u8] = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read_head(&mut text).unwrap(), (404, Length::Chunked));
        assert!(read_head(&mut &b""[..]).is_err());
        assert!(read_head(&mut &b"nonsense\r\n\r\n"[..]).is_err());
    }

    #[test]
    fn chunks_are_joined() {
        let mut body = Vec::new();
        read_chunks(&mut &b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"[..], &mut body).unwrap();
        assert_eq!(body, b"abc0123456789");
    }
}
