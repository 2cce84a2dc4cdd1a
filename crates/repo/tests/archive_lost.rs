//! Archives whose keys, or some of whose segments, are lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod archive_model;

use archive_model::*;
use xb_repo::archive::followed::unfollowed;
use xb_repo::archive::plan::{Histories, Stream};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::{Link, StreamOrigin};

/// Of keys that are lost: a known stream shows that all before it is history.
#[test]
fn a_locked_stream_that_is_followed_hides_no_end() {
    let changes = changes(40);
    let mut streams = vec![simple(&changes[..8], StreamOrigin::First, 0, (1, 4))];
    for number in 1..4_u8 {
        let last = streams.last().unwrap();
        let begin = last.segments.values().next_back().unwrap().to.offset;
        let begins = StreamOrigin::Continues { after: link_to_end(last), at: None };
        let count = 8 * (usize::from(number) + 1);
        streams.push(simple(&changes[..count], begins, number, (1, begin)));
    }
    let hidden = |known: &[Stream], locked: &[&Stream]| {
        let hidden = unfollowed(known, locked).into_iter();
        hidden.map(|stream| stream.id().to_owned()).collect::<Vec<_>>()
    };
    let [one, two, three, four] = &streams[..] else { panic!("four streams") };
    assert_eq!(hidden(&streams[3..], &[one, two, three]), [""; 0]);
    // Also once nothing is left of them.
    let (first, second) = (removed(one), removed(two));
    assert_eq!(hidden(&streams[2..], &[&first, &second]), [""; 0]);
    // The last one may have anything.
    assert_eq!(hidden(&streams[..3], &[four]), [four.id()]);
    // So may one that another receiver has written beyond what is followed, or says so.
    let longer = simple(&changes[..20], StreamOrigin::First, 0, (1, 4));
    let stated = Stream { stated: one.stated + 1, ..one.clone() };
    for more in [longer, stated] {
        assert_eq!(hidden(&streams[1..], &[&more]), [more.id()]);
    }
    let gone = &streams[2..];
    assert_eq!(hidden(gone, &[one]), [one.id()], "what follows it is gone");
}

#[test]
fn what_was_received_again_is_history() {
    let changes = changes(20);
    let whole = simple(&changes, StreamOrigin::First, 0, (1, 4));
    let again = |after: u64, count: usize| {
        let last = &whole.segments[&after];
        let after =
            Link { stream: whole.id().to_owned(), number: after, head: last.digest.to_string() };
        simple(
            &changes[..count],
            StreamOrigin::Continues { after, at: None },
            1,
            (1, last.to.offset),
        )
    };
    let lacking = |numbers: &[u64]| {
        let mut lacking = whole.clone();
        lacking.segments.retain(|number, _| !numbers.contains(number));
        lacking
    };
    let last = *whole.segments.keys().next_back().unwrap();
    let is_history = |lacking: &Stream, again: Stream| {
        let streams = [lacking.clone(), again];
        let found = Histories::new(&streams).received_again(&streams[0]).is_some();
        let (base, _) = base_at(&changes, 0);
        assert!(!found || plan(&streams, &base, &RestoreStop::Latest).is_ok());
        found
    };
    assert!(is_history(&lacking(&[3, 4]), again(2, 20)));
    assert!(is_history(&lacking(&[last - 1, last]), again(last - 2, 20)));
    assert!(!is_history(&whole, again(2, 20)), "nothing is missing");
    // It continues behind the hole, or does not reach the end yet, or lacks something itself.
    assert!(!is_history(&lacking(&[3, 4]), again(5, 20)));
    assert!(!is_history(&lacking(&[3, 4]), again(2, 18)));
    let mut short = again(2, 20);
    short.segments.remove(&1);
    assert!(!is_history(&lacking(&[3, 4]), short));
}
