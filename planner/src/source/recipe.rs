//! Named recipes: the types that a quantiser would give the tensors of a model that is not there.

use super::ReadError;
use super::table::{TensorEntry, TensorType};
use crate::gguf::GgmlType;
use crate::hf;

/// One recipe. Vectors, convolutions and routers are f32 in all of them, as in GGUF files.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Name, as the command line takes it.
    pub name: &'static str,
    /// Type of matrices.
    pub matrix: GgmlType,
    /// Type of the head, or of the embedding where the head is tied to it.
    pub head: GgmlType,
}

const fn pure(name: &'static str, ty: GgmlType) -> Recipe {
    Recipe {
        name,
        matrix: ty,
        head: ty,
    }
}

/// Every recipe. All are pure (`llama-quantize --pure`), but for those that say so in their name.
pub const RECIPES: &[Recipe] = &[
    pure("f32", GgmlType::F32),
    pure("f16", GgmlType::F16),
    pure("bf16", GgmlType::BF16),
    pure("q8_0", GgmlType::Q8_0),
    pure("q4_0", GgmlType::Q4_0),
    pure("mxfp4", GgmlType::MXFP4),
    pure("q4_k", GgmlType::Q4_K),
    pure("q5_k", GgmlType::Q5_K),
    pure("q6_k", GgmlType::Q6_K),
    Recipe {
        name: "q4_k+q6_k-head",
        matrix: GgmlType::Q4_K,
        head: GgmlType::Q6_K,
    },
];

impl Recipe {
    /// The recipe of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Declared tensors (GGUF name, dimensions) with the types of this recipe and no place.
    pub(crate) fn tensors(
        &'static self,
        declared: Vec<(String, Vec<u64>)>,
    ) -> Result<Vec<TensorEntry>, ReadError> {
        let untied = declared.iter().any(|(name, _)| name == "output.weight");
        let head = if untied {
            "output.weight"
        } else {
            "token_embd.weight"
        };
        let entry = |(name, dims): (String, Vec<u64>)| {
            let ty: TensorType = match () {
                () if dims.len() <= 1 || hf::always_wide(&name) => GgmlType::F32,
                () if name == head => self.head,
                () => self.matrix,
            }
            .into();
            let Some(bytes) = ty.bytes(&dims) else {
                return Err(ReadError::RecipeBlocks {
                    recipe: self.name,
                    row: dims.first().copied().unwrap_or(1),
                    block: ty.block_elements(),
                    ty: ty.name(),
                    tensor: name,
                });
            };
            Ok(TensorEntry {
                name,
                dims,
                ty,
                stored: ty,
                ops: Vec::new(),
                offset: 0,
                bytes,
                more: Vec::new(),
            })
        };
        declared.into_iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gguf_keeps_in_f32_is_f32_in_every_recipe() {
        let names = [
            ("blk.0.ssm_conv1d.weight", "F32"),
            ("blk.3.ffn_gate_inp.weight", "F32"),
            ("blk.3.ffn_gate_exps.weight", "Q8_0"),
        ];
        let declared = names.map(|(name, _)| (name.to_owned(), vec![32, 8]));
        let tensors = Recipe::find("q8_0").map(|recipe| recipe.tensors(declared.into()));
        let tensors = tensors.and_then(Result::ok).unwrap_or_default();
        let found = tensors
            .iter()
            .map(|tensor| (tensor.name.as_str(), tensor.ty.name()));
        assert!(found.eq(names));
    }
}
