//! Tests of rate limiters and token buckets: quotas, waiting, refunds, repair of damaged keys, and the bytes on the wire.
//!
//! Tests use virtual time on the embedded engine, or a private redis-server where its scripts or real time matter.
//!
//! | case | tests |
//! |---|---|
//! | no window exceeds the quota, and nearly all of it is used | `windows`, `servers::clients_never_exceed…`, `servers::neighbours` |
//! | the same with Redisson on the same limiter; its refusals, its `release`, `setRate`, `availablePermits`; bytes | `interop`, `servers::neighbours`, `servers::an_entry…` |
//! | names | `keys::names_of_any_bytes…`, `servers::a_cluster…` |
//! | the edge of an interval | `windows::the_edge…`, `windows::a_permit_counts…` |
//! | the server's clock steps back | `windows::a_server_clock_step…`, `bucket::a_server_clock_step…` |
//! | a lost reply, a resend | `giving_back::a_lost_reply…`, `giving_back::a_refund_counts_once`, `quota::a_resent_set_quota…` |
//! | calls dropped at every await point | `giving_back`, `bucket::a_booked_acquire…` |
//! | a process dies with bookings | `order::bookings_of_a_killed_process…` |
//! | a timeout that is too short | `order::a_too_short_timeout…`, `order::a_timeout_behind…` |
//! | a request for all permits among requests for one | `order::a_request_for_all…` |
//! | missing keys, a wrong counter | `keys::missing_keys…`, `keys::a_wrong_counter…` |
//! | many expired entries, a long interval | `servers::ten_thousand…`, `servers::a_long_interval…` |
//! | TTLs, foreign keys, a server without memory, rights | `keys`, `client/faults/rights.rs` |
//! | a changed quota, a lost booking, scopes | `quota` |
//! | a late process | `servers::a_late_process…` |
//! | commands per grant | `order::a_booked_grant…`, `bucket::waiters_get…` |

mod bucket;
mod giving_back;
mod keys;
mod layer;
mod order;
mod quota;
mod windows;
