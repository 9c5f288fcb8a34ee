//! The body of a response that comes through a layer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that comes through a layer: the body of the inner service, or one that the layer made.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: Source<B>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum Source<B> {
        Inner { #[pin] body: B },
        Layer { rest: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn inner(body: B) -> Self {
        let source = Source::Inner { body };
        Self { source }
    }

    pub(crate) fn of_layer(bytes: Bytes) -> Self {
        let rest = Some(bytes).filter(|bytes| !bytes.is_empty());
        let source = Source::Layer { rest };
        Self { source }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().source.project() {
            Projected::Inner { body } => body.poll_frame(cx),
            Projected::Layer { rest } => {
                Poll::Ready(rest.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } => body.is_end_stream(),
            Source::Layer { rest } => rest.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Layer { rest } => {
                SizeHint::with_exact(rest.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}
