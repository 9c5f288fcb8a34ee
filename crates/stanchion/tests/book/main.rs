//! The book is right: its links lead somewhere, its statements and programs run.
#![cfg(feature = "embedded")]

mod fencing;
mod links;
mod pages;
mod s3;
mod sql;
mod testing;
