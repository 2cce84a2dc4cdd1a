//! Range of the donor's gcache, queried from its server from time to time: a node that needs older
//! write sets needs a snapshot instead.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::server::sql::Sql;

const QUESTION: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_local_cached_downto', 'wsrep_last_committed')";

/// Asks for the gcache's range and compares it with the time that the transfer needs.
#[derive(Debug)]
pub(crate) struct Gcache {
    sql: Sql,
    /// A query that is not answered yet.
    asked: Option<Receiver<Option<(WriteSetRange, Instant)>>>,
    first: Option<(WriteSetRange, Instant)>,
    over: bool,
}

/// Sequence numbers of the write sets that a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WriteSetRange {
    from: u64,
    to: u64,
}

impl Gcache {
    pub(crate) fn new(context: &Context) -> Self {
        Self { sql: Sql::new(context), asked: None, first: None, over: false }
    }

    /// Starts a query for the next [`Gcache::warning`] to use, unless one is still open. The query
    /// runs in a thread of its own, whose end also ends the connection: a server may accept a query and
    /// never answer it, and the progress report must not wait for that.
    pub(crate) fn ask(&mut self) {
        if self.over || self.asked.is_some() {
            return;
        }
        let (tell, asked) = channel();
        let sql = self.sql.clone();
        let asking = move || {
            let answer = sql.ask(QUESTION).and_then(|rows| parse(&rows));
            // The receiver is gone once the transfer has ended.
            let _ = tell.send(answer.map(|reach| (reach, Instant::now())));
        };
        let thread = std::thread::Builder::new().name("gcache".into()).spawn(asking);
        self.asked = thread.is_ok().then_some(asked);
    }

    /// Returns a warning, once, if an answer has arrived and `left` is longer than the write sets
    /// reach back. Without an answer there is no warning.
    pub(crate) fn warning(&mut self, left: Option<Duration>) -> Option<String> {
        let answer = match self.asked.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            answer => answer.ok().flatten(),
        };
        self.asked = None;
        self.over = answer.is_none();
        let (now, at) = answer?;
        let (first, begin) = *self.first.get_or_insert((now, at));
        let reach = reach(first, now, at.duration_since(begin))?;
        if left? <= reach {
            return None;
        }
        self.over = true;
        Some(format!(
            "this node's gcache covers {} s at the present write rate, but the transfer needs about {} s more: nodes that are down or waiting meanwhile will need a full transfer; raise gcache.size",
            reach.as_secs(),
            left?.as_secs()
        ))
    }
}

/// Returns the age of the oldest write set still in the gcache. `None` while none has been dropped
/// since the first query: until then the gcache reaches further back than known.
fn reach(first: WriteSetRange, now: WriteSetRange, elapsed: Duration) -> Option<Duration> {
    let rate = now.to.checked_sub(first.to)? as f64 / elapsed.as_secs_f64();
    let has = now.to.checked_sub(now.from)? as f64;
    if now.from <= first.from || rate <= 0.0 {
        return None;
    }
    Duration::try_from_secs_f64(has / rate).ok()
}

fn parse(rows: &[[String; 2]]) -> Option<WriteSetRange> {
    let value = |wanted: &str| {
        rows.iter().find_map(|[name, value]| (name == wanted).then(|| value.parse().ok())?)
    };
    Some(WriteSetRange {
        from: value("wsrep_local_cached_downto")?,
        to: value("wsrep_last_committed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(pairs: &[(&str, &str)]) -> Vec<[String; 2]> {
        pairs.iter().map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect()
    }

    #[test]
    fn the_answer_is_read() {
        let last = ("wsrep_last_committed", "52");
        let answer = rows(&[last, ("wsrep_local_cached_downto", "2")]);
        assert_eq!(parse(&answer), Some(WriteSetRange { from: 2, to: 52 }));
        assert_eq!(parse(&rows(&[last])), None);
        // An empty cache reports the largest possible number.
        let empty = rows(&[last, ("wsrep_local_cached_downto", "18446744073709551615")]);
        assert_eq!(
            reach(parse(&answer).unwrap(), parse(&empty).unwrap(), Duration::from_secs(1)),
            None
        );
    }

    #[test]
    fn a_cache_that_drops_write_sets_reaches_back_as_far_as_it_holds() {
        let first = WriteSetRange { from: 1, to: 1000 };
        let ten = Duration::from_secs(10);
        assert_eq!(reach(first, WriteSetRange { from: 1, to: 2000 }, ten), None, "it still grows");
        assert_eq!(
            reach(first, WriteSetRange { from: 501, to: 2001 }, ten).map(|d| d.as_secs()),
            Some(14)
        );
        assert_eq!(reach(first, WriteSetRange { from: 2, to: 1000 }, ten), None, "nobody writes");
    }

    proptest! {
        #[test]
        fn any_reach_is_judged(a: u64, b: u64, c: u64, d: u64, ms in 0_u64..100_000) {
            let _ = reach(WriteSetRange { from: a, to: b }, WriteSetRange { from: c, to: d }, Duration::from_millis(ms));
        }
    }
}
