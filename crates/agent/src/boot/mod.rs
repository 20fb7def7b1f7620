//! From the kernel's first process to a guest that can serve.

pub(crate) mod options;

pub(crate) mod mounts;

pub(crate) mod root;

pub(crate) mod start;
