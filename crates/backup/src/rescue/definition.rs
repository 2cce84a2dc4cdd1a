//! The statement that creates a table, as SHOW CREATE TABLE prints it: under another name, and without
//! its foreign keys.

/// A table's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// Columns, keys and checks.
    parts: Vec<Vec<u8>>,
    /// Foreign keys, each as `[CONSTRAINT NAME ]FOREIGN KEY …`.
    pub(super) foreign_keys: Vec<Vec<u8>>,
    /// From the parenthesis that closes the parts.
    options: Vec<u8>,
}

impl Definition {
    /// Reads the answer to SHOW CREATE TABLE for `table`, printed with an empty `sql_mode`; `None` if
    /// it has not the form of a table.
    pub(super) fn read(text: &[u8], table: &str) -> Option<Self> {
        let begin = [b"CREATE TABLE ", &quoted(table)[..], b" ("].concat();
        let text = text.strip_prefix(&begin[..])?;
        let (mut parts, mut foreign_keys) = (Vec::new(), Vec::new());
        let (mut depth, mut start, mut at) = (0_u32, 0, 0);
        let end = loop {
            let byte = *text.get(at)?;
            match byte {
                b'\'' | b'`' | b'"' => at = past_quotes(text, at)?,
                b'(' => depth += 1,
                b')' if depth == 0 => break at,
                b')' => depth -= 1,
                b',' if depth == 0 => {
                    sort_in(&text[start..at], &mut parts, &mut foreign_keys);
                    start = at + 1;
                }
                _ => {}
            }
            at += 1;
        };
        sort_in(&text[start..end], &mut parts, &mut foreign_keys);
        Some(Self { parts, foreign_keys, options: text[end..].to_vec() })
    }

    /// The statement that creates the table under this name, quoted for SQL, without its foreign
    /// keys.
    pub(super) fn create(&self, name: &str) -> Vec<u8> {
        let mut text = format!("CREATE TABLE {name} (\n  ").into_bytes();
        text.extend(self.parts.join(&b",\n  "[..]));
        text.push(b'\n');
        text.extend(&self.options);
        text
    }

    /// Returns whether a server adds this foreign key only while it copies the table: it deletes rows, and a stored column is
    /// computed from one of its columns.
    pub(super) fn needs_copy(&self, key: &[u8]) -> bool {
        let holds = |text: &[u8], what: &[u8]| text.windows(what.len()).any(|part| part == what);
        if !holds(key, b" ON DELETE CASCADE") {
            return false;
        }
        // A virtual column may be in between.
        let mut bases = key_columns(key);
        loop {
            let computed = self.parts.iter().filter_map(|part| {
                let rest = past_name(part)?;
                let name = &part[..part.len() - rest.len()];
                let is_new = !name.is_empty()
                    && holds(rest, b" GENERATED ALWAYS AS (")
                    && !bases.contains(&name)
                    && bases.iter().any(|base| holds(rest, base));
                is_new.then_some((name, holds(rest, b") STORED")))
            });
            let computed: Vec<_> = computed.collect();
            if computed.is_empty() {
                return false;
            }
            if computed.iter().any(|(_, is_stored)| *is_stored) {
                return true;
            }
            bases.extend(computed.into_iter().map(|(name, _)| name));
        }
    }

    /// Returns the first part, or the options, in which another definition of the table differs, with whether it is a
    /// part. The next number of a table is left out, and how it stores times.
    pub(super) fn difference(&self, other: &Self) -> Option<(bool, [String; 2])> {
        let parts = self.parts.len().max(other.parts.len());
        let pairs = (0..parts).map(|n| (true, [self.parts.get(n), other.parts.get(n)]));
        let options = (false, [Some(&self.options), Some(&other.options)]);
        let mut shown = pairs.chain([options]).map(|(is_part, both)| {
            (is_part, both.map(|text| plain(text.map_or(b"", |text| text))))
        });
        shown.find(|(_, [ours, theirs])| ours != theirs)
    }

    /// Name of the storage engine.
    pub(super) fn engine(&self) -> &str {
        let rest = self.options.strip_prefix(b") ENGINE=").unwrap_or_default();
        let is_end = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        std::str::from_utf8(&rest[..end]).unwrap_or_default()
    }

    /// Returns whether a server needs an encryption key for the table, as its options say.
    pub(super) fn needs_key(&self) -> bool {
        let options = String::from_utf8_lossy(&self.options).to_lowercase();
        let has = |option: &str, value: &str| {
            [format!("`{option}`={value}"), format!("`{option}`='{value}'")]
                .iter()
                .any(|text| options.contains(text))
        };
        has("encrypted", "yes")
            || (options.contains("`encryption_key_id`=") && !has("encrypted", "no"))
    }

