//! Derives the layers of a file from its name.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use xb_compressor::Member;
use xb_reader::{PathError, RelPath, reserved};

use super::{Decrypt, FileDecodeError, FileDecoding};

/// Maximum number of layers of one file. Producers create two.
const MAX_LAYERS: usize = 4;

/// The suffix of encrypted files.
const XBCRYPT: &[u8] = b".xbcrypt";

/// A transformation that was applied to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Xbcrypt,
    Codec(Member),
}

impl Layer {
    const ALL: [Self; 4] = [
        Self::Xbcrypt,
        Self::Codec(Member::Qpress),
        Self::Codec(Member::Lz4),
        Self::Codec(Member::Zstd),
    ];

    pub(crate) fn suffix(self) -> &'static [u8] {
        match self {
            Self::Xbcrypt => XBCRYPT,
            Self::Codec(member) => member.suffix().as_bytes(),
        }
    }

    /// Returns the outermost layer by its suffix, and the rest of the name.
    fn of_name(name: &[u8]) -> Option<(&[u8], Self)> {
        Self::ALL.into_iter().find_map(|layer| {
            let rest = name.strip_suffix(layer.suffix())?;
            rest.last().is_some_and(|&byte| byte != b'/').then_some((rest, layer))
        })
    }
}

/// Steps that restore one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Name after the layers are decoded.
    pub(crate) name: RelPath,
    /// Layers to decode, outermost first.
    pub(crate) layers: Vec<Layer>,
}

impl Plan {
    /// Plans what `decoding` requires for the file `path`.
    ///
    /// Suffixes are removed from the outermost on, up to the first one whose layer stays: without a
    /// key `x.lz4.xbcrypt` stays, as with the stock tool.
    pub(crate) fn new(path: &RelPath, decoding: &FileDecoding) -> Result<Self, FileDecodeError> {
        Self::strip(path, |layer| match (layer, &decoding.decrypt) {
            (Layer::Codec(_), _) => Ok(decoding.decompress),
            (Layer::Xbcrypt, Decrypt::Leave) => Ok(false),
            (Layer::Xbcrypt, Decrypt::Refuse) => Err(FileDecodeError::NoKey),
            (Layer::Xbcrypt, Decrypt::With(_)) => Ok(true),
        })
    }

    /// Plans to decode all layers that the name indicates.
    pub(crate) fn of_all(path: &RelPath) -> Result<Self, FileDecodeError> {
        Self::strip(path, |_| Ok(true))
    }

    fn strip(
        path: &RelPath,
        wanted: impl Fn(Layer) -> Result<bool, FileDecodeError>,
    ) -> Result<Self, FileDecodeError> {
        let mut layers = Vec::new();
        let mut name = path.as_bytes();
        while let Some((rest, layer)) = Layer::of_name(name) {
            if !wanted(layer)? {
                break;
            }
            if layers.len() == MAX_LAYERS {
                return Err(FileDecodeError::Layers { max: MAX_LAYERS });
            }
            layers.push(layer);
            name = rest;
        }
        let name = match layers.is_empty() {
            true => path.clone(),
            false => RelPath::new(name).map_err(FileDecodeError::Name)?,
        };
        Ok(Self { name, layers })
    }
}

/// Names that the files of a stream will have. Uses about 20 bytes per file: it stores only a hash
/// of the name with a random key, and the suffixes that were removed.
#[derive(Debug, Default)]
pub(crate) struct Names {
    claims: HashMap<u64, u16>,
    /// Hashes of the directories that contain the files.
    folders: HashSet<u64>,
    hasher: RandomState,
}

impl Names {
    /// Reserves the name of a file.
    ///
    /// # Errors
    /// A restore could not create a file with this name.
    pub(crate) fn claim(&mut self, plan: &Plan) -> Result<(), FileDecodeError> {
        if let Some(prefix) = reserved(&plan.name) {
            return Err(FileDecodeError::Reserved { prefix });
        }
        self.enter_folders(plan.name.as_bytes())?;
        if self.folders.contains(&self.hasher.hash_one(plan.name.as_bytes())) {
            return Err(FileDecodeError::Folder { name: plan.name.clone() });
        }
        let code = encode(&plan.layers);
        match self.claims.entry(self.hasher.hash_one(plan.name.as_bytes())) {
            Entry::Vacant(free) => {
                free.insert(code);
                Ok(())
            }
            // The same name in the stream: checked elsewhere.
            Entry::Occupied(known) if *known.get() == code => Ok(()),
            Entry::Occupied(known) => {
                let other = with_suffixes(&plan.name, *known.get());
                let other = other.map_err(FileDecodeError::Name)?;
                Err(FileDecodeError::Taken { name: plan.name.clone(), other })
            }
        }
    }

    /// The name in the stream of the file that has this one without its suffixes.
    pub(crate) fn in_stream(&self, name: &RelPath) -> RelPath {
        let code = self.claims.get(&self.hasher.hash_one(name.as_bytes()));
        let whole = code.and_then(|code| with_suffixes(name, *code).ok());
        whole.unwrap_or_else(|| name.clone())
    }

    /// Reserves the parent directories of `name`. None of them can be a file.
    fn enter_folders(&mut self, name: &[u8]) -> Result<(), FileDecodeError> {
        let mut rest = name;
        while let Some(at) = rest.iter().rposition(|&byte| byte == b'/') {
            rest = &rest[..at];
            let key = self.hasher.hash_one(rest);
            if self.claims.contains_key(&key) {
                let name = RelPath::new(rest).map_err(FileDecodeError::Name)?;
                return Err(FileDecodeError::InFile { name });
            }
            // The directories above were added together with this one.
            if !self.folders.insert(key) {
                break;
            }
        }
        Ok(())
    }

