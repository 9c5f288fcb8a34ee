//! The parts of a client that live in crates on top of the core: surveys with deadlock detection, and events.
//!
//! The core calls an extension at the few moments at which it takes part: when a call begins to wait, when the server reports a write, and when
//! the client ends. An acquire that does not wait calls only [`Extension::actor`].

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::actor::ActorId;
use crate::deadlock::DeadlockEdge;
use crate::description::Synchronizer;
use stanchion_transport::Moment;

/// A future that ends when a wait must be given up, with the waits of the deadlock.
pub type GiveUp = Pin<Box<dyn Future<Output = Vec<DeadlockEdge>> + Send>>;

/// A future without a result, or with a flag.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A call that begins to wait.
#[derive(Debug)]
#[non_exhaustive]
pub struct Queued<'a> {
    /// The synchronizer that it waits for.
    pub sync: &'a dyn Synchronizer,
    /// The name of its queue.
    pub name: &'a [u8],
    /// True if an exclusive hold of the name belongs to the actor of the call itself.
    pub holds_itself: bool,
}

/// A wait that gives up in a deadlock.
#[derive(Debug)]
#[non_exhaustive]
pub struct Patient<'a> {
    /// The synchronizer that it waits for.
    pub sync: &'a dyn Synchronizer,
    /// The actor that waits.
    pub actor: Option<ActorId>,
    /// The start of the call.
    pub began: Moment,
}

/// A part of a client. All methods must be quick and must not block: they run in the caller's task, or while a connection is read.
pub trait Extension: Any + fmt::Debug + Send + Sync {
    /// Returns the actor of the calling task, if a scope declares one.
    fn actor(&self) -> Option<ActorId> {
        None
    }

    /// A call begins to wait. Called at most once for each call, after it has joined its queue.
    fn queued(&self, _call: &Queued<'_>) {}

    /// Begins the search for a deadlock that contains `wait`, or returns why no search is possible. `None`: this extension does not search.
    fn give_up(&self, _wait: &Patient<'_>) -> Option<Result<GiveUp, &'static str>> {
        None
    }

    /// The server reports a write to `key`. An empty key: any key may have been written.
    fn written(&self, _key: &[u8]) {}

    /// Ends the extension's work with the client, by `until` at the latest. Returns whether nothing is left on the server (P8).
    fn end(&self, _until: Moment) -> Boxed<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// The extensions of a client.
#[derive(Debug, Default)]
pub(crate) struct Extensions(Box<[Arc<dyn Extension>]>);

impl Extensions {
    pub(crate) fn new(all: Vec<Arc<dyn Extension>>) -> Self {
        Self(all.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Extension>> {
        self.0.iter()
    }

    /// Returns the extension of the type `T`.
    pub(crate) fn of<T: Extension>(&self) -> Option<Arc<T>> {
        self.0.iter().find_map(|it| {
            let any: Arc<dyn Any + Send + Sync> = Arc::clone(it) as _;
            any.downcast().ok()
        })
    }
}
