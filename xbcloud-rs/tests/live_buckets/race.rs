//! Classic runs of one name in a bucket: several that start at once, and one that is suspended at
//! any of its requests while another takes over.
//!
//! Nothing here depends on time. A proxy holds one request of a run, which places the run exactly;
//! SIGSTOP suspends it there; the request then reaches the store late. `XB_RACE=all` tries every
//! pair of places instead of a few of each (ten minutes).

use crate::support::*;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::s3::{ACCESS_KEY, REGION, SECRET_KEY, options_for};
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

/// More requests than a run of these tests makes.
const MANY: u64 = 60;
/// A run that has lost its name reads the claim again and again before it believes that; milliseconds between two.
const SOON: &str = "--max-backoff=50";

/// A stream with the same files and sizes for every `byte`.
fn stream_of(byte: u8) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    // In the order in which a classic backup is read.
    stream.file("shop/items.ibd", &[byte; 900], 700).file("shop/orders.ibd", &[byte; 900], 700);
    stream.info();
    stream.finish()
}

/// One run of a classic `put`, with its own way to the store.
struct Put {
    proxy: Proxy,
    run: Running,
    stream: Vec<u8>,
}

impl Put {
    /// Starts a run whose request number `hold` is held.
    fn start(store: &Store, name: &str, byte: u8, hold: u64, how: &How) -> Self {
        let Store::Bucket(bucket) = store else { panic!("a bucket") };
        let mut rules = vec![Rule::new("", "", Action::Hold).skip(hold).times(1)];
        rules.extend(how.ahead.map(|seconds| Rule::new("", "", Action::Ahead(seconds))));
        let proxy = Proxy::start(bucket.address(), rules);
        let stream = stream_of(byte);
        let program = env!("CARGO_BIN_EXE_xbcloud-rs");
        let url = store.url(name);
        let path = url.strip_prefix(&format!("s3://{}/", bucket.name())).unwrap();
        let own = |run: Cmd| {
            run.args(["put", "--quiet", "--layout=classic", "--parallel=2", SOON])
                .args(options_for(&proxy.endpoint()))
                .arg(&url)
        };
        let stock = |run: Cmd| {
            run.args(["put", "--storage=s3", "--parallel=2", SOON, "--s3-region", REGION])
                .arg(format!("--s3-endpoint={}", proxy.endpoint()))
                .arg(format!("--s3-bucket={}", bucket.name()))
                .arg(format!("--s3-access-key={ACCESS_KEY}"))
                .arg(format!("--s3-secret-key={SECRET_KEY}"))
                .arg(path)
        };
        let run = match how.by {
            By::OwnName => own(Cmd::new(program)),
            By::StockName => stock(Cmd::new("bash").args(["-c", AS_STOCK, "bash", program])),
            // Whether a process of another host is alive cannot be known.
            By::StockNameElsewhere => stock(
                Cmd::new("unshare")
                    .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"])
                    .args(["bash", "-c", AS_STOCK, "bash", program]),
            ),
        };
        let run = run.args(how.options).stdin_bytes(stream.clone()).spawn();
        Self { proxy, run, stream }
    }

    /// Waits until the request is held; false if the run ended before.
    fn is_held(&mut self) -> bool {
        self.run.comes_to(|| self.proxy.held() > 0)
    }

    fn end(self) -> Outcome {
        self.proxy.release();
        Outcome { ran: self.run.wait(), stream: self.stream }
    }
}

/// Runs a program under the stock name, in place of the shell.
const AS_STOCK: &str = r#"program=$1; shift; exec -a xbcloud "$program" "$@""#;

/// The name under which a program is called, and where.
#[derive(Clone, Copy)]
enum By {
    OwnName,
    StockName,
    StockNameElsewhere,
}

/// Way in which a run gets the name.
struct How {
    by: By,
    options: &'static [&'static str],
    /// Seconds by which the store's clock seems ahead.
    ahead: Option<u64>,
}

const PLAIN: How = How { by: By::OwnName, options: &[], ahead: None };
/// In the store's own time, more than an hour after the other run's last sign of life.
const LATER: How = How { by: By::OwnName, options: &[], ahead: Some(7200) };
const BY_WORD: How = How { by: By::OwnName, options: &["--take-over"], ahead: None };
const STOCK: How = How { by: By::StockName, options: &[], ahead: None };
const STOCK_ELSEWHERE: How = How { by: By::StockNameElsewhere, options: &[], ahead: None };
const STOCK_WITHOUT_CONDITIONS: How =
    How { by: By::StockNameElsewhere, options: &["--s3-provider=plain"], ahead: None };
const WITHOUT_CONDITIONS: How =
    How { by: By::OwnName, options: &["--s3-provider=plain"], ahead: None };

struct Outcome {
    ran: Ran,
    stream: Vec<u8>,
}

