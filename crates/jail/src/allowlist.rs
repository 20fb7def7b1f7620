//! The system calls that a jailed kernel may make, as a table.
