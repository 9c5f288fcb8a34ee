//! The fair.
