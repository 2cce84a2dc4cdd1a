//! The filter: bytes in, bytes out.

use xb_cli::{
    Failure, FailureContext as _, Input, Log, Progress, ProgressOptions, Secret, Signals, Snapshot,
    env_first, format_duration, format_rate, format_size, sealing,
};
use xb_compressor::{Algorithm as Codec, AlgorithmError};
use xb_encryptor::xbcrypt::{Algorithm, ChunkSize, Cipher, Limits};
use xb_encryptor::{Backend, KeyBytes};
use xb_pipeline::filter::{
    FileKind, OpenFile, ProbedSource, SealFile, XbcryptRead, XbcryptWrite, look, open_file,
    seal_file, xbcrypt_decrypt, xbcrypt_encrypt,
};
use xb_pipeline::{Observer, Wait};

use crate::args::{CommandLine, Format};
use crate::hints;
use crate::output::Output;

/// Default of `--read-buffer-size`.
const READ_BUFFER: u64 = 10 << 20;
/// Memory limit for trying a passphrase, in bytes: twice what `age -p` uses.
pub(crate) const PASSPHRASE_MEMORY: u64 = 512 << 20;

type Source = ProbedSource<xb_cli::UntilInterrupted>;

pub(crate) fn run(line: &CommandLine, stock: bool, log: &Log) -> Result<(), Failure> {
    line.check()?;
    let work = Work::of(line, stock, log)?;
    if line.input.is_none() {
        xb_cli::refuse_terminal_input("give an input file: xbcrypt-rs -i FILE, or < FILE")?;
    }
    // Standard output needs no cleanup, and its reader notices the early end.
    let (mut output, _signals) = match &line.output {
        None => {
            xb_cli::refuse_terminal_output("give an output file: xbcrypt-rs -o FILE, or > FILE")?;
            (Output::stdout()?, None)
        }
        Some(path) => {
            let signals = Signals::catch(|_| ()).stage("start")?;
            (Output::create(path)?, Some(signals))
        }
    };
    let input = match &line.input {
        None => Input::stdin().stage("input")?,
        Some(path) => Input::open(path).map_err(|error| {
            Failure::new(format!("{}: {error}", path.display()))
                .stage("input")
                .hint("check its name and permissions")
        })?,
    };
    let observer = Observer::default();
    let total = input.len();
    let options =
        ProgressOptions { enabled: !stock && !line.no_progress, ..ProgressOptions::default() };
    let drawn = observer.clone();
    let what = if line.decrypt { "decrypt" } else { "encrypt" };
    let progress =
        Progress::start(log, what, options, move || snapshot(&drawn, total)).stage("start")?;
    let outcome = work.run(input, &mut output, &observer);
    let end = progress.finish();
    outcome?;
    output.finish()?;

    let seconds = end.elapsed.as_secs_f64().max(0.001);
    let counted = observer.snapshot();
    log.event(
        "done",
        &serde_json::json!({ "bytes": counted.bytes, "written": counted.stored, "seconds": seconds }),
    );
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let rate = format_rate(counted.bytes as f64 / seconds);
    log.verbose(format_args!(
        "{} in {} ({rate})",
        format_size(counted.bytes),
        format_duration(end.elapsed)
    ));
    Ok(())
}

fn snapshot(observer: &Observer, total: Option<u64>) -> Snapshot {
    let now = observer.snapshot();
    let stage = |wait| match wait {
        Wait::Source => "input",
        Wait::Workers => "cpu",
        Wait::Sink => "output",
    };
    Snapshot {
        done: now.bytes,
        total,
        stored: Some(now.stored),
        slowest_stage: now.slowest_stage.map(|wait| stage(wait).to_owned()),
        ..Snapshot::default()
    }
}

/// The work to do, with every option checked.
enum Work {
    Encrypt(XbcryptWrite),
    Seal { key_slots: xb_encryptor::KeySlots, compress: Codec, threads: usize, raw: bool },
    Decrypt(Decrypt),
}

