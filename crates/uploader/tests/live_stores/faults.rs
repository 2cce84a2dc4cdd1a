//! Tests with a faulty store: uploads are complete, with as many objects as planned, and nothing
//! else.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::common::*;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::ports::free_port;
use xb_testkit::reply::Reply;
use xb_testkit::s3::{self, Bucket};
use xb_uploader::{
    GuardedOutcome, Lock, LockMode, PartSender, Policy, PresentState, Store, StoreError,
    StoreErrorKind,
};

/// Uploads a mix of small objects and multipart objects. Returns keys and content.
async fn backup(
    store: &Store,
    sender: &mut PartSender,
) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
    let mut sent = BTreeMap::new();
    for (n, full) in [0, 2, 0, 0, 3, 0, 1].into_iter().enumerate() {
        let key = format!("a/run/{n:09}");
        sent.insert(key.clone(), upload(sender, &key, full).await?);
    }
    assert_eq!(sender.finish().await?.objects, 7);
    store.create("a/manifest", "all of it".into()).await?;
    sent.insert("a/manifest".to_owned(), b"all of it".to_vec());
    Ok(sent)
}

/// Asserts that the bucket, seen from outside, holds exactly what was sent and no unfinished
/// upload.
async fn assert_whole(bucket: &Bucket, store: &Store, sent: &BTreeMap<String, Vec<u8>>) {
    let listed: Vec<_> = bucket.list("a/").into_iter().map(|(key, _)| key).collect();
    assert_eq!(listed, sent.keys().cloned().collect::<Vec<_>>());
    for (key, content) in sent {
        assert!(bucket.get(key).unwrap() == *content, "{key}");
        assert!(store.get(key).await.unwrap() == *content, "{key}");
    }
    assert_eq!(store.unfinished_uploads("a/").await.unwrap(), []);
}

/// Uploads through a temporary fault.
async fn survives(policy: Policy, rules: Vec<Rule>) -> (Proxy, Store) {
    let bucket = s3::bucket();
    let proxy = Proxy::start(bucket.address(), rules);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    let mut sender = PartSender::new(store.clone(), 4);
    let sent = backup(&store, &mut sender).await.unwrap();
    let acted = proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    assert!(acted > 0, "the fault never came");
    proxy.release();
    assert_whole(&bucket, &store, &sent).await;
    (proxy, store)
}

#[tokio::test]
async fn a_third_of_all_requests_answered_503() {
    let (proxy, store) =
        survives(quick(), vec![Rule::new("", "", Action::answer(503)).every(3)]).await;
    let refused = proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    // A busy machine may make the store time out, too.
    assert!(store.traffic().retries() >= refused as u64);
    assert_eq!(store.traffic().requests(), proxy.count("", "") as u64);
}

#[tokio::test]
async fn a_requested_pause_is_kept() {
    let busy = Action::Answer { status: 429, retry_after: Some(1) };
    let begin = Instant::now();
    // The pauses that double would last 2 s and 4 s if this did not limit them.
    let policy = quick().with_max_backoff(Duration::from_secs(1));
    survives(policy, vec![Rule::new("PUT", "000000002", busy).times(2)]).await;
    assert!(begin.elapsed() >= Duration::from_secs(2));
}

#[tokio::test]
async fn connections_that_break_near_the_end_of_a_part() {
    let cut =
        |part: &str| Rule::new("PUT", part, Action::CutRequest(PART as u64 * 9 / 10)).times(2);
    survives(quick(), vec![cut("partNumber=1"), cut("partNumber=2"), cut("partNumber=3")]).await;
}

