//! A list, which counts the bytes of its elements.

use std::collections::VecDeque;
use std::ops::Deref;

/// The memory of an element in addition to its bytes.
const ELEMENT: usize = 40;

/// A list.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    elements: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl List {
    pub(crate) fn push_front(&mut self, element: Vec<u8>) {
        self.bytes += element.len();
        self.elements.push_front(element);
    }

    pub(crate) fn push_back(&mut self, element: Vec<u8>) {
        self.bytes += element.len();
        self.elements.push_back(element);
    }

    pub(crate) fn insert(&mut self, at: usize, element: Vec<u8>) {
        self.bytes += element.len();
        self.elements.insert(at, element);
    }

    pub(crate) fn pop_front(&mut self) -> Option<Vec<u8>> {
        let element = self.elements.pop_front();
        self.without(element)
    }

    pub(crate) fn pop_back(&mut self) -> Option<Vec<u8>> {
        let element = self.elements.pop_back();
        self.without(element)
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<Vec<u8>> {
        let element = self.elements.remove(at);
        self.without(element)
    }

    fn without(&mut self, element: Option<Vec<u8>>) -> Option<Vec<u8>> {
        self.bytes -= element.as_ref().map_or(0, Vec::len);
        element
    }

    /// Returns the memory of its elements, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.elements.len() * ELEMENT
    }
}

impl Deref for List {
    type Target = VecDeque<Vec<u8>>;

    fn deref(&self) -> &VecDeque<Vec<u8>> {
        &self.elements
    }
}
