//! How far back the donor's write sets reach, asked from its server now and then: a node that needs
//! older ones than that needs a snapshot instead.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::server::sql::Sql;
use crate::session::context::Context;

const QUESTION: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_local_cached_downto', 'wsrep_last_committed')";

/// Asks and compares.
#[derive(Debug)]
pub(crate) struct Gcache {
    sql: Sql,
    /// A question that is not answered yet.
    asked: Option<Receiver<Option<(Reach, Instant)>>>,
    first: Option<(Reach, Instant)>,
    over: bool,
}

/// Which write sets a node has, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reach {
    from: u64,
    to: u64,
}

impl Gcache {
    pub(crate) fn new(context: &Context) -> Self {
        Self { sql: Sql::new(context), asked: None, first: None, over: false }
    }

    /// Asks, for the next [`Gcache::warning`] to use, unless a question is still open. A server may take the question and never answer it, and
    /// whoever tells of progress must not wait for that: it is asked in a thread of its own, whose end
    /// ends the client, too.
    pub(crate) fn ask(&mut self) {
        if self.over || self.asked.is_some() {
            return;
        }
        let (tell, asked) = channel();
        let sql = self.sql.clone();
        let asking = move || {
            let answer = sql.ask(QUESTION).and_then(|answer| parse(&answer));
            // Nobody wants to know any more when the transfer has ended.
            let _ = tell.send(answer.map(|reach| (reach, Instant::now())));
        };
        let thread = std::thread::Builder::new().name("gcache".into()).spawn(asking);
        self.asked = thread.is_ok().then_some(asked);
    }

    /// A warning, once, if an answer has come and `left` is longer than the write sets reach back.
    /// Without a client nothing is said.
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
            "this node's gcache reaches back {} s at the present rate of writes, and the transfer needs about {} s more: a node that is away or waits meanwhile will need a full transfer; a larger gcache.size helps",
            reach.as_secs(),
            left?.as_secs()
        ))
    }
}

/// How long ago the oldest write set that is still there was written. Nothing, as long as none was
/// dropped since the first look: then it holds more than is known.
fn reach(first: Reach, now: Reach, elapsed: Duration) -> Option<Duration> {
    let rate = now.to.checked_sub(first.to)? as f64 / elapsed.as_secs_f64();
    let has = now.to.checked_sub(now.from)? as f64;
    if now.from <= first.from || rate <= 0.0 {
        return None;
    }
    Duration::try_from_secs_f64(has / rate).ok()
}

fn parse(answer: &[u8]) -> Option<Reach> {
    let text = std::str::from_utf8(answer).ok()?;
    let value =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Reach { from: value("wsrep_local_cached_downto")?, to: value("wsrep_last_committed")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_answer_is_read() {
        let answer = b"wsrep_last_committed\t52\nwsrep_local_cached_downto\t2\n";
        assert_eq!(parse(answer), Some(Reach { from: 2, to: 52 }));
        assert_eq!(parse(b"wsrep_last_committed\t52\n"), None);
        // An empty cache says the largest number there is.
        let empty = b"wsrep_last_committed\t5\nwsrep_local_cached_downto\t18446744073709551615\n";
        assert_eq!(
            reach(parse(answer).unwrap(), parse(empty).unwrap(), Duration::from_secs(1)),
            None
        );
    }

    #[test]
    fn a_cache_that_drops_write_sets_reaches_back_as_far_as_it_holds() {
        let first = Reach { from: 1, to: 1000 };
        let ten = Duration::from_secs(10);
        assert_eq!(reach(first, Reach { from: 1, to: 2000 }, ten), None, "it still grows");
        assert_eq!(reach(first, Reach { from: 501, to: 2001 }, ten).map(|d| d.as_secs()), Some(14));
        assert_eq!(reach(first, Reach { from: 2, to: 1000 }, ten), None, "nobody writes");
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(answer in proptest::collection::vec(any::<u8>(), 0..100), a: u64, b: u64, c: u64, d: u64, ms in 0_u64..100_000) {
            let _ = parse(&answer);
            let _ = reach(Reach { from: a, to: b }, Reach { from: c, to: d }, Duration::from_millis(ms));
        }
    }
}
