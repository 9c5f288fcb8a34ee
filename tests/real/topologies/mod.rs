//! Sentinel and Cluster: failovers, moved slots, rights and TLS on real sets of servers.
//!
//! Assertion messages name the promise (P1 to P11) that must hold. The tests wait for events, not for fixed times. A test without a server
//! is skipped and prints a message.

mod cluster;
mod databases;
mod deadlocks;
mod family;
mod figures;
mod idle;
mod lost_writes;
mod moving;
mod rights;
mod sentinel;
mod support;
mod tls;
