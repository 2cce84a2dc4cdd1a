//! Stops by time in an archive whose clocks went back.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod archive_model;

use std::sync::Arc;

use archive_model::*;
use jiff::Timestamp;
use xb_binlog::AnyGtid;
use xb_repo::archive::plan::{Histories, PlanError, Stream};
use xb_repo::archive::segment::{AHEAD, Commits};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::StreamOrigin;

/// Times of a transaction by the clock of its server, and by that of the receiver of its segment.
type Times = (i64, i64);

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One segment for each transaction.
fn log(times: &[Times]) -> (Vec<Change>, Stream) {
    let mut changes = changes(times.len() as u64);
    for (change, (second, _)) in changes.iter_mut().zip(times) {
        change.seconds = *second as u32;
    }
    let first = ((1, 4), StreamOrigin::First);
    let mut made = stream(&changes, 0, first, &[&[321][..], &[25; 100]].concat(), None);
    set_times(&mut made, times);
    (changes, made)
}

fn set_times(stream: &mut Stream, times: &[Times]) {
    for (segment, (second, received)) in stream.segments.values_mut().zip(times) {
        let segment = Arc::make_mut(segment);
        segment.received = [time(*received); 2];
        let second_of = *second as u32;
        segment.commits = (*second <= received + AHEAD).then_some(Commits {
            first: second_of,
            last: second_of,
            greatest: second_of,
        });
    }
}

/// Both clocks are the same.
fn both(seconds: &[i64]) -> Vec<Times> {
    seconds.iter().map(|second| (*second, *second)).collect()
}

/// Transactions that are replayed up to a time.
fn replayed_until(
    streams: &[Stream],
    changes: &[Change],
    backup: usize,
    second: i64,
) -> Result<Vec<AnyGtid>, PlanError> {
    let (base, _) = base_at(changes, backup);
    let plan = plan(streams, &base, &RestoreStop::Time(time(second)))?;
    Ok(replayed(&plan, changes, &base))
}

/// Whether no time up to this one is two places.
#[track_caller]
fn assert_one_place(streams: &[Stream], changes: &[Change], until: i64) {
    for second in 0..until {
        let found = replayed_until(streams, changes, 0, second);
        let is_two = matches!(found, Err(PlanError::TwoPlaces { .. }));
        assert!(!is_two, "{second}: {found:?}");
    }
    assert_eq!(Histories::new(streams).clock_steps(), []);
}

/// Two hours ahead for a while, as of a host whose hardware clock has the local time.
#[test]
fn a_time_that_came_twice_because_the_clock_went_back_is_refused() {
    let seconds = [100, 105, 7300, 7330, 130, 160, 170, 190, 7200, 7400, 7500];
    let (changes, whole) = log(&both(&seconds));
    // One receiver, or two.
    let (first, second) = (changes[..4].to_vec(), changes.clone());
    let mut ahead =
        stream(&first, 0, ((1, 4), StreamOrigin::First), &[&[321][..], &[25; 100]].concat(), None);
    set_times(&mut ahead, &both(&seconds));
    let begins = StreamOrigin::Continues { after: link_to_end(&ahead), at: None };
    let mut right = stream(&second, 1, ((1, 400), begins), &[25; 100], None);
    set_times(&mut right, &both(&seconds[4..]));
    for streams in [&[whole][..], &[ahead, right]] {
        for second in 0..7500 {
            let found = replayed_until(streams, &changes, 0, second);
            let is_two = (130..7330).contains(&second);
            match &found {
                Err(PlanError::TwoPlaces { before, after, until, .. }) if is_two => {
                    let (ahead, right) =
                        (format!("0-1-4 of {}", time(7330)), format!("0-1-5 of {}", time(130)));
                    assert_eq!((before, after), (&ahead, &right));
                    let last = seconds[4..].iter().rposition(|each| *each <= second).unwrap();
                    assert_eq!(*until, format!("0-1-{}", 5 + last));
                }
                Ok(taken) if !is_two => {
                    let expected = match second {
                        0..7330 => seconds.iter().position(|each| *each > second).unwrap(),
                        _ => seconds.iter().rposition(|each| *each <= second).unwrap() + 1,
                    };
                    assert_eq!(taken.len(), expected, "{second}");
                }
                _ => panic!("{second}: {found:?}"),
            }
        }
        // A backup from behind the step has all that it lacks in order.
        let found = replayed_until(streams, &changes, 8, 195);
        assert_eq!(found, Ok(vec![]));
        let [step] = &Histories::new(streams).clock_steps()[..] else { panic!("one step") };
        assert_eq!((step.from, step.to), (time(130), time(7330)));
    }
}

#[test]
fn a_small_step_back_is_none() {
    let seconds = [100, 120, 115, 117, 130, 126, 140, 135, 136, 150];
    let (changes, stream) = log(&both(&seconds));
    assert_one_place(&[stream], &changes, 150);
}

#[test]
fn a_receiver_whose_own_clock_went_back_or_was_behind_refuses_no_time() {
    let own = |of: fn(i64) -> i64| {
        let times: Vec<Times> = (10..40).map(|n| (n * 10, of(n * 10))).collect();
        let (changes, stream) = log(&times);
        assert_one_place(&[stream], &changes, 100);
        times
    };
    // The times of the server count, which are in order.
    let _ = own(|second| if second < 200 { second + 3600 } else { second });
    // All times of its transactions are ahead of its clock.
    let _ = own(|second| if (200..300).contains(&second) { second - 150 } else { second });
}

/// Two receivers, three seconds away from the server each.
#[test]
fn clocks_of_two_receivers_that_differ_a_little_refuse_no_time() {
    let times: Vec<Times> = (50..80).map(|n| (n, if n < 60 { n + 3 } else { n - 3 })).collect();
    let (changes, stream) = log(&times);
    assert_one_place(&[stream], &changes, 75);
}

/// `binlog push`, or another receiver that lags, stores it.
#[test]
fn a_part_of_the_log_that_is_received_later_refuses_no_time() {
    let times: Vec<Times> =
        (10..40).map(|n| (n * 10, if (15..20).contains(&n) { 5000 } else { n * 10 })).collect();
    let (changes, stream) = log(&times);
    assert_one_place(&[stream], &changes, 390);
}
