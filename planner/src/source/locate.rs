//! Finds the files of a model from the path of any of them. Nothing is parsed but the list of
//! shards of a Hugging Face folder; what the files hold is judged when they are opened.

use super::ReadError;
use crate::{hf, hfq};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Configuration of a Hugging Face folder.
const CONFIG: &str = "config.json";
/// Tokenizer of a Hugging Face folder.
const TOKENIZER: &str = "tokenizer.json";
/// All weights in one file.
const WEIGHTS: &str = "model.safetensors";
/// Which shard holds which tensor.
const INDEX: &str = "model.safetensors.index.json";

/// The files of a model by format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// One GGUF file or all parts in order.
    Gguf(Vec<PathBuf>),
    /// An HFQ container.
    Hfq(PathBuf),
    /// A Hugging Face folder.
    HuggingFace(FolderFiles),
}

/// The files of a Hugging Face folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderFiles {
    /// `config.json`.
    pub config: PathBuf,
    /// `tokenizer.json`, if there is one.
    pub tokenizer: Option<PathBuf>,
    /// `model.safetensors.index.json`, if the weights are sharded.
    pub index: Option<PathBuf>,
    /// Weight files, by name.
    pub weights: Vec<PathBuf>,
}

impl Located {
    /// The files in the order in which offsets of a plan count through them. The index is not
    /// among them: everything it says stands in the shards, too.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Gguf(parts) => parts.clone(),
            Self::Hfq(file) => vec![file.clone()],
            Self::HuggingFace(files) => {
                let heads = [Some(&files.config), files.tokenizer.as_ref()];
                let heads = heads.into_iter().flatten();
                heads.chain(&files.weights).cloned().collect()
            }
        }
    }
}

/// Finds the files of the model that `path` belongs to.
///
/// # Errors
/// [`ReadError::Missing`], [`ReadError::MissingPart`], [`ReadError::Ambiguous`], [`ReadError::Io`],
/// and what is wrong with an index of shards.
pub fn locate(path: &Path) -> Result<Located, ReadError> {
    locate_with(path, true)
}

/// As [`locate`]; without `weights` only the configuration of a Hugging Face folder is looked for.
pub(super) fn locate_with(path: &Path, weights: bool) -> Result<Located, ReadError> {
    if path.is_dir() {
        return folder(path, None, weights);
    }
    let extension = path.extension().and_then(|ext| ext.to_str());
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    match extension {
        Some("json") => folder(parent, None, weights),
        Some("safetensors") => folder(parent, path.file_name().map(Path::new), weights),
        _ if starts_with_hfq_magic(path) => Ok(Located::Hfq(path.to_owned())),
        _ => parts(path).map(Located::Gguf),
    }
}

fn starts_with_hfq_magic(path: &Path) -> bool {
    let mut magic = [0; 4];
    // A file that cannot be read is reported where it is opened.
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == hfq::MAGIC
}

fn folder(folder: &Path, given: Option<&Path>, weights: bool) -> Result<Located, ReadError> {
    let existing = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    let Some(config) = existing(CONFIG) else {
        return Err(ReadError::Missing {
            path: folder.join(CONFIG),
            what: "a Hugging Face model needs its configuration beside its weights",
        });
    };
    let tokenizer = existing(TOKENIZER);
    let mut found = (existing(INDEX), Vec::new());
    if weights {
        found = shards(folder, given, found.0)?;
    }
    let (index, weights) = found;
    Ok(Located::HuggingFace(FolderFiles {
        config,
        tokenizer,
        index,
        weights,
    }))
}

/// Whether a name is that of one of several weight files (transformers, `save_pretrained`).
fn is_shard(name: &Path) -> bool {
    let stem = name.file_stem().and_then(|stem| stem.to_str());
    stem.is_some_and(|stem| stem.contains("-of-"))
}

type Shards = (Option<PathBuf>, Vec<PathBuf>);

fn shards(
    folder: &Path,
    given: Option<&Path>,
    index: Option<PathBuf>,
) -> Result<Shards, ReadError> {
    let single = given.map_or_else(|| folder.join(WEIGHTS), |name| folder.join(name));
    let Some(index) = index else {
        if given.is_some_and(is_shard) {
            return Err(ReadError::Missing {
                path: folder.join(INDEX),
                what: "a shard needs the index of its model beside it: fetch it",
            });
        }
        if single.is_file() {
            return Ok((None, vec![single]));
        }
        return Err(ReadError::Missing {
            path: single,
            what: "the weights are missing: fetch them, or plan without them by a recipe",
        });
    };
    if given.is_none_or(|name| name == Path::new(WEIGHTS)) && folder.join(WEIGHTS).is_file() {
        return Err(ReadError::Ambiguous {
            folder: folder.to_owned(),
            first: WEIGHTS,
            second: INDEX,
        });
    }
    let names = hf::shard_names(&index)?;
    let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        return Err(ReadError::Missing {
            path: missing.clone(),
            what: "the index names it as a shard of this model: fetch it",
        });
    }
    Ok((Some(index), files))
}

/// All parts of a split file by the name of one, or the file alone.
fn parts(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let Some((prefix, _, parts)) = part_name(path) else {
        return Ok(vec![path.to_owned()]);
    };
    let name = |part: u64| path.with_file_name(format!("{prefix}-{part:05}-of-{parts:05}.gguf"));
    let missing = || (1..=parts).filter(|part| !name(*part).is_file());
    if let Some(part) = missing().next() {
        return Err(ReadError::MissingPart {
            part,
            parts,
            missing: missing().count() as u64,
            path: name(part),
        });
    }
    Ok((1..=parts).map(name).collect())
}

/// Prefix, part and parts of a name that ends in `-00001-of-00003.gguf` (llama.cpp,
/// `llama_split_path`).
pub(super) fn part_name(path: &Path) -> Option<(String, u64, u64)> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, parts) = stem.rsplit_once("-of-")?;
    let (prefix, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (part, parts) = (number(part)?, number(parts)?);
    (part >= 1 && part <= parts && parts > 1).then(|| (prefix.to_owned(), part, parts))
}