    /// Returns whether the default value of a column may come from a sequence.
    pub(super) fn uses_sequence(&self) -> bool {
        let takes =
            |part: &[u8]| part.windows(8).any(|text| text.eq_ignore_ascii_case(b"nextval("));
        self.parts.iter().any(|part| takes(part))
    }
}

/// A part or the options of a definition, without what may differ.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.replace(" /* mariadb-5.3 */", "").replace(" /* mysql-5.6 */", "");
    match text.split_once(" AUTO_INCREMENT=") {
        Some((begin, rest)) if begin.starts_with(')') => {
            format!("{begin}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => text,
    }
}

/// A name for SQL.
pub(super) fn quoted(name: &str) -> Vec<u8> {
    format!("`{}`", name.replace('`', "``")).into_bytes()
}

fn sort_in(part: &[u8], parts: &mut Vec<Vec<u8>>, foreign_keys: &mut Vec<Vec<u8>>) {
    let part = part.trim_ascii();
    match is_foreign_key(part) {
        true => foreign_keys.push(part.to_vec()),
        false => parts.push(part.to_vec()),
    }
}

fn is_foreign_key(part: &[u8]) -> bool {
    let rest = match part.strip_prefix(b"CONSTRAINT ") {
        Some(named) => past_name(named).unwrap_or_default(),
        None => part,
    };
    rest.trim_ascii_start().starts_with(b"FOREIGN KEY ")
}

/// The name of a foreign key; `None` if the server chooses one.
pub(super) fn key_name(key: &[u8]) -> Option<String> {
    let named = key.strip_prefix(b"CONSTRAINT ")?;
    let name = named.get(..named.len() - past_name(named)?.len())?;
    let name = name.strip_prefix(b"`")?.strip_suffix(b"`")?;
    Some(std::str::from_utf8(name).ok()?.replace("``", "`"))
}

/// The columns of a foreign key, quoted.
fn key_columns(key: &[u8]) -> Vec<&[u8]> {
    let rest = match key.strip_prefix(b"CONSTRAINT ") {
        Some(named) => past_name(named).unwrap_or_default().trim_ascii_start(),
        None => key,
    };
    let mut columns = Vec::new();
    let mut rest = rest.strip_prefix(b"FOREIGN KEY (");
    while let Some(text) = rest {
        let Some(after) = past_name(text) else { break };
        columns.push(&text[..text.len() - after.len()]);
        rest = after.strip_prefix(b",");
    }
    columns
}

/// A table, with its schema if it is another one.
type TableElsewhere = (Option<String>, String);

/// The table to which a foreign key refers, and the text of the key without its name. `None` if it has a form that is not
/// known.
pub(super) fn referenced(key: &[u8]) -> Option<(TableElsewhere, &[u8])> {
    const WORD: &[u8] = b" REFERENCES ";
    let rest = match key.strip_prefix(b"CONSTRAINT ") {
        Some(named) => past_name(named)?.trim_ascii_start(),
        None => key,
    };
    let mut at = 0;
    while !rest.get(at..)?.starts_with(WORD) {
        at = if rest[at] == b'`' { past_quotes(rest, at)? } else { at } + 1;
    }
    let names = rest.get(at + WORD.len()..)?;
    let after = past_name(names)?;
    let name = |text: &[u8]| {
        let text = text.strip_prefix(b"`")?.strip_suffix(b"`")?;
        Some(std::str::from_utf8(text).ok()?.replace("``", "`"))
    };
    let first = name(&names[..names.len() - after.len()])?;
    let table = match after.strip_prefix(b".") {
        None => (None, first),
        Some(second) => {
            let length = second.len() - past_name(second)?.len();
            (Some(first), name(&second[..length])?)
        }
    };
    Some((table, rest))
}

/// Returns the text after the quoted name with which it begins.
fn past_name(text: &[u8]) -> Option<&[u8]> {
    let mut end = 0;
    while text.get(end) == Some(&b'`') {
        end = past_quotes(text, end)? + 1;
    }
    text.get(end..)
}

/// The last byte of the quoted text that begins at `at`. A doubled quote begins another one, which
/// makes no difference here. Strings have escapes, names have not.
fn past_quotes(text: &[u8], at: usize) -> Option<usize> {
    let quote = *text.get(at)?;
    let mut end = at + 1;
    loop {
        match *text.get(end)? {
            byte if byte == quote => return Some(end),
            b'\\' if quote != b'`' => end += 2,
            _ => end += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: &str = "CREATE TABLE `or``ders` (\n  `id` int(11) NOT NULL,\n  \
         `d` decimal(10,2) GENERATED ALWAYS AS (`total` * 2) STORED,\n  \
         `c` varchar(10) DEFAULT 'a\\',\\'(' COMMENT 'x\\n  CONSTRAINT `y` FOREIGN KEY ('',',\n  \
         PRIMARY KEY (`id`),\n  CONSTRAINT `of ``(),x` FOREIGN KEY (`a`,`b`) REFERENCES `p` (`a`,`b`) ON DELETE CASCADE,\n  \
         CONSTRAINT `FOREIGN KEY ` CHECK (`d` > 0)\n) ENGINE=InnoDB COMMENT=')'\n PARTITION BY HASH (`id`)";

    #[test]
    fn foreign_keys_are_told_from_all_that_looks_like_them() {
        let found = Definition::read(ORDERS.as_bytes(), "or`ders").unwrap();
        assert_eq!(key_name(&found.foreign_keys[0]).as_deref(), Some("of `(),x"));
        let key = &found.foreign_keys[0][..];
        let rest = "FOREIGN KEY (`a`,`b`) REFERENCES `p` (`a`,`b`) ON DELETE CASCADE";
        assert_eq!(referenced(key), Some(((None, "p".to_owned()), rest.as_bytes())));
        let other = b"FOREIGN KEY (` REFERENCES `) REFERENCES `s``.`.`p.` (`a`)";
        let place = (Some("s`.".to_owned()), "p.".to_owned());
        assert_eq!(referenced(other), Some((place, &other[..])));
        assert_eq!(referenced(b"FOREIGN KEY (`a`) REFERENCES `p"), None);
        let keys: Vec<_> =
            found.foreign_keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        assert_eq!(
            keys,
            [
                "CONSTRAINT `of ``(),x` FOREIGN KEY (`a`,`b`) REFERENCES `p` (`a`,`b`) ON DELETE CASCADE"
            ]
        );
        assert_eq!(found.parts.len(), 5);
        assert_eq!(key_columns(key), [b"`a`", b"`b`"]);
        assert!(!found.needs_copy(key));
        let cascades = |column: &str| {
            found.needs_copy(
                format!("FOREIGN KEY (`a`,`{column}`) REFERENCES `p` (`a`,`b`) ON DELETE CASCADE")
                    .as_bytes(),
            )
        };
        assert!(cascades("total") && !cascades("c") && !cascades("tot"));
        let between = ORDERS.replace(
            "`c` varchar(10)",
            "`total` int GENERATED ALWAYS AS (`t` + 1) VIRTUAL,  `c` varchar(10)",
        );
        let between = Definition::read(between.as_bytes(), "or`ders").unwrap();
        let key = b"CONSTRAINT `x` FOREIGN KEY (`t`) REFERENCES `p` (`t`) ON DELETE CASCADE";
        assert!(between.needs_copy(key) && !found.needs_copy(key));
        assert_eq!(found.engine(), "InnoDB");
        let key = format!("  {},\n", keys[0]);
        let expected = ORDERS.replace("`or``ders`", "`s`.`n`").replace(&key, "");
        assert_eq!(String::from_utf8(found.create("`s`.`n`")).unwrap(), expected);
    }

    #[test]
    fn definitions_differ_in_all_but_their_numbers_and_forms_of_times() {
        let read = |text: &str| Definition::read(text.as_bytes(), "t").unwrap();
        let text = "CREATE TABLE `t` (\n  `a` timestamp /* mariadb-5.3 */ NOT NULL,\n  KEY (`a`)\n) ENGINE=InnoDB AUTO_INCREMENT=7 COMMENT='x'";
        let same = text.replace(" /* mariadb-5.3 */", "").replace("=7", "=12");
        let first = read(text);
        assert_eq!(first.difference(&read(&same)), None);
        for (from, to, is_part) in
            [("NOT NULL", "NULL", true), (",\n  KEY (`a`)", "", true), ("'x'", "'y'", false)]
        {
            let other = read(&text.replace(from, to));
            assert_eq!(first.difference(&other).unwrap().0, is_part, "{from}");
        }
    }

    #[test]
    fn a_foreign_or_cut_definition_is_refused() {
        let read = |text: &str, name: &str| Definition::read(text.as_bytes(), name);
        assert_eq!(read(ORDERS, "orders"), None);
        assert_eq!(read("CREATE VIEW `v` AS SELECT 1", "v"), None);
        for end in 0..ORDERS.find("ENGINE").unwrap() - 2 {
            assert_eq!(read(&ORDERS[..end], "or`ders"), None, "{end}");
        }
    }
}
