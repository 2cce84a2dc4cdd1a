//! Setup of a transfer or a check: the option files, read for the server's arguments.

use xb_cli::OptionFilePaths;
use xb_sst::{Args, CancelToken, Context, ErrorLog, Handed, Layout, OptionFiles, Server, Settings};

/// Reads the option files; `handed` returns the credentials.
pub(crate) fn context(
    args: Args,
    talk: &ErrorLog,
    cancel: &CancelToken,
    handed: impl FnOnce(&Args, &OptionFiles) -> Handed,
) -> Result<Context, String> {
    let suffix = args.defaults.suffix.clone();
    let (options, warnings) = xb_cli::read_groups(
        &OptionFilePaths::usual(),
        args.defaults.file.as_deref(),
        args.defaults.extra.as_deref(),
        |group| OptionFiles::wants(group, suffix.as_deref()),
    )
    .map_err(|error| error.to_string())?;
    warnings.iter().for_each(|warning| talk.warn(warning));
    let options = options.into_iter().map(|option| (option.group, option.key, option.value));
    let files = OptionFiles::new(options, suffix.as_deref());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let Handed { login, remote_auth } = handed(&args, &files);
    let settings =
        Settings::read(&args, &files, login, cores).map_err(|error| error.to_string())?;
    settings.remarks.iter().for_each(|remark| talk.warn(remark));
    talk.info(settings.describe());
    let layout =
        Layout::find(&args, &files).map_err(|error| format!("cannot locate the data: {error}"))?;
    let server = Server::new(std::io::stdout(), args.progress);
    Ok(Context {
        settings,
        layout,
        cancel: cancel.clone(),
        talk: talk.clone(),
        server,
        remote_auth,
        notify_socket: std::env::var_os("NOTIFY_SOCKET"),
        program: format!("xbrs {}", env!("CARGO_PKG_VERSION")),
        report: None,
        args,
    })
}
