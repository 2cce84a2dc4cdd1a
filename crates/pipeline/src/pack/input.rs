//! Input of packing, and the native stream to make of it.

use xb_compressor::Algorithm;
use xb_encryptor::Sealer;
use xb_frame::StreamHeader;
use xb_reader::Dialect;

use crate::auto_codec::FrameCompression;
use crate::scan::end_rule::EndRule;

/// Kind of input.
#[derive(Debug, Clone)]
pub enum Content {
    /// An xbstream: every chunk is checked, and the index lists every file.
    Xbstream(XbstreamInput),
    /// Any bytes, up to the end of the input. Whether the input is complete cannot be checked, and
    /// there are no files to index.
    Raw,
}

/// Settings for reading an xbstream.
#[derive(Debug, Clone)]
pub struct XbstreamInput {
    /// Rule by which the stream counts as complete.
    pub rule: EndRule,
    /// Meaning of the chunk type `S`.
    pub dialect: Dialect,
}

/// Properties of the native stream to create.
#[derive(Debug)]
pub struct NativeStream {
    /// Stream header. It must declare a seal exactly if there is a sealer.
    pub header: StreamHeader,
    /// Codec of the frames. A frame that does not shrink is stored uncompressed.
    pub compress: FrameCompression,
    /// Seals the body.
    pub sealer: Option<Sealer>,
}

impl NativeStream {
    /// Creates a stream that is neither compressed nor sealed.
    #[must_use]
    pub fn plain(header: StreamHeader) -> Self {
        Self { header, compress: Algorithm::None.into(), sealer: None }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.compress.is_none() && self.sealer.is_none()
    }
}
