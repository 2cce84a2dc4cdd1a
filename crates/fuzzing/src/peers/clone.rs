//! A donor's side of a clone.

use std::collections::BTreeMap;
use std::time::Duration;

use xb_mysql::clone::{CloneError, CloneEvent, Ddl, Recipient, Stage};
use xb_testkit::vectors;

/// Bytes that one message may have.
const LIMIT: usize = 2 << 20;
const DATA: u8 = 3;

/// Any messages as those of a donor. Each has a byte for its connection, its length, and its bytes; of data, only
/// the length, in four bytes. What is whole has every byte of every file once.
pub(crate) fn receive(mut input: &[u8]) {
    let (mut recipient, _) = Recipient::new(Ddl::Waits(Duration::from_secs(1)));
    let mut received: BTreeMap<u32, u64> = BTreeMap::new();
    while let Some((is_auxiliary, message)) = next(&mut input) {
        let result = match is_auxiliary {
            true => recipient.answered(&message),
            false => step(&mut recipient, &message, &mut received),
        };
        if result.is_err() {
            assert!(!recipient.is_whole());
            // An error is final.
            assert!(recipient.receive(&[99]).is_err() && recipient.answered(&[99]).is_err());
            return;
        }
    }
    if recipient.is_whole() {
        for file in recipient.files() {
            assert!(received.get(&file.index).copied().unwrap_or(0) <= file.size);
        }
    }
}

fn step(
    recipient: &mut Recipient,
    message: &[u8],
    received: &mut BTreeMap<u32, u64>,
) -> Result<(), CloneError> {
    match recipient.receive(message)? {
        CloneEvent::Ready => drop(recipient.execute()?),
        CloneEvent::Complete => drop(recipient.leave()?),
        CloneEvent::Block(block) if block.stage == Stage::File => {
            let count = received.entry(block.file).or_default();
            assert_eq!(*count, block.offset);
            *count += block.bytes.len() as u64;
        }
        _ => {}
    }
    Ok(())
}

fn next(input: &mut &[u8]) -> Option<(bool, Vec<u8>)> {
    let (&kind, rest) = input.split_first()?;
    if kind & 2 != 0 {
        let (len, rest) = rest.split_first_chunk()?;
        *input = rest;
        let len = u32::from_le_bytes(*len) as usize % LIMIT;
        return Some((false, vec![DATA; len + 1]));
    }
    let (len, rest) = rest.split_first_chunk()?;
    let (message, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    *input = rest;
    Some((kind & 1 != 0, message.to_vec()))
}

/// A recorded clone, and its beginning without most of what the donor says about itself.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let text = String::from_utf8(vectors::read("mysql/clone-9.7.messages")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('<')).collect();
    let is_needed = |line: &&&str| !line.starts_with("< 06") && !line.starts_with("< 07");
    let short: Vec<&str> = lines.iter().filter(is_needed).copied().collect();
    let seed = |lines: &[&str]| lines.iter().flat_map(|line| message(line)).collect();
    vec![seed(&lines), seed(&short), seed(&short[..short.len().min(40)])]
}

fn message(line: &str) -> Vec<u8> {
    let (side, text) = line.split_once(' ').unwrap();
    if let Some(len) = text.strip_prefix("data ") {
        return [&[2][..], &len.parse::<u32>().unwrap().to_le_bytes()].concat();
    }
    let bytes = base16ct::lower::decode_vec(text).unwrap();
    let len = u16::try_from(bytes.len()).unwrap();
    [&[u8::from(side == "<<")][..], &len.to_le_bytes(), &bytes].concat()
}
