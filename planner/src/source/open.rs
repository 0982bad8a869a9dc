//! Opens a model of any format.

use super::locate::{Located, locate_with};
use super::{ModelSource, OpenOptions, ReadError, split};
use crate::{hf, hfq};
use std::path::Path;

pub(super) fn open(path: &Path, options: OpenOptions) -> Result<ModelSource, ReadError> {
    let refuse = |found| {
        Err(ReadError::RecipeFormat {
            path: path.to_owned(),
            found,
        })
    };
    match locate_with(path, options.recipe.is_none())? {
        Located::Gguf(_) if options.recipe.is_some() => refuse("taken for a GGUF file"),
        Located::Hfq(_) if options.recipe.is_some() => refuse("an HFQ file"),
        Located::Gguf(parts) => split::open(&parts, options),
        Located::Hfq(file) => {
            let (file, table) = hfq::open(&file, options)?;
            let files = vec![file];
            Ok(ModelSource { files, table })
        }
        Located::HuggingFace(files) => {
            let (files, table) = hf::open(&files, options)?;
            Ok(ModelSource { files, table })
        }
    }
}
