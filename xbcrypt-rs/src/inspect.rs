//! `inspect`: describes a file as far as possible without a key.

use std::fs::File;
use std::io::{self, BufReader, Write};

use serde_json::{Value, json};
use xb_cli::{Failure, FailureContext as _, format_count, format_size};
use xb_pipeline::filter::{Facts, FactsError, NativeFacts, XbcryptFacts, facts};

use crate::args::InspectArgs;
use crate::{hints, inspect_key};

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    xb_cli::refuse_closed_output("leave standard output open, or redirect it: > FILE")?;
    let named = |error: &FactsError| {
        let failure = Failure::new(format!("{}: {error}", args.file.display())).stage("inspect");
        match error {
            FactsError::KeysObject(error) => failure.hint(hints::keys_object(error)),
            _ => failure,
        }
    };
    let file = File::open(&args.file).map_err(|error| named(&error.into()))?;
    let (text, value, problem) = match facts(BufReader::new(file)) {
        Ok(Facts::Native(facts)) => native(&facts),
        Ok(Facts::Xbcrypt(facts)) => xbcrypt(&facts),
        Err(error @ FactsError::Unknown { .. }) => match inspect_key::key(&args.file) {
            Some((text, value)) => (text, value, None),
            None => return Err(named(&error)),
        },
        Err(error) => return Err(named(&error)),
        Ok(_) => {
            return Err(Failure::new("this version cannot inspect it further").stage("inspect"));
        }
    };
    let mut out = io::stdout().lock();
    if args.json { writeln!(out, "{value}") } else { out.write_all(text.as_bytes()) }
        .stage("output")?;
    match problem {
        None => Ok(()),
        Some(problem) => Err(Failure::new(format!("{}: {problem}", args.file.display()))
            .stage("inspect")
            .hint("the file is truncated or damaged; fetch it again")),
    }
}

type Field = (String, Value, Option<String>);

/// The name as in `--compress`.
fn codec_name(codec: xb_pipeline::filter::Codec) -> &'static str {
    use xb_pipeline::filter::Codec;
    match codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        Codec::Snappy => "snappy",
        Codec::Zlib => "gzip",
        Codec::Zstd => "zstd",
        _ => "unknown",
    }
}

fn native(facts: &NativeFacts) -> Field {
    let header = &facts.header;
    let problem = facts.trailer.as_ref().err().map(ToString::to_string);
    let slots: Vec<_> = facts.keys.iter().flat_map(|keys| keys.slots()).collect();
    let trailer = facts.trailer.as_ref().ok();
    let value = json!({
        "format": "native",
        "version": format!("1.{}", header.minor()),
        "stream": header.id().to_string(),
        "sealed": header.is_sealed(),
        "cipher": header.is_sealed().then_some("aes-256-gcm"),
        "frame_bytes": header.max_plain(),
        "codec": facts.codec.map(codec_name),
        "keys_in_front": facts.keys.is_some(),
        "keys_bytes": facts.stream_start(),
        "key_slots": slots.iter().map(|slot| json!({
            "number": slot.slot, "kind": kind(slot), "id": slot.id,
        })).collect::<Vec<_>>(),
        "file_bytes": facts.file_len,
        "body_bytes": trailer.map(|trailer| trailer.body_len),
        "trailer": trailer.is_some(),
        "problem": problem,
    });
    let mut lines = vec![format!("native stream, format 1.{}", header.minor())];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<8}  {text}"));
    line("stream", header.id().to_string());
    if header.is_sealed() {
        line("seal", "AES-256-GCM, authenticated; opening it detects any change".to_owned());
    } else {
        line("seal", "none; only accidental damage is detected".to_owned());
    }
    line(
        "codec",
        match facts.codec {
            Some(codec) => codec_name(codec).to_owned(),
            None if header.is_sealed() => "hidden by the seal".to_owned(),
            None => "no data".to_owned(),
        },
    );
    match &facts.keys {
        None if header.is_sealed() => line("opens", "with keys stored elsewhere".to_owned()),
        None => {}
        Some(_) => slots.iter().for_each(|slot| {
            line(&format!("key slot {}", slot.slot), slot.to_string());
        }),
    }
    line("size", format!("{} ({} bytes)", format_size(facts.file_len), facts.file_len));
    match trailer {
        Some(trailer) => {
            line("body", format!("{} bytes before the seal", trailer.body_len));
            line("end", "trailer present and correct".to_owned());
        }
        None => line("end", "INCOMPLETE".to_owned()),
    }
    (lines.join("\n") + "\n", value, problem)
}

/// The kind as in the keys object.
fn kind(slot: &xb_encryptor::SlotInfo) -> String {
    use xb_encryptor::SlotKind;
    match &slot.kind {
        SlotKind::KeyFile => "key-file",
        SlotKind::Recipient => "age-recipient",
        SlotKind::Passphrase => "age-passphrase",
        SlotKind::Command => "command",
        SlotKind::Other(name) => name,
        _ => "unknown",
    }
    .to_owned()
}

fn xbcrypt(facts: &XbcryptFacts) -> Field {
    let problem = facts.damage.as_ref().map(ToString::to_string);
    let chunks: u64 = facts.chunks.iter().sum();
    let value = json!({
        "format": "xbcrypt",
        "chunks": chunks,
        "versions": { "1": facts.chunks[0], "2": facts.chunks[1], "3": facts.chunks[2] },
        "not_encrypted": facts.not_encrypted,
        "plain_bytes": facts.plain_bytes,
        "largest_chunk": facts.largest,
        "file_bytes": facts.file_len,
        "guards": "accident only",
        "problem": problem,
    });
    let mut lines = vec![format!("xbcrypt file, {}", format_count(chunks, "chunk"))];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<8}  {text}"));
    for (version, count) in facts.chunks.iter().enumerate().filter(|(_, count)| **count > 0) {
        line("version", format!("{}: {}", version + 1, format_count(*count, "chunk")));
    }
    if facts.not_encrypted > 0 {
        line("open", format!("{} NOT ENCRYPTED", format_count(facts.not_encrypted, "chunk")));
    }
    line("plain", format!("{} ({} bytes)", format_size(facts.plain_bytes), facts.plain_bytes));
    line("largest", format!("{} bytes in a chunk", facts.largest));
    line("size", format!("{} ({} bytes)", format_size(facts.file_len), facts.file_len));
    line("guards", "accidental damage only; chunks can be forged, swapped or removed".to_owned());
    (lines.join("\n") + "\n", value, problem)
}
