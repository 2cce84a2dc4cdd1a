//! A log that arrives from a server, or from files that a server has written.

use std::sync::Arc;

use xb_binlog::ChecksumKind;
use xb_mysql::{ConnectionCloser, Dump, DumpItem, Part, Waker};
use xb_repo::archive::stream::StoredPosition;

use crate::archive_error::ArchiveError;
use crate::binlog::source::log_files::LogSender;
use crate::cancel::CancelToken;

/// A log that arrives in packets of one event.
pub(crate) trait SentLog {
    /// Checksums of the events before the first format description.
    fn checksums(&self) -> ChecksumKind;

    /// Returns the error of a log that ends before the stored transaction was sent again.
    fn early_end(&self) -> ArchiveError;

    /// Returns whether the server has asked for an acknowledgement of what it has sent, since the last call.
    fn take_request(&mut self) -> bool {
        false
    }

    /// Returns whether the server asks for no acknowledgements, though they were offered.
    fn is_declined(&self) -> bool {
        false
    }

    /// Returns whether more has arrived.
    fn has_more(&self) -> bool {
        true
    }

    /// Waits until there is something to read; false if it was woken before.
    fn wait(&self) -> Result<bool, ArchiveError> {
        Ok(true)
    }

    /// Tells the server that everything up to a position is stored.
    fn acknowledge(&mut self, _at: &StoredPosition) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// Waits for the next bytes, and passes them on. Parts of a packet end with an event.
    fn next<R>(
        &mut self,
        pass: impl FnMut(DumpItem<'_>) -> Result<R, ArchiveError>,
    ) -> Result<R, ArchiveError>;

    /// The same of all bytes that were read at once, until `pass` returns something or an acknowledgement is asked for.
    fn next_together<R>(
        &mut self,
        mut pass: impl FnMut(DumpItem<'_>) -> Option<Result<R, ArchiveError>>,
    ) -> Result<Option<R>, ArchiveError> {
        self.next(|dumped| pass(dumped).transpose())
    }
}

/// A log that a server sends.
pub(crate) struct ConnectedLog {
    dump: Dump,
    waker: Arc<Waker>,
}

impl ConnectedLog {
    /// Returns the log, and what ends it.
    pub(crate) fn new(dump: Dump) -> Result<(Self, impl LogEnds), ArchiveError> {
        let waker = Arc::new(Waker::new()?);
        let ends = ConnectionEnds { waker: Arc::clone(&waker), closer: dump.hang_up()? };
        Ok((Self { dump, waker }, ends))
    }
}

pub(crate) fn checksums(dump: &Dump) -> ChecksumKind {
    match dump.has_checksums() {
        true => ChecksumKind::Crc32,
        false => ChecksumKind::None,
    }
}

impl SentLog for ConnectedLog {
    fn checksums(&self) -> ChecksumKind {
        checksums(&self.dump)
    }

    fn early_end(&self) -> ArchiveError {
        ArchiveError::Ended
    }

    fn take_request(&mut self) -> bool {
        self.dump.take_request()
    }

    fn is_declined(&self) -> bool {
        self.dump.is_declined()
    }

    fn has_more(&self) -> bool {
        self.dump.has_more()
    }

    fn wait(&self) -> Result<bool, ArchiveError> {
        Ok(self.dump.wait(&self.waker)?)
    }

    fn acknowledge(&mut self, at: &StoredPosition) -> Result<(), ArchiveError> {
        Ok(self.dump.acknowledge(&at.log, at.offset)?)
    }

    fn next<R>(
        &mut self,
        pass: impl FnMut(DumpItem<'_>) -> Result<R, ArchiveError>,
    ) -> Result<R, ArchiveError> {
        self.dump.next(pass).map_err(ArchiveError::from).flatten()
    }

    fn next_together<R>(
        &mut self,
        pass: impl FnMut(DumpItem<'_>) -> Option<Result<R, ArchiveError>>,
    ) -> Result<Option<R>, ArchiveError> {
        self.dump.next_together(pass)?.transpose()
    }
}

impl SentLog for LogSender {
    fn checksums(&self) -> ChecksumKind {
        Self::checksums(self)
    }

    fn early_end(&self) -> ArchiveError {
        match self.is_cancelled() {
            true => ArchiveError::Ended,
            false => ArchiveError::Differs(
                "they end, or are damaged, before the end of the last stored transaction"
                    .to_owned(),
            ),
        }
    }

    fn next<R>(
        &mut self,
        mut pass: impl FnMut(DumpItem<'_>) -> Result<R, ArchiveError>,
    ) -> Result<R, ArchiveError> {
        match Self::next(self)? {
            Some((bytes, is_last)) => pass(DumpItem::Event(Part::new(bytes, is_last))),
            None => pass(DumpItem::End),
        }
    }
}

/// Ways in which another thread ends a log that arrives.
pub(crate) trait LogEnds: Send + Sync {
    /// Has the thread look whether anything more is to be received, if it waits for something.
    fn wake(&self);

    /// Fails what the thread reads.
    fn close(&self);
}

/// Those of a connection.
struct ConnectionEnds {
    waker: Arc<Waker>,
    closer: ConnectionCloser,
}

impl LogEnds for ConnectionEnds {
    fn wake(&self) {
        self.waker.wake();
    }

    fn close(&self) {
        self.closer.now();
    }
}

/// Files wait for nothing.
impl LogEnds for CancelToken<()> {
    fn wake(&self) {
        self.cancel(());
    }

    fn close(&self) {
        self.cancel(());
    }
}