    /// Releases the name of a file that was removed or renamed. Its directories stay.
    pub(crate) fn release(&mut self, plan: &Plan) {
        self.claims.remove(&self.hasher.hash_one(plan.name.as_bytes()));
    }
}

fn with_suffixes(name: &RelPath, code: u16) -> Result<RelPath, PathError> {
    let mut whole = name.as_bytes().to_vec();
    decode(code).rev().for_each(|layer| whole.extend(layer.suffix()));
    RelPath::new(&whole)
}

/// Three bits per layer, the outermost lowest; 0 means none.
fn encode(layers: &[Layer]) -> u16 {
    layers.iter().rev().fold(0, |code, layer| {
        let number = Layer::ALL.iter().zip(1..).find(|(known, _)| *known == layer);
        code << 3 | number.map_or(0, |(_, number)| number)
    })
}

fn decode(code: u16) -> impl DoubleEndedIterator<Item = Layer> {
    (0..MAX_LAYERS).filter_map(move |place| {
        let number = usize::from(code >> (3 * place) & 7).checked_sub(1)?;
        Layer::ALL.get(number).copied()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xb_encryptor::Backend;
    use xb_encryptor::xbcrypt::{Algorithm, Cipher};

    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name.as_bytes()).unwrap()
    }

    fn decoding(decompress: bool, decrypt: bool) -> FileDecoding {
        let cipher = Cipher::new(Algorithm::None, None, Backend::default()).unwrap();
        let decrypt = if decrypt { Decrypt::With(Arc::new(cipher)) } else { Decrypt::Leave };
        FileDecoding { decompress, decrypt, ..FileDecoding::default() }
    }

    #[test]
    fn suffixes_are_taken_as_the_options_say() {
        let table = [
            ("d/x.ibd.lz4.xbcrypt", "d/x.ibd", "d/x.ibd.lz4", "d/x.ibd.lz4.xbcrypt"),
            ("x.ibd.qp", "x.ibd", "x.ibd.qp", "x.ibd"),
            ("x.zst.qp", "x", "x.zst.qp", "x"),
            ("x.xbcrypt.lz4", "x", "x.xbcrypt.lz4", "x.xbcrypt"),
            ("x.ibd", "x.ibd", "x.ibd", "x.ibd"),
            ("d/.qp", "d/.qp", "d/.qp", "d/.qp"),
            ("d/.qp.lz4", "d/.qp", "d/.qp.lz4", "d/.qp"),
            ("x.LZ4", "x.LZ4", "x.LZ4", "x.LZ4"),
        ];
        for (name, both, decrypted, decompressed) in table {
            let of = |decoding| Plan::new(&path(name), &decoding).unwrap().name;
            assert_eq!(of(decoding(true, true)), path(both));
            assert_eq!(of(decoding(false, true)), path(decrypted));
            assert_eq!(of(decoding(true, false)), path(decompressed));
            assert_eq!(of(decoding(false, false)), path(name));
        }
        let refuse = FileDecoding { decrypt: Decrypt::Refuse, ..decoding(true, false) };
        assert!(matches!(Plan::new(&path("x.qp.xbcrypt"), &refuse), Err(FileDecodeError::NoKey)));
        assert!(matches!(
            Plan::new(&path("x.qp.qp.qp.qp.qp"), &refuse),
            Err(FileDecodeError::Layers { max: 4 })
        ));
        for name in ["d/..qp", "...zst"] {
            assert!(
                matches!(Plan::new(&path(name), &refuse), Err(FileDecodeError::Name(_))),
                "{name}"
            );
        }
    }

    #[test]
    fn no_name_is_a_file_and_a_folder_or_is_reserved() {
        let decoding = decoding(true, true);
        let claim = |names: &[&str]| {
            let mut known = Names::default();
            let plan = |name: &&str| Plan::new(&path(name), &decoding).unwrap();
            names.iter().try_for_each(|name| known.claim(&plan(name))).map_err(|e| e.to_string())
        };
        claim(&["d/e/a", "d/e/b", "d/c", "d.x", "x/d"]).unwrap();
        for (names, said) in [
            (&["n", "n/m"][..], "its directory n is a file in the stream"),
            (&["n.lz4", "n/m/o"], "its directory n is a file in the stream"),
            (
                &["d/e/a", "d/e/b", "d/e"],
                "without suffixes it is named d/e, which is a directory in the stream",
            ),
            (
                &["d/e/a", "d.zst"],
                "without suffixes it is named d, which is a directory in the stream",
            ),
            (&[".xb-partial/x"], "names starting with .xb-partial are reserved"),
            (&[".xb-incremental/1"], "names starting with .xb-incremental are reserved"),
        ] {
            assert_eq!(claim(names), Err(said.to_owned()), "{names:?}");
        }
    }

    #[test]
    fn two_files_of_one_name_are_both_named() {
        let decoding = decoding(true, true);
        let plan = |name: &str| Plan::new(&path(name), &decoding).unwrap();
        let names = ["x", "x.qp", "x.lz4.xbcrypt", "x.zst.qp.xbcrypt.lz4"];
        for first in names {
            for second in names {
                let mut known = Names::default();
                known.claim(&plan(first)).unwrap();
                match known.claim(&plan(second)) {
                    Ok(()) => assert_eq!(first, second),
                    Err(FileDecodeError::Taken { name, other }) => {
                        assert_eq!((name, other), (path("x"), path(first)));
                    }
                    Err(error) => panic!("{error}"),
                }
                known.release(&plan(first));
                known.claim(&plan(second)).unwrap();
            }
        }
    }
}
