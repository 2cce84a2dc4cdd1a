//! `binlog`: the archive of a server's binary log.

mod archives;
mod hooks;
mod push;
mod receive;
mod show;
mod table;
mod watched;

use xb_cli::Failure;

use crate::args::binlog::{BinlogArgs, BinlogCommand};
use crate::commands::context::Context;

impl Context {
    pub(crate) fn binlog(&self, args: &mut BinlogArgs) -> Result<(), Failure> {
        match &mut args.command {
            BinlogCommand::Receive(args) => self.receive_binlog(args),
            BinlogCommand::Push(args) => self.push_binlog(args),
            BinlogCommand::List(args) => self.list_archives(args),
            BinlogCommand::Show(args) => self.show_archive(args),
            BinlogCommand::Verify(args) => self.verify_archives(args),
        }
    }
}
