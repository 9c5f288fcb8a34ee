//! Real servers and processes.
