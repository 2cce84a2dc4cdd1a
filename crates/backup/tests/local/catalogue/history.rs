//! A chain whose manifests show that a link does not continue the history of its base.

use serde_json::json;
use xb_backup::PutRequest;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Base, Layout};
use xb_repo::verification::Level;

use super::support::{name, rewrite, verify};
use crate::common::{Store, block_on, put_request, session, stream_reader};

/// A chain of three, each with the UUID of its server.
fn chain(layout: Layout, servers: [&str; 3]) -> Store {
    let store = Store::new();
    let mut base = store.put("n0", layout, 300, stream_reader()).unwrap().manifest;
    for of in ["n1", "n2"] {
        let since = Base { name: base.name.clone(), run: base.run.clone() };
        let since = xb_backup::IncrementalBase {
            base: since,
            lsn: 10,
            base_ends: 10,
            accept_history: true,
        };
        let request = PutRequest { since: Some(since), ..put_request(of, layout, 300) };
        let in_session = session(&store.root);
        let put = xb_backup::put(&in_session, &request, stream_reader());
        base = block_on(put).unwrap().manifest;
        assert!(base.history.unwrap().accepted);
        rewrite(&store, of, |manifest| manifest["source"]["to_lsn"] = json!(10));
        base.history = None;
    }
    for (of, server) in ["n0", "n1", "n2"].into_iter().zip(servers) {
        rewrite(&store, of, |manifest| manifest["history"] = json!({ "server_uuid": server }));
    }
    store
}

#[test]
fn verify_and_restore_refuse_a_chain_of_two_histories_at_any_link() {
    for layout in [Layout::Packed, Layout::Classic] {
        for (servers, bad) in [(["u", "v", "v"], "n1"), (["u", "u", "v"], "n2")] {
            let store = chain(layout, servers);
            for level in [Level::Manifest, Level::List, Level::Checksum] {
                let report = verify(&store, "n2", level, None);
                // Once: its own data is intact.
                assert!(!report.is_ok() && report.is_undamaged(), "{report:?}");
                let why = report.broken_chain.as_deref().unwrap();
                assert!(why.contains("belongs to another history"), "{why}");
                assert_eq!(why.starts_with("n1 in its chain"), bad == "n1", "{why}");
            }
            let refused = block_on(xb_repo::chain::chain(&store.root, &name("n2"))).unwrap_err();
            assert!(matches!(&refused, RepoError::Chain { name, .. } if name == bad));
            assert!(verify(&store, "n0", Level::Checksum, None).is_ok());
        }
        // A history that is unknown is stated, and breaks no chain.
        let store = chain(layout, ["u", "u", "u"]);
        let report = verify(&store, "n2", Level::Checksum, None);
        assert!(report.is_ok(), "{report:?}");
        let told = report.notes.iter().filter(|note| note.starts_with("it is unknown whether"));
        assert_eq!(told.count(), 2, "{:?}", report.notes);
        assert_eq!(block_on(xb_repo::chain::chain(&store.root, &name("n2"))).unwrap().len(), 3);
    }
}