impl Work {
    fn of(line: &CommandLine, stock: bool, log: &Log) -> Result<Self, Failure> {
        let threads = line.threads(stock, log);
        if line.decrypt {
            return Ok(Self::Decrypt(Decrypt::of(line, stock, threads, log)?));
        }
        if line.format == Some(Format::Native) {
            return seal(line, threads, log);
        }
        let key = line.keys().key(log)?.map_or_else(key_from_environment, |key| Ok(Some(key)))?;
        let algorithm = match (line.encrypt_algo, &key) {
            (Some(algorithm), _) => algorithm,
            (None, Some(_)) if !stock => {
                return Err(Failure::usage("a key is given, but no encryption algorithm").hint(
                    "add --encrypt-algo=AES256; without an algorithm, the stock tool does not encrypt",
                ));
            }
            (None, _) => {
                log.warn("the output is not encrypted: the algorithm is NONE");
                Algorithm::None
            }
        };
        let chunk = line.encrypt_chunk_size.map_or(Ok(ChunkSize::default()), |size| {
            ChunkSize::new(size.bytes())
                .map_err(|error| Failure::usage(format!("--encrypt-chunk-size: {error}")))
        })?;
        if chunk.was_raised() {
            log.warn(format_args!("--encrypt-chunk-size is too small, using {}", chunk.get()));
        }
        let block = line.read_buffer_size.map_or(READ_BUFFER, |size| size.bytes());
        if block == 0 {
            return Err(Failure::usage("--read-buffer-size must be at least 1"));
        }
        let cipher = cipher(algorithm, key.as_ref())?;
        Ok(Self::Encrypt(XbcryptWrite { cipher, chunk, block, threads }))
    }

    fn run(self, input: Input, output: &mut Output, observer: &Observer) -> Result<(), Failure> {
        let source = input.until_interrupted();
        match self {
            Self::Encrypt(settings) => xbcrypt_encrypt(source, output, settings, observer)
                .map_err(|error| hints::xbcrypt_failure("encrypt", &error)),
            Self::Seal { key_slots, compress, threads, raw } => {
                let settings = SealFile { key_slots: &key_slots, compress, threads, raw };
                seal_file(source, output, &settings, observer)
                    .map(|_| ())
                    .map_err(|error| hints::seal_failure(&error))
            }
            Self::Decrypt(work) => {
                let (kind, source) = look(source).stage("input")?;
                work.run(&kind, source, output, observer)
            }
        }
    }
}

fn seal(line: &CommandLine, threads: usize, log: &Log) -> Result<Work, Failure> {
    for (given, name) in [
        (line.encrypt_chunk_size.is_some(), "--encrypt-chunk-size"),
        (line.read_buffer_size.is_some(), "--read-buffer-size"),
    ] {
        if given {
            log.warn(format_args!("{name} does not work in the native format"));
        }
    }
    let compress = line.compress.as_deref().unwrap_or("none").parse();
    let compress =
        compress.map_err(|error: AlgorithmError| Failure::usage(format!("--compress: {error}")))?;
    let mut key_slots = line.keys().key_slots(&line.recipients, log)?;
    if key_slots.is_empty() {
        key_slots.key = key_from_environment()?.map(sealing).transpose()?;
    }
    if key_slots.is_empty() {
        return Err(Failure::usage(
            "no key or recipient is given, so the output could never be opened",
        )
        .hint(
            "add -f KEYFILE, --recipient, --recipients-file, --passphrase-file or --key-command",
        ));
    }
    Ok(Work::Seal { key_slots, compress, threads, raw: line.raw })
}

/// Reads the key from the environment. Options take precedence, so call this only without a key.
fn key_from_environment() -> Result<Option<KeyBytes>, Failure> {
    const NAME: &str = "XBCRYPT_ENCRYPTION_KEY";
    let text = env_first(&[NAME]).map(Secret::new);
    text.map(|text| KeyBytes::from_text(text.expose().as_bytes()))
        .transpose()
        .map_err(|error| Failure::usage(format!("{NAME}: {error}")))
}

