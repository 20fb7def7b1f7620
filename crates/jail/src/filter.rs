//! The allowlist compiled to a seccomp filter.
