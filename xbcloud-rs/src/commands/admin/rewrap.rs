//! `rewrap`: replaces the key slots of a sealed backup.

use xb_backup::RewrapRequest;
use xb_cli::Failure;

use crate::args::RewrapArgs;
use crate::commands::context::{Context, memory};

impl Context {
    pub(crate) fn rewrap(&self, args: &RewrapArgs) -> Result<(), Failure> {
        let (root, name) = self.resolve(&args.source, &args.common)?;
        let add = args.new.key_slots(&self.log)?;
        if add.is_empty() && args.remove.is_empty() {
            return Err(Failure::usage("no new key slot is given").hint(
                "add --new-key-file, --recipient, --recipients-file, --new-passphrase-file or --new-key-command",
            ));
        }
        let request = RewrapRequest {
            name,
            accept_unvouched: args.accept_unvouched,
            keys: crate::keys::keys(false, &args.identities, &args.keys, &self.log)?,
            add,
            remove: match (args.new.keep, &args.remove[..]) {
                (true, _) => Some(Vec::new()),
                (false, []) => None,
                (false, numbers) => Some(numbers.to_vec()),
            },
            memory: memory(&args.common.run),
        };
        let (slots, _) =
            self.with_progress("rewrap", &args.common.run, None, |_, cancel| async move {
                xb_backup::rewrap(&root, &request, &cancel).await
            })?;
        for slot in slots {
            self.log.info(format!("key slot {}: {slot}", slot.slot));
        }
        Ok(())
    }
}
