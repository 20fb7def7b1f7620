//! The few calls into the kernel that have no safe form elsewhere, each behind a safe function.

#![expect(unsafe_code, reason = "the only modules of this crate that call the kernel themselves")]

pub(crate) mod descriptors;

pub(crate) mod entropy;

pub(crate) mod loopback;

pub(crate) mod memory;

pub(crate) mod signals;

pub(crate) mod spawn;

pub(crate) mod wait;
