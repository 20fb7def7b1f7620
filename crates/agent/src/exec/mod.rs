//! Running commands.

pub(crate) mod account;

pub(crate) mod command;

pub(crate) mod group;

pub(crate) mod tree;

pub(crate) mod lifecycle;

pub(crate) mod output;

pub(crate) mod input;

pub(crate) mod execution;
