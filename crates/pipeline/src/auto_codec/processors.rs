//! Load of this machine's processors, and the share of this process.

use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// File in which Linux counts the time of its processors. Other systems have no such file.
const COUNTS: &str = "/proc/stat";
/// Bytes that hold the first line, of all processors together: a name and ten numbers.
const FIRST_LINE: usize = 256;
/// Limit on the length of the whole file: room for thousands of processors.
const MAX_LEN: u64 = 4 << 20;

/// Times of all processors together since the machine started, in ticks of unknown length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) all: u64,
    /// Part of `all` in which a processor had nothing to run.
    pub(crate) idle: u64,
    /// Time for which this process has run on any processor.
    pub(crate) own: Duration,
    /// Part of `own` for which the thread that reads the source has run, if known.
    pub(crate) reader: Option<Duration>,
}

/// File in which Linux counts the time of the thread that opens it: the first number is the time for which it has
/// run, in nanoseconds.
const OF_THREAD: &str = "/proc/thread-self/schedstat";
/// Bytes that hold its three numbers.
const THREE_NUMBERS: usize = 64;

/// The ticks of a machine of which this process may use all processors.
#[derive(Debug)]
pub(super) struct Processors {
    counts: File,
    count: usize,
    /// The counts of the thread that reads the source.
    reader: Option<File>,
}

impl Processors {
    /// Opens the kernel's counts. Returns `None` if there are none, or if the process may use only
    /// some of the processors: the counts do not show whether those are idle.
    pub(super) fn open() -> Option<Self> {
        let counts = File::open(COUNTS).ok()?;
        let mut text = String::new();
        (&counts).take(MAX_LEN).read_to_string(&mut text).ok()?;
        let count = count(&text);
        let usable = available_parallelism().map_or(0, NonZero::get);
        (count > 0 && usable >= count).then_some(Self { counts, count, reader: None })
    }

    /// Remembers the calling thread as the reader of the source.
    pub(super) fn reader_is_here(&mut self) {
        self.reader = File::open(OF_THREAD).ok();
    }

    /// Number of processors, at least 1.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the current ticks. Takes some 20 µs, and more on machines with many processors.
    pub(super) fn ticks(&self) -> Option<Ticks> {
        let mut line = [0; FIRST_LINE];
        let len = self.counts.read_at(&mut line, 0).ok()?;
        let own = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()?;
        let reader = self.reader.as_ref().and_then(ran);
        Some(Ticks { own, reader, ..parse(line.get(..len)?)? })
    }
}

/// Time for which a thread has run; `None` if the kernel does not count it.
fn ran(counts: &File) -> Option<Duration> {
    let mut text = [0; THREE_NUMBERS];
    let len = counts.read_at(&mut text, 0).ok()?;
    let first = std::str::from_utf8(text.get(..len)?).ok()?.split_ascii_whitespace().next()?;
    first.parse().ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
}

/// Counts the lines of single processors, such as `cpu0`.
fn count(text: &str) -> usize {
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    text.lines().filter(is_one).count()
}

/// Reads the first line: `cpu`, then the ticks in user, nice, system, idle, iowait, irq, softirq and
/// steal. What follows, the time of guests, is part of user and nice.
fn parse(text: &[u8]) -> Option<Ticks> {
    let line = text.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    if words.next() != Some("cpu") {
        return None;
    }
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
    let all = ticks.iter().try_fold(0_u64, |sum, ticks| sum.checked_add(*ticks))?;
    Some(Ticks { all, idle: idle.checked_add(waiting)?, ..Ticks::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 5 10 15 200 25 3 3 4 0 0\n\
        cpu1 5 10 15 200 25 3 4 4 0 0\nintr 2064758 0 0\nctxt 5\n";

    #[test]
    fn ticks_are_the_first_eight_numbers() {
        let ticks = Ticks { all: 531, idle: 450, ..Ticks::default() };
        assert_eq!(parse(TEXT.as_bytes()), Some(ticks));
        assert_eq!(count(TEXT), 2);
        // Old kernels counted less.
        assert_eq!(parse(b"cpu 1 2 3 4 5\n"), Some(Ticks { all: 15, idle: 9, ..Ticks::default() }));
    }

    #[test]
    fn unknown_text_has_no_ticks() {
        let huge = format!("cpu  {0} {0} 1 2 3\n", u64::MAX);
        for text in
            ["", "cpu", "cpu \n", "cpu 1 2 3 4", "cpu0 1 2 3 4 5", "cpu 1 2 x 4 5", "\u{e9}"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(huge.as_bytes()), None);
        assert_eq!(parse(&[0xff; 40]), None);
        assert_eq!(count("cpu 1 2\ncpus 3\n"), 0);
    }

    #[test]
    fn this_machine_has_ticks_if_it_has_counts() {
        if let Some(processors) = Processors::open() {
            let ticks = processors.ticks().unwrap();
            assert!(processors.count() > 0 && ticks.idle <= ticks.all);
        }
    }

    #[test]
    fn the_time_of_the_reader_is_counted_apart() {
        let Some(mut processors) = Processors::open().filter(|_| File::open(OF_THREAD).is_ok())
        else {
            return;
        };
        assert_eq!(processors.ticks().unwrap().reader, None);
        processors.reader_is_here();
        let before = std::iter::repeat_with(|| processors.ticks().unwrap())
            .take(1_000_000)
            .find(|ticks| ticks.reader.is_some())
            .unwrap();
        let work = Duration::from_millis(50);
        let after = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let all = std::iter::repeat_with(|| processors.ticks().unwrap());
                all.take(1_000_000).find(|ticks| ticks.own >= before.own + work).unwrap()
            });
            other.join().unwrap()
        });
        let grown = after.reader.unwrap() - before.reader.unwrap();
        assert!(grown < work / 2, "this thread was waiting, but has run for {grown:?}");
    }
}
