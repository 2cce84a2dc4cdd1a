//! Removals that a store refuses object by object, in an answer with status 200 ("DeleteObjects"), or does not carry out: no
//! command says that something is removed that stays, and a code that no retry mends ends it at once.

use xb_testkit::command::Ran;
use xb_testkit::fault::{Action, Rule};

use crate::support::shop::Shop;

/// The code of each object in the answer (none: it is named as removed), and of a command to which the store always answers
/// so the exit status, and a part of its message for manifests and for other objects.
const CODES: [(Option<&str>, i32, [&str; 2]); 6] = [
    (Some("AccessDenied"), 4, ["AccessDenied told to"; 2]),
    (Some("MalformedXML"), 1, ["MalformedXML told to"; 2]),
    (Some("SlowDown"), 5, ["SlowDown told to (after 3 tries)"; 2]),
    (Some("InternalError"), 5, ["InternalError told to (after 3 tries)"; 2]),
    (Some("NoSuchKey"), 5, NOT_DONE),
    (None, 5, NOT_DONE),
];
const NOT_DONE: [&str; 2] =
    ["did not carry it out", "reported this object as removed, but still lists it"];
/// Codes for which one answer decides nothing.
const ONCE: [&str; 2] = ["SlowDown", "NoSuchKey"];

fn keeping(code: Option<&'static str>) -> Rule {
    Rule::new("POST", "?delete", Action::Keep(code))
}

fn keys(shop: &Shop, below: &str) -> Vec<String> {
    shop.bucket.list(&format!("shop/{below}")).into_iter().map(|(key, _)| key).collect()
}

/// Asserts that a command has failed for this reason, and says of nothing that it is removed.
#[track_caller]
fn assert_failed(ran: Ran, what: &str, (code, exit, told): (Option<&str>, i32, &str)) {
    let said = ran.expect(exit).stderr_text();
    assert!(said.contains(told), "{what} {code:?}: {said}");
    assert!(!said.contains("removed ") && !said.contains("skipped"), "{what} {code:?}: {said}");
    let is_final = exit != 5;
    assert!(!is_final || !said.contains("tries"), "{what} {code:?} is asked for again: {said}");
}

fn refused(layout: &'static str) {
    let mut shop = Shop::new();
    shop.layout = layout;
    for (name, to) in [("n0", 100), ("n1", 200)] {
        let _ = shop.backup(name, (0, to), None).run().expect(0);
    }
    let delete = |name: &str| shop.xbcloud(&["delete", "--yes"], &format!("/{name}")).run();
    let prune = || shop.xbcloud(&["prune", "--yes", "--keep-last=1"], "").run();
    let all = || (keys(&shop, "n0/"), keys(&shop, ".xb-catalog/n"));
    let whole = all();
    // Those of the manifest and of the records pass, and that of the claim of a classic run.
    let before = if layout == "classic" { 3 } else { 2 };
    let keeping_objects = |code| keeping(code).skip(before);
    // The manifest is gone; what stays is said, and left to `gc`.
    for (number, (code, exit, [_, told])) in CODES.into_iter().enumerate() {
        let name = format!("d{number}");
        let _ = shop.backup(&name, (0, 300), None).run().expect(0);
        let objects = keys(&shop, &format!("{name}/"));
        shop.proxy.set_rules(vec![keeping_objects(code)]);
        assert_failed(delete(&name), "delete of objects", (code, exit, told));
        assert_eq!(keys(&shop, &format!("{name}/")), objects, "{code:?}");
        let later = Rule::new("", "", Action::Ahead(3 * 24 * 3600));
        shop.proxy.set_rules(vec![keeping(code), later]);
        let gc = shop.xbcloud(&["gc", "--yes"], "").run();
        assert_failed(gc, "gc", (code, exit, told));
        assert_eq!(keys(&shop, &format!("{name}/")), objects, "{code:?}");
    }
    for (code, exit, [told, _]) in CODES {
        shop.proxy.set_rules(vec![keeping(code)]);
        assert_failed(delete("n0"), "delete", (code, exit, told));
        shop.proxy.set_rules(vec![keeping(code)]);
        assert_failed(prune(), "prune", (code, exit, told));
        assert_eq!(all(), whole, "{code:?}");
    }
    let _ = shop.backup("n2", (0, 400), None).run().expect(0);
    shop.proxy.set_rules(Vec::new());
    let _ = delete("n0").expect(0);
    shop.proxy.set_rules(vec![keeping_objects(Some("AccessDenied"))]);
    let said = prune().expect(4).stderr_text();
    assert!(said.contains("removed n1, but objects of it are left: `xbcloud-rs gc`"), "{said}");
    assert!(!keys(&shop, "n1/").is_empty());
    shop.proxy.set_rules(vec![Rule::new("", "", Action::Ahead(3 * 24 * 3600))]);
    let said = shop.xbcloud(&["gc", "--yes"], "").run().expect(0).stderr_text();
    assert!(said.contains("removed what "), "{said}");
    shop.proxy.set_rules(Vec::new());
    assert_eq!((keys(&shop, "n1/"), keys(&shop, "d")), (Vec::new(), Vec::new()));
    // One answer decides nothing, whichever it is.
    for code in ONCE {
        for skip in 0..=before {
            // A request that was answered with an error may still be on its way, and a new backup of its name waits.
            let name = format!("once-{code}-{skip}");
            let _ = shop.backup(&name, (0, 500), None).run().expect(0);
            shop.proxy.set_rules(vec![keeping(Some(code)).skip(skip).times(1)]);
            let said = delete(&name).expect(0).stderr_text();
            assert!(said.contains("removed the backup"), "{said}");
            shop.proxy.set_rules(Vec::new());
            assert_eq!(keys(&shop, &format!("{name}/")), [""; 0], "{code:?} {skip}");
            assert_eq!(keys(&shop, &format!(".xb-catalog/{name}")), [""; 0], "{code:?} {skip}");
        }
    }
}

#[test]
fn what_a_store_refuses_to_remove_is_not_called_removed() {
    refused("packed");
}

#[test]
fn what_a_store_refuses_to_remove_of_a_classic_backup_is_not_called_removed() {
    refused("classic");
}
