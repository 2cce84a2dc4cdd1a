//! `binlog show`: transactions of an archive.

use std::io::{self, Write as _};
use std::ops::ControlFlow;

use jiff::Timestamp;
use serde_json::{Value, json};
use xb_backup::{
    ArchiveSearch, FoundTransaction, HistoryBreak, Keys, SearchLine, Searched, choose_archive,
    search_archive,
};
use xb_cli::{Exit, Failure, format_size, printable};

use crate::args::binlog::ArchiveShowArgs;
use crate::commands::context::{Context, resources};
use crate::location::root_place;
use crate::report;

/// Version of the format of `--json`.
const FORMAT: u32 = 1;

impl Context {
    pub(super) fn show_archive(&self, args: &ArchiveShowArgs) -> Result<(), Failure> {
        let root = root_place(args.root.place.as_deref(), &args.common)?;
        let keys: Keys = crate::keys::keys(false, &args.identities, &args.keys, &self.log)?;
        let search = ArchiveSearch {
            since: args.since,
            until: args.until,
            tables: args.table.clone(),
            text: args.text.clone(),
            only_ddl: args.ddl,
        };
        let run = &args.common.run;
        let (json, limit) = (run.json, args.limit);
        let named = args.server.as_deref();
        let work = |session: xb_backup::Session| async move {
            let server = choose_archive(&session, named, None).await?;
            let mut shown = ShowOutput::new(json, limit);
            let searching =
                search_archive(&session, &server, &search, &keys, |line| shown.line(line));
            let searched = searching.await?;
            Ok((server, shown, searched))
        };
        let ((server, shown, Searched { covered, problems, .. }), _) =
            self.with_session("show", run, root, resources(run), work)?;
        let (found, is_limited) = (shown.found, shown.is_limited);
        let last = shown.last.clone();
        report::printed(shown.end(&server, &problems))?;
        if is_limited {
            self.log.warn(format!(
                "only the first {limit} are shown; narrow the search, or raise --limit"
            ));
        }
        if let Some(problem) = problems.first() {
            for problem in &problems {
                self.log.warn(problem);
            }
            return Err(Failure::new(format!("the archive of {server}: {problem}"))
                .stage("search")
                .ending(Exit::Damaged)
                .hint("the list may be incomplete; run `binlog verify`"));
        }
        self.log.info(match (found, last) {
            (0, _) | (_, None) => nothing(covered),
            (1, Some((gtid, is_ddl))) => {
                let ddl = if is_ddl { " --exclude-ddl" } else { "" };
                format!(
                    "the moment before it: `restore --until=before:{gtid}`, single tables: `rescue --until=before:{gtid}`; everything else: `restore --until=latest --exclude-gtid={gtid}{ddl}`"
                )
            }
            (found, Some((gtid, _))) => format!(
                "{found} match: for the moment before the last one, `restore --until=before:{gtid}`, or `rescue` for single tables; before another one, with its GTID"
            ),
        });
        Ok(())
    }
}

/// Says that nothing was found. What a server has just done is not stored yet.
fn nothing(covered: Option<Timestamp>) -> String {
    let searched = covered.map_or_else(String::new, |until| {
        let until = until.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!(", which has everything up to {until}: what came later is stored within --rpo of its receiver")
    });
    format!("no transaction matches in the archive{searched}")
}

/// Output of the command.
struct ShowOutput {
    limit: usize,
    /// The lines of JSON; `None` if text is written at once.
    json: Option<(Vec<FoundTransaction>, Vec<HistoryBreak>)>,
    found: usize,
    /// GTID of the last one, and whether it changes a definition.
    last: Option<(String, bool)>,
    is_limited: bool,
    written: io::Result<()>,
}

impl ShowOutput {
    fn new(json: bool, limit: usize) -> Self {
        let json = json.then(Default::default);
        Self { limit, json, found: 0, last: None, is_limited: false, written: Ok(()) }
    }

    fn line(&mut self, line: SearchLine) -> ControlFlow<()> {
        match line {
            SearchLine::Transaction(_) if self.found == self.limit => {
                self.is_limited = true;
                return ControlFlow::Break(());
            }
            SearchLine::Transaction(found) => {
                self.found += 1;
                self.last = Some((found.gtid.clone(), found.ddl));
                match &mut self.json {
                    Some((all, _)) => all.push(found),
                    None => self.written = print(&found),
                }
            }
            SearchLine::Break(one) => match &mut self.json {
                Some((_, breaks)) => breaks.push(one),
                None => self.written = print_break(&one),
            },
            _ => {}
        }
        match &self.written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn end(self, server: &str, problems: &[String]) -> io::Result<()> {
        self.written?;
        let Some((transactions, breaks)) = self.json else { return Ok(()) };
        let document: Value = json!({
            "format": FORMAT,
            "server": server,
            "transactions": transactions,
            "breaks": breaks,
            "problems": problems,
            "complete": !self.is_limited && problems.is_empty(),
        });
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)
    }
}

fn print(found: &FoundTransaction) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let kind = if found.ddl { "definition".to_owned() } else { format_size(found.bytes) };
    let time = found.time.strftime("%Y-%m-%dT%H:%M:%SZ");
    let position = printable(&found.position);
    writeln!(out, "{time}  {:15}  {position:22}  {kind}", found.gtid)?;
    if !found.tables.is_empty() {
        writeln!(out, "    {}", printable(&found.tables.join(", ")))?;
    }
    if let Some(statement) = &found.statement {
        writeln!(out, "    {}", printable(statement))?;
    }
    Ok(())
}

fn print_break(one: &HistoryBreak) -> io::Result<()> {
    let (kind, position) = (one.kind.to_uppercase(), printable(&one.position));
    let place = if one.kind == "barrier" { "at" } else { "before" };
    writeln!(io::stdout().lock(), "{kind} {place} {position}: {}", printable(&one.reason))
}