/// The store acts, but its response is lost: for parts, whole puts, starts and ends of uploads, and
/// the create-only object. A lost start must not leave a second upload behind.
#[tokio::test]
async fn answers_that_get_lost_after_the_store_has_acted() {
    let lose = |method: &str, part: &str| Rule::new(method, part, Action::LoseAnswer).times(1);
    survives(
        quick(),
        vec![
            lose("POST", "000000001?uploads"),
            lose("PUT", "partNumber=2"),
            lose("POST", "000000004?uploadId"),
            lose("PUT", "000000000"),
            lose("PUT", "a/manifest"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_steady_slow_store_is_no_reason_to_begin_again() {
    let bucket = s3::bucket();
    let proxy =
        Proxy::start(bucket.address(), vec![Rule::new("PUT", "/a/x", Action::Slow(2 << 20))]);
    // The whole upload takes longer than any of the limits.
    let policy = quick().with_stall(Duration::from_secs(4));
    let limit = policy.answer();
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    let content = bytes::Bytes::from(xb_testkit::data::noise(1, 20 << 20));
    let begin = Instant::now();
    store.put("a/x", content.clone().into()).await.unwrap();
    assert!(begin.elapsed() > limit);
    assert_eq!((proxy.count("PUT", ""), store.traffic().retries()), (1, 0));
    assert!(bucket.get("a/x").unwrap() == content);
}

#[tokio::test]
async fn a_store_that_takes_nothing_any_more_is_left() {
    let policy = quick().with_stall(Duration::from_secs(1));
    let stall = Rule::new("PUT", "partNumber=2", Action::Stall).times(1);
    let (_, store) = survives(policy, vec![stall]).await;
    // More where a busy machine makes the store stall as well.
    assert!(store.traffic().retries() >= 1);
}

/// Connections are refused until the store starts.
#[tokio::test]
async fn a_store_that_is_away_for_a_while() {
    let bucket = s3::bucket();
    let address = format!("127.0.0.1:{}", free_port());
    let policy = quick().with_max_retries(0).with_retry_timeout(Duration::from_secs(60));
    let store = opened(&bucket.url("a"), &s3_settings(&format!("http://{address}")), policy);
    let mut sender = PartSender::new(store.clone(), 4);
    let upstream = bucket.address().to_owned();
    let comes_up = async {
        while store.traffic().retries() < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Proxy::start_at(&address, &upstream, Vec::new())
    };
    let (sent, _proxy) = tokio::join!(backup(&store, &mut sender), comes_up);
    assert_whole(&bucket, &store, &sent.unwrap()).await;
}

/// Interrupted and stalled downloads are resumed.
#[tokio::test]
async fn downloads_survive_too() {
    let bucket = s3::bucket();
    let content = xb_testkit::data::noise(1, 3 << 20);
    bucket.put("a/x", &content);
    let rules = vec![
        Rule::new("GET", "/a/x", Action::CutAnswer(1 << 20)).times(1),
        Rule::new("GET", "/a/x", Action::Stall).skip(1).times(1),
        Rule::new("GET", "/a/x", Action::answer(500)).skip(2).times(1),
    ];
    let proxy = Proxy::start(bucket.address(), rules);
    let policy = quick().with_stall(Duration::from_secs(1));
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    let range = store.get_range("a/x", 100..2_000_000, 3 << 20).await.unwrap();
    assert!(range == content[100..2_000_000]);
    assert!(store.get("a/x").await.unwrap() == content);
    // More where a busy machine makes the store stall as well.
    assert!(store.traffic().retries() >= 3);
}

/// One answer that does not fit what the store said before is asked for once more; two are believed.
#[tokio::test]
async fn one_refusal_out_of_line_ends_nothing() {
    let bucket = s3::bucket();
    let content = xb_testkit::data::noise(1, 1 << 20);
    bucket.put("a/x", &content);
    let late = || Action::Refuse { status: 403, code: "RequestTimeTooSkewed" };
    for (status, kind) in [
        (400, StoreErrorKind::Rejected),
        (403, StoreErrorKind::Denied),
        (416, StoreErrorKind::Rejected),
    ] {
        for times in [1, 2] {
            // The first request of all may be late, too.
            let rules = vec![
                Rule::new("GET", "list-type=2", late()).times(1),
                Rule::new("GET", "/a/x", Action::answer(status)).times(times),
            ];
            let proxy = Proxy::start(bucket.address(), rules);
            let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
            assert_eq!(store.list("a").await.unwrap().len(), 1);
            let found = store.get_range("a/x", 100..1000, 1 << 20).await;
            match times {
                1 => assert!(found.unwrap() == content[100..1000]),
                _ => {
                    let error = found.unwrap_err();
                    assert_eq!((error.kind, error.attempts), (kind, 2), "{error}");
                }
            }
        }
    }
}

/// A permanent failure: the error names the cause within the time limit, and no upload is left once
/// the store accepts requests again during the cleanup.
#[tokio::test]
async fn trouble_that_does_not_pass_ends_the_run_and_leaves_nothing() {
    let bucket = s3::bucket();
    let proxy =
        Proxy::start(bucket.address(), vec![Rule::new("PUT", "partNumber=2", Action::answer(503))]);
    let policy = quick().with_max_retries(2);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    let mut sender = PartSender::new(store.clone(), 4);
    let error = backup(&store, &mut sender).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Unavailable, 3), "{error}");
    assert!(error.to_string().contains("SlowDown"), "{error}");
    sender.abort().await;
    assert_eq!(store.unfinished_uploads("a/").await.unwrap(), []);

    // No server at all: the time limit counts.
    let policy = quick().with_max_retries(0).with_retry_timeout(Duration::from_secs(2));
    let store = opened(&bucket.url("a"), &s3_settings("http://127.0.0.1:1"), policy);
    let begin = Instant::now();
    let error = store.put("a/x", bytes::Bytes::new().into()).await.unwrap_err();
    assert!(begin.elapsed() >= Duration::from_secs(2) && begin.elapsed() < Duration::from_secs(30));
    assert!(
        error.to_string().contains("cannot connect to http://127.0.0.1:1: Connection refused"),
        "{error}"
    );
    let nowhere = opened(
        &bucket.url("a"),
        &s3_settings("http://no-such-host.invalid"),
        quick().with_max_retries(1),
    );
    let error = nowhere.put("a/x", bytes::Bytes::new().into()).await.unwrap_err();
    assert!(
        error.attempts == 2
            && error.to_string().contains("cannot find http://no-such-host.invalid"),
        "{error}"
    );
}

/// A store that never responds does not delay giving up.
#[tokio::test]
async fn giving_up_does_not_wait_for_a_black_hole() {
    let bucket = s3::bucket();
    let rules = vec![
        Rule::new("PUT", "partNumber=2", Action::answer(403)),
        Rule::new("DELETE", "", Action::Stall),
        Rule::new("PUT", "partNumber=1", Action::Stall),
    ];
    let proxy = Proxy::start(bucket.address(), rules);
    let policy = quick().with_stall(Duration::from_secs(3600));
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    let mut sender = PartSender::new(store.clone(), 4);
    let error = backup(&store, &mut sender).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    let begin = Instant::now();
    sender.abort().await;
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

/// The rate limit holds for all requests together, in both directions.
#[tokio::test]
async fn the_rate_is_kept() {
    let bucket = s3::bucket();
    let mut settings = s3_settings(&bucket.endpoint());
    settings.http.limit_rate = NonZeroU64::new(10 << 20);
    let store = opened(&bucket.url("a"), &settings, quick());
    let begin = Instant::now();
    let mut sender = PartSender::new(store.clone(), 4);
    let content = upload(&mut sender, "a/x", 3).await.unwrap();
    sender.finish().await.unwrap();
    let floor = Duration::from_secs_f64(content.len() as f64 / f64::from(10 << 20) * 0.95);
    assert!(begin.elapsed() >= floor, "{:?}", begin.elapsed());
    let begin = Instant::now();
    assert!(store.get("a/x").await.unwrap() == content);
    assert!(begin.elapsed() >= floor, "{:?}", begin.elapsed());
}

/// A store that forgets an upload whose parts are all still held.
#[tokio::test]
async fn a_forgotten_upload_is_sent_again_in_a_new_one() {
    // Forgotten before the sender gets the other parts, and after.
    for before in [1, 3] {
        let bucket = s3::bucket();
        let rule = Rule::new("PUT", "partNumber=", Action::Hold);
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
        let mut sender = PartSender::new(store.clone(), 4);
        let mut content = Vec::new();
        for index in 0..3 {
            if index == before {
                forget(&proxy, &store, before).await;
            }
            let part = part("a/object", u32::try_from(index).unwrap(), index == 2);
            content.extend(part.payload.iter().flat_map(|piece| piece.to_vec()));
            sender.send(part).await.unwrap();
        }
        if before == 3 {
            let (sent, ()) = tokio::join!(sender.finish(), forget(&proxy, &store, before));
            assert_eq!(sent.unwrap().objects, 1);
        } else {
            assert_eq!(sender.finish().await.unwrap().objects, 1);
        }
        assert_whole(&bucket, &store, &BTreeMap::from([("a/object".to_owned(), content)])).await;
    }
}

/// Whoever makes the next part may need the memory of those that are lost for it.
#[tokio::test]
async fn a_forgotten_upload_is_begun_again_before_there_is_another_part() {
    let bucket = s3::bucket();
    let rule = Rule::new("PUT", "partNumber=", Action::Hold);
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    let mut sender = PartSender::new(store.clone(), 4);
    let parts = || (0..3).map(|index| part("a/object", index, index == 2));
    let content = parts().flat_map(|part| part.payload.concat()).collect();
    for part in parts().take(2) {
        sender.send(part).await.unwrap();
    }
    let waiting = async {
        while sender.uploaded().parts < 2 {
            let ended = sender.next_ended().await;
            sender.take_in(ended).await.unwrap();
        }
    };
    let limit = tokio::time::timeout(Duration::from_secs(60), waiting);
    let (sent, ()) = tokio::join!(limit, forget(&proxy, &store, 2));
    sent.expect("the parts are sent again");
    sender.send(parts().last().unwrap()).await.unwrap();
    assert_eq!(sender.finish().await.unwrap().objects, 1);
    assert_whole(&bucket, &store, &BTreeMap::from([("a/object".to_owned(), content)])).await;
}

/// A store that ends the connection when a part of an upload arrives that it does not know, as versitygw does.
#[tokio::test]
async fn an_upload_is_known_to_be_forgotten_although_its_parts_get_no_answer() {
    let bucket = s3::bucket();
    let stall = Rule::new("PUT", "partNumber=", Action::Stall);
    let proxy = Proxy::start(bucket.address(), vec![stall]);
    let policy = quick().with_stall(Duration::from_secs(3600));
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), policy);
    let mut sender = PartSender::new(store.clone(), 4);
    sender.send(part("a/object", 0, false)).await.unwrap();
    while proxy.count("PUT", "partNumber=") < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let begun = store.unfinished_uploads("a/object").await.unwrap();
    store.abort(&begun[0]).await.unwrap();
    proxy.set_rules(vec![Rule::new("PUT", &begun[0].id, Action::CutRequest(0))]);
    proxy.release();
    sender.send(part("a/object", 1, true)).await.unwrap();
    assert_eq!(sender.finish().await.unwrap().objects, 1);
    let pieces = [part("a/object", 0, false), part("a/object", 1, true)];
    let content = pieces.into_iter().flat_map(|part| part.payload.concat()).collect();
    assert_whole(&bucket, &store, &BTreeMap::from([("a/object".to_owned(), content)])).await;
}

/// `rclone serve s3` answers so where no upload is unfinished.
#[tokio::test]
async fn a_store_that_knows_no_upload_has_no_unfinished_one() {
    let bucket = s3::bucket();
    let says = |code| vec![Rule::new("GET", "uploads", Action::Refuse { status: 404, code })];
    let proxy = Proxy::start(bucket.address(), says("NoSuchUpload"));
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    assert_eq!(store.unfinished_uploads("a/").await.unwrap(), []);
    proxy.set_rules(says("NoSuchBucket"));
    assert!(store.unfinished_uploads("a/").await.is_err());
}

/// The store carries out the request that begins an upload, although its sender was cancelled meanwhile.
#[tokio::test]
async fn an_upload_that_begins_while_it_is_cancelled_is_aborted() {
    let bucket = s3::bucket();
    let rule = Rule::new("POST", "uploads", Action::Hold);
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    let direct = opened(&bucket.url("a"), &s3_settings(&bucket.endpoint()), quick());
    let mut sender = PartSender::new(store, 4);
    let held = async {
        while proxy.held() < 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        sent = sender.send(part("a/object", 0, false)) => panic!("not held: {sent:?}"),
        () = held => {}
    }
    assert_eq!(direct.unfinished_uploads("a/").await.unwrap(), []);
    let arrive = async {
        // The sender waits for the request, or has looked for the upload already.
        for _ in 0..5 {
            assert_eq!(direct.size("a/object").await.unwrap(), None);
        }
        proxy.release();
    };
    tokio::join!(sender.abort(), arrive);
    assert_eq!(proxy.count("DELETE", "uploadId="), 1);
    assert_eq!(direct.unfinished_uploads("a/").await.unwrap(), []);
}

/// Removes the unfinished upload while `held` of its parts are on their way, and lets these arrive.
async fn forget(proxy: &Proxy, store: &Store, held: usize) {
    while proxy.held() < held {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // By its key: MinIO lists uploads of exact keys only.
    let begun = store.unfinished_uploads("a/object").await.unwrap();
    assert_eq!(begun.len(), 1);
    store.abort(&begun[0]).await.unwrap();
    proxy.release();
    // Answers arrive meanwhile.
    for _ in 0..3 {
        assert_eq!(store.size("a/object").await.unwrap(), None);
    }
}

/// Once a part is acknowledged, its bytes are gone, and the object cannot be sent again.
#[tokio::test]
async fn an_upload_that_is_forgotten_too_late_is_an_error() {
    let bucket = s3::bucket();
    let lost = Action::Refuse { status: 404, code: "NoSuchUpload" };
    let rule = Rule::new("PUT", "partNumber=", lost).skip(1);
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    let mut sender = PartSender::new(store.clone(), 1);
    let error = upload(&mut sender, "a/object", 2).await.unwrap_err();
    assert!(error.hint().unwrap().contains("lifecycle rule"), "{error}");
    sender.abort().await;
    assert_eq!(bucket.list("a/"), []);
    assert_eq!(store.unfinished_uploads("a/").await.unwrap(), []);
}

/// A write of what was read before does not replace what another program has written since; with conditions that the
/// store refuses for ever, or does not support, it is a plain one.
#[tokio::test]
async fn a_write_that_was_overtaken_replaces_nothing() {
    let bucket = s3::bucket();
    let direct = opened(&bucket.url("a"), &s3_settings(&bucket.endpoint()), quick());
    for before in [Some("one"), None] {
        let _ = direct.delete("a/record").await;
        if let Some(before) = before {
            direct.put("a/record", before.into()).await.unwrap();
        }
        let rule = Rule::new("PUT", "a/record", Action::Hold).times(1);
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
        let is_before = move |there: PresentState<'_>| match (there, before) {
            (PresentState::Content(there), Some(before)) => there == before.as_bytes(),
            (there, None) => there == PresentState::Nothing,
            _ => false,
        };
        let writing =
            tokio::spawn(
                async move { store.put_expected("a/record", "two".into(), is_before).await },
            );
        while proxy.held() < 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        direct.put("a/record", "other".into()).await.unwrap();
        proxy.release();
        assert_eq!(writing.await.unwrap().unwrap(), GuardedOutcome::Other);
        assert_eq!(direct.get("a/record").await.unwrap(), "other");
    }
    for (status, code) in [(412, "PreconditionFailed"), (501, "NotImplemented")] {
        let refuse = Action::Refuse { status, code };
        let proxy =
            Proxy::start(bucket.address(), vec![Rule::new("PUT", "a/record", refuse).times(3)]);
        let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
        let any = |there: PresentState<'_>| there != PresentState::Nothing;
        let written = store.put_expected("a/record", code.into(), any).await;
        match status {
            412 => assert_eq!(written.unwrap(), GuardedOutcome::Done { late: false }),
            // Neither the one with a condition nor the plain one.
            _ => drop(written.unwrap_err()),
        }
    }

    // A store that compares the tag with something else is waited for once, not at every write.
    let refuse = Action::Refuse { status: 412, code: "PreconditionFailed" };
    let rule = Rule::new("PUT", "a/record", refuse).with_header("if-match");
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    for (content, requests) in [("three", 4), ("four", 5)] {
        let any = |there: PresentState<'_>| there != PresentState::Nothing;
        let written = store.put_expected("a/record", content.into(), any).await.unwrap();
        assert_eq!(written, GuardedOutcome::Done { late: false });
        assert_eq!(direct.get("a/record").await.unwrap(), content);
        assert_eq!(proxy.count("PUT", "a/record"), requests);
    }
}

/// A removal of what was read before does not remove what another program has written since, however late it arrives; a
/// condition that the store refuses for ever, or does not know, is left out.
#[tokio::test]
async fn a_removal_that_was_overtaken_removes_nothing() {
    let bucket = s3::bucket();
    let direct = opened(&bucket.url("a"), &s3_settings(&bucket.endpoint()), quick());
    let is_one = |there: PresentState<'_>| there == PresentState::Content(b"one");
    direct.put("a/record", "one".into()).await.unwrap();
    let proxy =
        Proxy::start(bucket.address(), vec![Rule::new("POST", "?delete", Action::Hold).times(1)]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    let removing = tokio::spawn(async move { store.delete_expected("a/record", is_one).await });
    while proxy.held() < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    direct.put("a/record", "other".into()).await.unwrap();
    proxy.release();
    assert_eq!(removing.await.unwrap().unwrap(), GuardedOutcome::Other);
    assert_eq!(direct.get("a/record").await.unwrap(), "other");

    for (status, code, times) in [(412, "PreconditionFailed", 3), (400, "MalformedXML", 1)] {
        direct.put("a/record", "one".into()).await.unwrap();
        let refuse = Action::Refuse { status, code };
        let rule = Rule::new("POST", "?delete", refuse).times(times);
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
        let removed = store.delete_expected("a/record", is_one).await.unwrap();
        assert_eq!(removed, GuardedOutcome::Done { late: false }, "{code}");
        assert_eq!(direct.size("a/record").await.unwrap(), None, "{code}");
    }
}

/// One wrong answer to a part decides nothing either.
#[tokio::test]
async fn one_false_answer_to_a_part_loses_no_upload() {
    let bucket = s3::bucket();
    let lost = Action::Refuse { status: 404, code: "NoSuchUpload" };
    let rule = Rule::new("PUT", "partNumber=", lost).skip(1).times(1);
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    let mut sender = PartSender::new(store.clone(), 1);
    let content = upload(&mut sender, "a/object", 2).await.unwrap();
    sender.finish().await.unwrap();
    assert!(proxy.seen().iter().any(|seen| seen.action.is_some()), "the answer never came");
    assert_whole(&bucket, &store, &BTreeMap::from([("a/object".to_owned(), content)])).await;
}

/// One wrong answer about an upload of which every part is acknowledged decides nothing.
#[tokio::test]
async fn a_false_answer_to_a_completion_is_asked_for_again() {
    for (code, status) in [("InvalidPart", 400), ("NoSuchUpload", 404)] {
        let bucket = s3::bucket();
        let rule = Rule::new("POST", "uploadId=", Action::Refuse { status, code }).times(1);
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
        let mut sender = PartSender::new(store.clone(), 1);
        upload(&mut sender, "a/object", 2).await.unwrap();
        sender.finish().await.unwrap();
        assert_eq!(bucket.list("a/").len(), 1, "{code}");
        // One that lies for ever ends the run, with the cause.
        proxy.set_rules(vec![Rule::new("POST", "uploadId=", Action::Refuse { status, code })]);
        let mut sender = PartSender::new(store.clone(), 1);
        upload(&mut sender, "a/other", 2).await.unwrap();
        let error = sender.finish().await.unwrap_err();
        assert!(error.hint().unwrap().contains("lifecycle rule"), "{error}");
        sender.abort().await;
        assert_eq!(bucket.list("a/").len(), 1, "{code}");
    }
}

/// The store begins its answer to a completion before it has put the parts together.
#[tokio::test]
async fn an_error_within_a_success_completes_no_upload() {
    let bucket = s3::bucket();
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    for (number, (code, kind)) in [
        (Some("InternalError"), StoreErrorKind::Unavailable),
        (Some("AccessDenied"), StoreErrorKind::Denied),
        (None, StoreErrorKind::Unavailable),
    ]
    .into_iter()
    .enumerate()
    {
        let body = code.map_or_else(String::new, |code| {
            format!("<Error><Code>{code}</Code><Message>no</Message></Error>")
        });
        let rule = Rule::new("POST", "uploadId=", Action::Reply(Reply::text(200, &body)));
        proxy.set_rules(vec![rule.clone().times(1)]);
        let mut sender = PartSender::new(store.clone(), 1);
        upload(&mut sender, &format!("a/{number}"), 2).await.unwrap();
        sender.finish().await.unwrap();
        assert_eq!(bucket.list("a/").len(), number + 1, "{code:?}");
        proxy.set_rules(vec![rule]);
        let mut sender = PartSender::new(store.clone(), 1);
        upload(&mut sender, "a/other", 2).await.unwrap();
        let error = sender.finish().await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(code.unwrap_or_default()), "{error}");
        sender.abort().await;
        assert_eq!(bucket.list("a/").len(), number + 1, "{code:?}");
    }
}

/// A bucket with a default retention demands a checksum with each object and part.
#[tokio::test]
async fn a_store_that_demands_a_checksum_gets_one() {
    let demand = Action::Refuse { status: 400, code: "MissingContentMD5" };
    let rule = Rule::new("PUT", "", demand).without_header("content-md5");
    let (proxy, store) = survives(quick(), vec![rule]).await;
    // Requests that were on their way learn it late.
    let refused = proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    assert!(refused <= 4 && store.traffic().retries() == refused as u64, "{refused}");
}

/// A bucket whose default retention has locked an object before the command does.
#[tokio::test]
async fn a_lock_of_another_mode_is_named() {
    let bucket = s3::locking_bucket();
    let proxy = Proxy::start(bucket.address(), Vec::new());
    let store = opened(&bucket.url("a"), &s3_settings(&proxy.endpoint()), quick());
    store.put("a/object", "content".into()).await.unwrap();
    let days = |days: i64| {
        let until = store.now() + days * 24 * 3600;
        jiff::Timestamp::from_second(until).unwrap()
    };
    let strict = Lock { mode: LockMode::Compliance, until: days(2) };
    store.lock("a/object", &strict).await.unwrap();
    let denied = Action::Refuse { status: 403, code: "AccessDenied" };
    proxy.set_rules(vec![Rule::new("PUT", "retention", denied)]);
    let weaker = Lock { mode: LockMode::Governance, until: days(1) };
    store.lock("a/object", &weaker).await.unwrap();
    let longer = Lock { mode: LockMode::Governance, until: days(3) };
    let error = store.lock("a/object", &longer).await.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("COMPLIANCE") && hint.contains("--retain-mode=compliance"), "{hint}");
    // Of an object that another backup needs, the stricter mode stays, and the later time counts.
    proxy.set_rules(Vec::new());
    for (wanted, there) in [(&weaker, &strict), (&longer, &longer)] {
        store.lock_at_least("a/object", wanted).await.unwrap();
        let lock = Lock { mode: LockMode::Compliance, until: there.until };
        assert_eq!(store.lock_of("a/object").await.unwrap(), Some(lock));
    }
}
