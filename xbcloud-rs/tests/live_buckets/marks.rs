//! Removals whose requests the store refuses, or carries out late: what others rely on meanwhile.

use xb_testkit::command::{Running, Signal};
use xb_testkit::fault::{Action, Rule};

use crate::support::shop::Shop;

/// A shop with the full backup n0.
fn shop() -> Shop {
    let shop = Shop::new();
    let _ = shop.backup("n0", (0, 100), None).run().expect(0);
    shop
}

fn manifests(shop: &Shop) -> Vec<String> {
    let all = shop.bucket.list("shop/.xb-catalog/").into_iter();
    let names = all.filter_map(|(key, _)| Some(key.rsplit_once(".xb-catalog/")?.1.to_owned()));
    names.filter(|name| !name.contains('/')).collect()
}

/// Refuses the first removals, which are tries to remove the manifest.
fn refuse(shop: &Shop, (status, code): (u16, &'static str), times: u64) {
    let refuse = Action::Refuse { status, code };
    shop.proxy.set_rules(vec![Rule::new("POST", "delete", refuse).times(times)]);
}

/// An increment of a base whose removal the store has answered with an error: it waits for the end of that.
fn waiting_increment(shop: &Shop) -> Running {
    refuse(shop, (503, "SlowDown"), 3);
    let _ = shop.xbcloud(&["delete", "--yes"], "/n0").run().expect_failure();
    shop.proxy.set_rules(Vec::new());
    let looks = || shop.proxy.count("GET", "%40claims%2Fn0");
    let before = looks();
    let mut running = shop.backup("i1", (100, 200), Some("n0")).spawn();
    running.until("the run waits", || looks() >= before + 2);
    running
}

/// The store answers with an error, and may carry the request out later. The process that sent it is
/// gone.
#[test]
fn an_increment_does_not_rely_on_a_base_that_a_late_request_may_remove() {
    let shop = shop();
    let mut running = waiting_increment(&shop);
    assert!(!running.has_ended());
    running.kill_9();
    let said = running.wait().stderr_text();
    assert!(said.contains("waiting until another command has finished removing n0"), "{said}");
    assert!(manifests(&shop).contains(&"n0".to_owned()));
    // Another removal need not wait.
    let _ = shop.xbcloud(&["delete", "--yes", "--force"], "/n0").run().expect(0);
    assert!(!manifests(&shop).contains(&"n0".to_owned()));
}

/// The mark of a dead command on the base counts for an hour. Nothing is written before it ends, so a signal ends the wait.
#[test]
fn a_signal_ends_the_wait_for_a_removal_of_the_base() {
    let shop = shop();
    let running = waiting_increment(&shop);
    assert_eq!(manifests(&shop), ["n0"]);
    running.signal(Signal::TERM);
    let ended = running.wait().expect(128 + 15);
    assert!(ended.stderr_text().contains("interrupted by signal 15"), "{ended:?}");
    assert_eq!(manifests(&shop), ["n0"]);
}

#[test]
fn a_removal_that_is_refused_for_certain_blocks_no_run() {
    let shop = shop();
    refuse(&shop, (403, "AccessDenied"), 1);
    let _ = shop.xbcloud(&["delete", "--yes"], "/n0").run().expect_failure();
    shop.proxy.set_rules(Vec::new());
    assert_eq!(shop.bucket.list("shop/.xb-catalog/@claims/"), []);
    let _ = shop.backup("i1", (100, 200), Some("n0")).run().expect(0);
    assert_eq!(manifests(&shop), ["i1", "n0"]);
}

/// The rules may keep an increment whose run has not yet noticed that its base goes.
#[test]
fn a_prune_does_not_count_on_an_increment_whose_base_may_go() {
    let shop = shop();
    let _ = shop.backup("n1", (0, 150), None).run().expect(0);
    shop.proxy.set_rules(vec![Rule::new("PUT", "/.xb-catalog/i2", Action::Hold).times(1)]);
    let mut running = shop.backup("i2", (100, 200), Some("n0")).spawn();
    running.until("its manifest is on its way", || shop.proxy.held() == 1);
    refuse(&shop, (503, "SlowDown"), 3);
    let _ = shop.xbcloud(&["delete", "--yes"], "/n0").run().expect_failure();
    shop.proxy.set_rules(Vec::new());
    shop.proxy.release();
    running.until("the increment is written", || manifests(&shop).contains(&"i2".to_owned()));
    let pruned = shop.xbcloud(&["prune", "--yes", "--keep-last=1"], "").run().expect(0);
    assert_eq!(manifests(&shop), ["i2", "n0", "n1"], "{pruned:?}");
    assert!(pruned.stderr_text().contains("kept n1: n0, which was to be kept"), "{pruned:?}");
    running.kill_9();
    let _ = running.wait();
}

/// A command that removes something needs other advice than a backup.
#[test]
fn a_command_that_loses_its_claim_is_to_be_run_again() {
    for (command, name) in
        [(&["delete", "--yes"][..], "/n0"), (&["prune", "--yes", "--keep-last=1"], "")]
    {
        let shop = shop();
        let _ = shop.backup("n1", (0, 150), None).run().expect(0);
        shop.proxy.set_rules(vec![Rule::new("POST", "?delete", Action::Hold).times(1)]);
        let mut removing = shop.xbcloud(command, name).spawn();
        removing.until("the removal of the manifest", || shop.proxy.held() == 1);
        shop.bucket.put("shop/.xb-catalog/@claims/n0/000009", b"{}");
        shop.proxy.release();
        let said = removing.wait().expect(1).stderr_text();
        assert!(said.contains("another run took over"), "{said}");
        let advice = "hint: run the command again when no other command works on this name";
        assert!(said.contains(advice) && !said.contains("take a new backup"), "{said}");
    }
}
