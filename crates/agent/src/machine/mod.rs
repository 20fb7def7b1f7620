//! The guest as a whole: its identity, time, entropy, limits, how it is, and its end.

pub(crate) mod identity;

pub(crate) mod clock;

pub(crate) mod limits;

pub(crate) mod stats;

pub(crate) mod configuration;