fn cipher(algorithm: Algorithm, key: Option<&KeyBytes>) -> Result<Cipher, Failure> {
    Cipher::new(algorithm, key, Backend::default()).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("give it with -f KEYFILE; create one with: xbcrypt-rs keygen -o KEYFILE")
    })
}

/// Decryption of input in either format.
struct Decrypt {
    format: Option<Format>,
    /// As requested; the stock tool's default is NONE.
    algorithm: Option<Algorithm>,
    key: Option<KeyBytes>,
    keys: xb_encryptor::Keys,
    native_only: Option<&'static str>,
    allow_unhashed: bool,
    threads: usize,
    stock: bool,
    log: Log,
}

impl Decrypt {
    fn of(line: &CommandLine, stock: bool, threads: usize, log: &Log) -> Result<Self, Failure> {
        let options = line.keys();
        let key = options.key(log)?;
        // Read only once, because the key may come from a FIFO. The format decides on its length
        // later.
        let others = xb_cli::KeyOptions { encrypt_key_file: None, encrypt_key: None, ..options };
        let keys = others.keys(&line.identities, log)?;
        // The environment is used only if no key option is given.
        let key = match key {
            None if keys.is_empty() => key_from_environment()?,
            given => given,
        };
        Ok(Self {
            format: line.format,
            algorithm: line.encrypt_algo.or(stock.then_some(Algorithm::None)),
            key,
            keys,
            native_only: line.native_only(),
            // A call by the stock tool's name accepts what the stock tool accepts.
            allow_unhashed: line.allow_unhashed || stock,
            threads,
            stock,
            log: log.clone(),
        })
    }

    fn run(
        self,
        kind: &FileKind,
        source: Source,
        output: &mut Output,
        observer: &Observer,
    ) -> Result<(), Failure> {
        let native = matches!(kind, FileKind::Native | FileKind::NativeStream);
        match self.format {
            Some(Format::Native) => self.native(source, output, observer),
            None if native => self.native(source, output, observer),
            Some(Format::Xbcrypt) | None => self.xbcrypt(kind, source, output, observer),
        }
    }

    fn native(
        mut self,
        source: Source,
        output: &mut Output,
        observer: &Observer,
    ) -> Result<(), Failure> {
        self.keys.key = self.key.take().map(sealing).transpose()?;
        let settings = OpenFile { threads: self.threads, max_memory: PASSPHRASE_MEMORY };
        open_file(source, output, &self.keys, settings, observer)
            .map(|_| ())
            .map_err(|error| hints::open_failure(&error))
    }

    fn xbcrypt(
        self,
        kind: &FileKind,
        source: Source,
        output: &mut Output,
        observer: &Observer,
    ) -> Result<(), Failure> {
        if let Some(what) = self.native_only {
            return Err(Failure::new(format!("{what} cannot open the xbcrypt format"))
                .stage("decrypt")
                .hint("the input is not a native file; give the key that it was made with: -f KEYFILE"));
        }
        let algorithm = self.algorithm.unwrap_or(match self.key {
            // All three names mean AES with the length of the key.
            Some(_) => Algorithm::Aes256,
            None => Algorithm::None,
        });
        if *kind == FileKind::Empty && !self.stock {
            self.log
                .warn("the input is empty; an empty xbcrypt file is valid, but a native file is never empty");
        }
        if self.allow_unhashed {
            self.log
                .verbose("accepting chunks of versions 1 and 2, which cannot reveal a wrong key");
        }
        let limits = Limits { allow_unhashed: self.allow_unhashed, ..Limits::ALL };
        let cipher = cipher(algorithm, self.key.as_ref())?;
        let settings = XbcryptRead { cipher, limits, threads: self.threads };
        xbcrypt_decrypt(source, output, settings, observer)
            .map_err(|error| hints::xbcrypt_failure("decrypt", &error))
    }
}
