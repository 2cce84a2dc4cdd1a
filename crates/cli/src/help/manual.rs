//! Man pages and completion scripts, for packages.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;

use crate::help::scripts::scripts;
use crate::subcommand::build_whole;

/// Writes the man pages of a program and its subcommands to `folder/man1`, and its completions to
/// `folder/SHELL` for bash, zsh and fish. Existing files are overwritten.
///
/// # Errors
/// Any error of creating the folders and files.
pub fn write_manual(command: &Command, folder: &Path) -> io::Result<()> {
    let pages = folder.join("man1");
    fs::create_dir_all(&pages)?;
    // Help texts begin in the imperative; `help` as a page of its own would say nothing.
    let mut command = command.clone().disable_help_subcommand(true);
    build_whole(&mut command);
    let name = command.get_name().to_owned();
    clap_mangen::generate_to(with_all_texts(command), &pages)?;
    for (shell, file, text) in scripts(&name)? {
        let folder = folder.join(shell);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(file), text)?;
    }
    Ok(())
}

/// The command, with the text of every option: a page leaves out the texts of those that `-h` does not show.
fn with_all_texts(command: Command) -> Command {
    let mut command = command.mut_args(|arg| arg.hide_short_help(false));
    for inner in command.get_subcommands_mut() {
        *inner = with_all_texts(std::mem::take(inner));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_and_every_shell_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let command = Command::new("tool")
            .subcommand(
                Command::new("put")
                    .arg(clap::arg!(--fast "Skip the rest"))
                    .arg(clap::arg!(--rare "Only in long help").hide_short_help(true)),
            )
            .subcommand(Command::new("secret").hide(true));
        write_manual(&command, folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("man1/tool-put.1")).unwrap();
        assert!(page.contains("Skip the rest") && page.contains("Only in long help"), "{page}");
        assert!(folder.path().join("man1/tool.1").is_file());
        assert!(!folder.path().join("man1/tool-secret.1").exists());
        for script in ["bash/tool.bash", "zsh/_tool", "fish/tool.fish"] {
            let text = fs::read_to_string(folder.path().join(script)).unwrap();
            assert!(text.contains("tool --"), "{script}: {text}");
        }
    }
}
