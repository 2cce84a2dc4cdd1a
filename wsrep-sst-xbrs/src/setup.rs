//! Setup of a transfer or a check: the option files, read for the server's arguments.

use xb_cli::OptionFilePaths;
use xb_sst::{
    Args, CancelToken, Context, ErrorLog, Layout, OptionFiles, Server, ServerCredentials, Settings,
    options_of_server,
};

/// Reads the option files as this node's server does, and logs what was skipped in them.
pub(crate) fn option_files(
    args: &Args,
    error_log: &ErrorLog,
    cancel: &CancelToken,
) -> Result<OptionFiles, String> {
    let suffix = args.defaults.suffix.as_deref();
    let (options, warnings) = xb_cli::read_groups(
        &OptionFilePaths::usual(),
        args.defaults.file.as_deref(),
        args.defaults.extra.as_deref(),
        |group| OptionFiles::wants(group, args.product, suffix),
    )
    .map_err(|error| error.to_string())?;
    warnings.iter().for_each(|warning| error_log.warn(warning));
    let options = options.into_iter().map(|option| (option.group, option.key, option.value));
    Ok(options_of_server(OptionFiles::new(options, args.product, suffix), args, cancel))
}

/// Puts together everything that is known at the start of a transfer or a check, and logs the settings.
pub(crate) fn context(
    args: Args,
    files: &OptionFiles,
    credentials: ServerCredentials,
    error_log: &ErrorLog,
    cancel: &CancelToken,
) -> Result<Context, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ServerCredentials { login, remote_auth } = credentials;
    let settings = Settings::read(&args, files, login, cores).map_err(|error| error.to_string())?;
    settings.remarks.iter().for_each(|remark| error_log.warn(remark));
    error_log.info(settings.describe());
    let layout = Layout::find(&args, files, &settings.keep)
        .map_err(|error| format!("cannot locate the data: {error}"))?;
    let server = Server::new(std::io::stdout(), args.progress);
    Ok(Context {
        settings,
        layout,
        cancel: cancel.clone(),
        error_log: error_log.clone(),
        server,
        remote_auth,
        notify_socket: std::env::var_os("NOTIFY_SOCKET"),
        program: format!("xbrs {}", env!("CARGO_PKG_VERSION")),
        report: None,
        args,
    })
}
