//! The completion scripts of a program, which ask the program itself.

use std::io;

use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

/// The variable in which a script names its shell. It does not begin with the prefix of options.
pub(crate) const VARIABLE: &str = "_XB_COMPLETE";

/// A shell, its completer, and the file of its script as the shell looks for it; `{}` is the program's name.
pub(crate) type Shell = (&'static str, &'static dyn EnvCompleter, &'static str);

pub(crate) const SHELLS: [Shell; 3] =
    [("bash", &Bash, "{}.bash"), ("zsh", &Zsh, "_{}"), ("fish", &Fish, "{}.fish")];

/// Returns the scripts of all shells for a program: shell, name of the file, text.
pub(crate) fn scripts(program: &str) -> io::Result<Vec<(&'static str, String, String)>> {
    let script = |(shell, completer, file): &Shell| {
        let text = match *shell {
            // The script of the library takes the parts of a word for words.
            "bash" => include_str!("completion.bash")
                .replace("NAME", &program.replace('-', "_"))
                .replace("BIN", program)
                .replace("COMPLETER", program)
                .replace("VARIABLE", VARIABLE),
            _ => {
                let mut text = Vec::new();
                completer.write_registration(VARIABLE, program, program, program, &mut text)?;
                String::from_utf8(text).map_err(io::Error::other)?
            }
        };
        let text = match *shell {
            // The first time, zsh runs the file itself in order to complete.
            "zsh" => {
                let function = format!("_clap_dynamic_completer_{}", program.replace('-', "_"));
                format!("{text}[[ $funcstack[1] != _{program} ]] || {function} \"$@\"\n")
            }
            _ => text,
        };
        Ok((*shell, file.replace("{}", program), text))
    };
    SHELLS.iter().map(script).collect()
}
