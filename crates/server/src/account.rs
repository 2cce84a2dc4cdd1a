//! An account of our own on a server whose passwords we do not know.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base16ct::lower::encode_string;
use xb_mysql::Account;
use zeroize::Zeroizing;

/// Beginning of its name.
const NAME: &str = "xb-private-";

/// Writes the statements that create an account with all rights into a file that only this user can
/// read, for the server to run when it starts.
///
/// # Errors
/// If there are no random numbers, or the file cannot be written.
pub(crate) fn make(file: &Path) -> io::Result<Account> {
    let random = |length| {
        let mut bytes = vec![0; length];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok::<_, io::Error>(encode_string(&bytes))
    };
    let user = format!("{NAME}{}", random(8)?);
    // With what plugins that judge passwords may ask for.
    let password = Zeroizing::new(format!("Aa1!{}", random(32)?));
    // The server reads one statement a line.
    let text = Zeroizing::new(format!(
        "DROP USER IF EXISTS '{user}'@'localhost';\nCREATE USER '{user}'@'localhost' IDENTIFIED BY '{}';\n\
         GRANT ALL PRIVILEGES ON *.* TO '{user}'@'localhost' WITH GRANT OPTION;\n",
        *password
    ));
    let mut options = File::options();
    let mut out = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
    out.write_all(text.as_bytes())?;
    let password = Zeroizing::new(password.as_bytes().to_vec());
    Ok(Account { user: user.into_bytes(), password, ..Account::default() })
}

/// The statement that removes the account.
pub(crate) fn drop_statement(account: &Account) -> String {
    format!("DROP USER IF EXISTS '{}'@'localhost'", String::from_utf8_lossy(&account.user))
}
