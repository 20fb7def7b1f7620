//! Files of the guest. Everything that may wait for a disk, or for a file system of the user's own making,
//! is a [`task`] whose steps run on the [`workers`], never on the loop that serves commands.

pub(crate) mod task;

pub(crate) mod workers;

pub(crate) mod failure;

pub(crate) mod path;

pub(crate) mod read;

pub(crate) mod write;

pub(crate) mod list;

pub(crate) mod tar;

pub(crate) mod archive;

pub(crate) mod change;

pub(crate) mod transfer;
