//! Words of a program and its arguments in an option. No shell runs them.

use xb_cli::Failure;

/// Words by which a shell connects programs.
const OF_SHELL: [&str; 7] = ["|", "||", "&", "&&", ";", "<", ">"];
/// Beginnings of words by which a shell sends the output elsewhere.
const REDIRECTIONS: [&str; 5] = [">", "1>", "2>", "&>", "<<"];

/// Splits the text of an option as a shell does.
///
/// # Errors
/// A usage error: a quote is not closed, or a word that is not quoted means something to a shell only. The program would
/// get it as an argument, and say something else.
pub(crate) fn words(option: &str, text: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(text).ok_or_else(|| {
        Failure::usage(format!("{option}: a quote or an escape is not closed")).hint(
            "quote words with spaces as in a shell; the program and its arguments are one line",
        )
    })?;
    // Behind them may be a comment.
    match as_written(text).take(words.len()).find(|word| is_of_shell(word)) {
        Some(word) => Err(Failure::usage(format!(
            "{option}: no shell runs it, so `{word}` would be an argument of the program"
        ))
        .hint(format!(
            "remove it, or write {option} with a shell: sh -c 'PROGRAM ... {word} ...'; if the program needs this argument, quote it"
        ))),
        None => Ok(words),
    }
}

/// The words with their quotes and backslashes: a shell passes on what is quoted, such as the `\;` of `find -exec`.
fn as_written(text: &str) -> impl Iterator<Item = &str> {
    let (mut quote, mut is_escaped) = (None, false);
    let ends_a_word = move |letter: char| {
        let was_escaped = is_escaped;
        is_escaped = !was_escaped && letter == '\\' && quote != Some('\'');
        if was_escaped {
            return false;
        }
        match quote {
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            None => return matches!(letter, ' ' | '\t' | '\n'),
            Some(open) if letter == open => quote = None,
            Some(_) => {}
        }
        false
    };
    text.split(ends_a_word).filter(|word| !word.is_empty())
}

fn is_of_shell(word: &str) -> bool {
    OF_SHELL.contains(&word) || REDIRECTIONS.iter().any(|begin| word.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_do_is_no_argument() {
        for text in
            ["a | gzip", "a 2>/dev/null", "a > b", "a && b", "a 2>&1", "a ; b", "a \"x y\" 'z' | b"]
        {
            let failure = words("--producer", text).unwrap_err();
            assert!(failure.hint_text().is_some_and(|hint| hint.contains("sh -c")), "{text}");
        }
        assert_eq!(words("--producer", "sh -c 'a | b; c'").unwrap(), ["sh", "-c", "a | b; c"]);
        assert_eq!(words("--after", "a --x=1>2 '' b;c").unwrap(), ["a", "--x=1>2", "", "b;c"]);
        assert!(words("--after", "echo \"x").is_err());
    }

    #[test]
    fn what_is_quoted_is_an_argument() {
        for (text, last) in [
            (r"find /backup -mtime +9 -exec rm {} \;", ";"),
            ("find /backup -mtime +9 -exec rm {} ';'", ";"),
            (r#"mail -s "a \" b" '>> done'"#, ">> done"),
            (r#"a \' "|""#, "|"),
            ("a b # | c", "b"),
        ] {
            let found = words("--after", text).unwrap();
            assert_eq!(found.last().map(String::as_str), Some(last), "{text}");
        }
    }
}
