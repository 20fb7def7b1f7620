//! Giving the kernel's random number generator entropy: random(4), `RNDADDENTROPY` and `RNDRESEEDCRNG`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use hutch_protocol::machine::ENTROPY_MAX;

/// `_IOW('R', 0x03, int[2])`.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
/// `_IO('R', 0x07)`.
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

/// The argument of `RNDADDENTROPY`, with room for the largest request.
#[repr(C)]
struct PoolEntropy {
    entropy_count: libc::c_int,
    buffer_size: libc::c_int,
    buffer: [u8; ENTROPY_MAX],
}

/// The kernel's generator, open to be fed.
#[derive(Debug)]
pub(crate) struct Generator(File);

impl Generator {
    /// Opens it.
    pub(crate) fn open() -> io::Result<Self> {
        File::options().write(true).open("/dev/urandom").map(Self)
    }

    /// Mixes `bytes` in, credits eight bits for each, and makes the generator start from them at once.
    pub(crate) fn add(&self, bytes: &[u8]) -> io::Result<()> {
        add(&self.0, bytes)
    }
}

fn add(device: &File, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(ENTROPY_MAX) {
        let length = piece.len() as libc::c_int;
        let mut pool = PoolEntropy { entropy_count: length * 8, buffer_size: length, buffer: [0; ENTROPY_MAX] };
        pool.buffer[..piece.len()].copy_from_slice(piece);
        // SAFETY: the descriptor is open, and `pool` is the struct that this request reads: its `buffer_size`
        // bytes lie within `buffer`.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const pool) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the descriptor is open and this request takes no argument.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
