//! Differences between two servers.

use xb_repo::verification::ComparisonRecord;

use super::contents::{Contents, Facts, Object, Rows};
/// Differences that are named; the others are counted.
const NAMED: usize = 100;

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) compared: ComparisonRecord,
    /// One line for each difference, with a name and without any value.
    pub(crate) lines: Vec<String>,
}

/// Compares the restored data with another server. Definitions count only if both servers print them alike.
pub(crate) fn differences(
    restored: &Contents,
    other: &Contents,
    server: &str,
    gtids: &str,
    with_definitions: bool,
) -> Differences {
    let compared = ComparisonRecord {
        server: server.to_owned(),
        gtids: gtids.to_owned(),
        ..ComparisonRecord::default()
    };
    let mut found = Differences { compared, lines: Vec::new() };
    for (object, one) in &restored.objects {
        match other.objects.get(object) {
            None => found.add(object, format!("{server} does not have it")),
            Some(two) => found.compare(object, one, two, server, with_definitions),
        }
    }
    for object in other.objects.keys().filter(|object| !restored.objects.contains_key(object)) {
        found.add(object, format!("only {server} has it"));
    }
    let more = found.lines.len().saturating_sub(NAMED);
    found.lines.truncate(NAMED);
    if more > 0 {
        found.lines.push(format!("and {more} more"));
    }
    found
}

impl Differences {
    fn add(&mut self, object: &Object, what: String) {
        self.compared.differing += 1;
        self.lines.push(format!("{object}: {what}"));
    }

    fn compare(
        &mut self,
        object: &Object,
        one: &Facts,
        two: &Facts,
        server: &str,
        with_definitions: bool,
    ) {
        let mut what = Vec::new();
        if with_definitions {
            self.compared.definitions += 1;
            if one.definition != two.definition {
                what.push("its definition differs".to_owned());
            }
        }
        match (&one.rows, &two.rows) {
            (Rows::Unreadable(said), _) => {
                what.push(format!("the restored server cannot read it: {said}"));
            }
            (_, Rows::Unreadable(said)) => what.push(format!("{server} cannot read it: {said}")),
            (Rows::LeftOut(why), _) | (_, Rows::LeftOut(why)) => {
                *self.compared.not_compared.entry(why.clone()).or_default() += 1;
            }
            (Rows::Read(one), Rows::Read(two)) => {
                self.compared.tables += 1;
                self.compared.rows += one.rows;
                if one.rows != two.rows {
                    what.push(format!(
                        "{} restored, {} on {server}",
                        counted(one.rows),
                        counted(two.rows)
                    ));
                } else if one != two {
                    what.push(format!("{} in both, with other values", counted(one.rows)));
                }
            }
            (Rows::None, _) | (_, Rows::None) => {}
        }
        if !what.is_empty() {
            self.add(object, what.join("; "));
        }
    }
}

fn counted(rows: u64) -> String {
    format!("{rows} row{}", if rows == 1 { "" } else { "s" })
}
