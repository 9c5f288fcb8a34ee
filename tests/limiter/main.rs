//! Rate limiters: windows, waiting, giving back, healing, the bytes on the wire.
//!
//! In virtual time on the embedded engine where that can be, on a private redis-server where its scripts or its time count.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![expect(clippy::print_stdout, reason = "what was measured is shown")]

mod bucket;
mod giving_back;
mod keys;
mod neighbours;
mod order;
mod quota;
mod server;
mod support;
mod windows;
