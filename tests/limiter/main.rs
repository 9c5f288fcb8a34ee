//! Rate limiters: windows, waiting, giving back, healing, the bytes on the wire.
//!
//! In virtual time on the embedded engine where that can be, on a private redis-server where its scripts or its time count.
//!
//! | case | shown by |
//! |---|---|
//! | no window exceeds the quota, and nearly all of it is used | `windows`, `server::clients_clocks…`, `neighbours` |
//! | the same beside Redisson; its refusals, its `release`, `setRate`, `availablePermits`; bytes | `interop/limiter.rs`, `neighbours`, `server::an_entry…` |
//! | names | `keys::names_of_any_bytes…`, `server::a_cluster…` |
//! | the edge of an interval | `windows::the_edge…`, `windows::a_permit_counts…` |
//! | the server's clock steps back | `windows::a_servers_clock…`, `bucket::a_servers_clock…` |
//! | a lost reply, a resend | `giving_back::a_lost_reply…`, `giving_back::a_refund_counts_once`, `quota::a_set_quota_that_is_resent…` |
//! | dropped at every await | `giving_back`, `bucket::a_booked_acquire…` |
//! | a process dies with bookings | `order::the_bookings_of_a_process…` |
//! | a timeout that is too short | `order::a_timeout…`, `order::behind_a_crowd…` |
//! | all permits against a stream of single ones | `order::a_request_for_all…` |
//! | missing keys, drift | `keys::what_is_missing…`, `keys::a_counter…` |
//! | many ended entries, a long interval | `server::ten_thousand…`, `server::a_long_interval…` |
//! | times to live, foreign keys, a full server, rights | `keys`, `faults/rights.rs` |
//! | another quota, a forgotten booking, scopes | `quota` |
//! | a late process | `server::a_late_process…` |
//! | commands a grant | `order::a_grant_is_one_command…`, `bucket::who_waits…` |
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![expect(clippy::print_stdout, reason = "what was measured is shown")]

mod bucket;
mod giving_back;
mod keys;
mod layer;
mod neighbours;
mod order;
mod quota;
mod server;
mod support;
mod windows;
