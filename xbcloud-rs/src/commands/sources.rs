//! Sources of options besides the command line.

use xb_cli::{HelpTopic, Repositories, Sources};

/// Options that the help of a command shows only on request.
const TOPICS: [HelpTopic; 8] = [
    HelpTopic {
        name: "backup",
        headings: &["Backup", "Keys of the run"],
        about: "how the backup is made and opened",
    },
    HelpTopic {
        name: "producer",
        headings: &["Producer"],
        about: "messages of the backup program, its locks, spool",
    },
    HelpTopic {
        name: "clone",
        headings: &["Clone of MySQL"],
        about: "a MySQL server that is cloned, instead of a backup program",
    },
    HelpTopic {
        name: "input",
        headings: &["Input", "Classic layout"],
        about: "end and dialect of the stream, options of the classic layout",
    },
    HelpTopic {
        name: "server",
        headings: &["Private server", "Replay"],
        about: "the private server on the restored files, and what it replays",
    },
    HelpTopic {
        name: "stores",
        headings: &["Store", "S3", "Google Cloud Storage", "Azure Blob Storage", "Connection"],
        about: "the store, its address and credentials",
    },
    HelpTopic { name: "prices", headings: &["Prices"], about: "prices of the store" },
    HelpTopic { name: "common", headings: &["Run"], about: "parallelism, memory, retries, output" },
];

/// Use of groups such as `[xbcloud.shop]` as `@shop`.
const REPOSITORIES: Repositories = Repositories {
    place: "root",
    name: "repository",
    rivals: &["storage"],
    options: &["like"],
    destination_options: &["copy-to"],
    destination_commands: &["copy"],
    destination_prefix: "to-",
    folder: "/etc/xbcloud-rs",
    written: &["retain", "retain-mode"],
};

/// The sources; `fallbacks` are variables of other programs.
pub(crate) fn sources<'a>(fallbacks: &'a [(&'a str, &'a [&'a str])], stock: bool) -> Sources<'a> {
    Sources {
        groups: &["xbcloud"],
        environment: Some("XBCLOUD_"),
        fallbacks,
        topics: &TOPICS,
        // A name of the stock tool may begin with @.
        repositories: (!stock).then_some(&REPOSITORIES),
    }
}