/// Checks that at most one run succeeded, and that a complete backup has the bytes of one run: of
/// the one that succeeded, if there is one. Returns whether one did.
fn check(store: &Store, name: &str, place: &str, outcomes: &[Outcome]) -> bool {
    let told = || outcomes.iter().map(|o| format!("{:?}", o.ran)).collect::<Vec<_>>().join("\n");
    let winners: Vec<_> = outcomes.iter().filter(|outcome| outcome.ran.code() == 0).collect();
    assert!(winners.len() <= 1, "{place}: two runs succeeded:\n{}", told());
    let got = xbcloud(store, "get", name, &[]).run();
    match winners[..] {
        [winner] => {
            assert_eq!(got.code(), 0, "{place}: {got:?}\n{}", told());
            assert!(got.stdout == winner.stream, "{place}: other bytes:\n{}", told());
        }
        _ if got.code() == 0 => {
            let whole = outcomes.iter().any(|outcome| got.stdout == outcome.stream);
            assert!(whole, "{place}: mixed bytes:\n{}", told());
        }
        _ => {}
    }
    winners.len() == 1
}

/// Several runs that all have sent the same number of requests, and continue at once.
fn starters(how: &How, rounds: u64) -> u64 {
    let (store, mut won) = (Store::bucket(), 0);
    for round in 0..rounds {
        let (name, runs) = (format!("n{round}"), 2 + u8::from(round % 2 == 1));
        let hold = round / 2;
        let mut puts: Vec<_> =
            (0..runs).map(|n| Put::start(&store, &name, b'a' + n, hold, how)).collect();
        for put in &mut puts {
            let _ = put.is_held();
        }
        puts.iter().for_each(|put| put.proxy.release());
        let outcomes: Vec<_> = puts.into_iter().map(Put::end).collect();
        let place = format!("{runs} runs at request {hold}");
        won += u64::from(check(&store, &name, &place, &outcomes));
    }
    won
}

#[test]
fn of_several_runs_that_start_at_once_in_a_bucket_one_wins() {
    assert_eq!(starters(&PLAIN, 40), 40);
}

#[test]
fn without_conditional_writes_at_most_one_wins() {
    // Two that claim the name in the same moment both give up.
    assert!(starters(&WITHOUT_CONDITIONS, 40) > 0);
}

/// Suspends a run at its request `first`; another takes over and is held at its request `second`.
/// Then the late request reaches the store, the first run wakes up, and both run to their ends.
/// With `late`, the first run wakes up only after the second has ended. Returns whether both places
/// exist.
fn suspended(store: &Store, how: &How, first: u64, second: u64, late: bool) -> (bool, bool) {
    let name = format!("n{first}-{second}-{late}");
    let by_stock_name = matches!(how.by, By::StockNameElsewhere);
    let first_how = if by_stock_name { &STOCK } else { &PLAIN };
    let mut sleeping = Put::start(store, &name, b'a', first, first_how);
    if !sleeping.is_held() {
        return (false, false);
    }
    sleeping.run.signal(Signal::STOP);
    let mut taking = Put::start(store, &name, b'b', second, how);
    let held = taking.is_held();
    sleeping.proxy.release();
    let outcomes = if late {
        let taken = taking.end();
        sleeping.run.signal(Signal::CONT);
        [sleeping.end(), taken]
    } else {
        sleeping.run.signal(Signal::CONT);
        [sleeping.end(), taking.end()]
    };
    let place = format!("suspended at {first}, taken over at {second}, late: {late}");
    check(store, &name, &place, &outcomes);
    (true, held)
}

fn suspended_anywhere(how: &How) {
    let store = Store::bucket();
    let all = std::env::var_os("XB_RACE").is_some();
    for first in 0..MANY {
        let places: Vec<u64> = match all {
            true => (0..MANY).collect(),
            // A few places of the other run each time, others each time, and its end.
            false => vec![first * 5 % 23, 7 + first * 11 % 16, MANY],
        };
        for second in places {
            let odd = (first + second) % 2 == 1;
            // Early and late, or one of them, and the other at the next place.
            for late in [false, true].into_iter().filter(|&late| all || late == odd) {
                let (reached, held) = suspended(&store, how, first, second, late);
                if !reached {
                    assert!(first > 10, "a run of {first} requests");
                    return;
                }
                if all && !held {
                    break;
                }
            }
        }
    }
    panic!("the run makes more than {MANY} requests");
}

#[test]
fn a_run_suspended_at_any_request_never_mixes_with_one_that_finds_it_dead() {
    suspended_anywhere(&LATER);
}

#[test]
fn a_run_suspended_at_any_request_never_mixes_with_one_that_takes_over_by_word() {
    suspended_anywhere(&BY_WORD);
}

/// The operators' pods: under the stock name a run takes over from one of another host at once,
/// alive or not.
#[test]
fn runs_of_the_stock_name_suspended_at_any_request_never_mix() {
    suspended_anywhere(&STOCK_ELSEWHERE);
}

#[test]
fn runs_of_the_stock_name_that_start_at_once_never_mix() {
    for how in [&STOCK_ELSEWHERE, &STOCK_WITHOUT_CONDITIONS] {
        starters(how, 40);
    }
}
