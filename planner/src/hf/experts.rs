//! Experts of a mixture: GGUF stacks those of a layer in one tensor, Hugging Face files hold them one
//! by one (`experts.7.up_proj.weight`) or fused (`experts.gate_up_proj`). Both become the stacked
//! tensor in pieces, one per expert (models.md 2.3 and 2.4).

use super::names::template;
use super::{ConfigError, Stored};
use crate::source::{TensorEntry, TensorType};
use std::collections::BTreeMap;

/// Projection of an expert and the stacked tensor in GGUF.
const PROJECTIONS: [(&str, &str); 3] = [
    ("gate_proj", "blk.{}.ffn_gate_exps.weight"),
    ("up_proj", "blk.{}.ffn_up_exps.weight"),
    ("down_proj", "blk.{}.ffn_down_exps.weight"),
];
/// Gate rows, then up rows of each expert: `[experts][2 I][E]`.
const FUSED: &str = "gate_up_proj";

/// What a name of an expert tensor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Expert of a projection, in a layer.
    One { layer: u32, row: usize, expert: u32 },
    /// All experts of a projection.
    All { layer: u32, row: usize },
    /// Gate and up of all experts.
    Fused { layer: u32 },
}

/// The part that a name without its prefix means.
pub(super) fn part(stripped: &str) -> Option<Part> {
    let (template, layer) = template(stripped, "layers.");
    let layer = layer?;
    let rest = template.strip_prefix("layers.{}.mlp.experts.")?;
    let row = |name: &str| PROJECTIONS.iter().position(|row| row.0 == name);
    if rest == FUSED {
        return Some(Part::Fused { layer });
    }
    if let Some(row) = row(rest) {
        return Some(Part::All { layer, row });
    }
    let (number, rest) = rest.split_once('.')?;
    let expert: u32 = number.parse().ok()?;
    let row = row(rest.strip_suffix(".weight")?)?;
    // One spelling per expert, so that no two names mean the same tensor.
    (expert.to_string() == number).then_some(Part::One { layer, row, expert })
}

/// Stacked tensors as they come together.
#[derive(Debug, Default)]
pub(super) struct Experts {
    /// Expert tensors by layer and projection.
    single: BTreeMap<(u32, usize), BTreeMap<u32, Stored>>,
    whole: Vec<TensorEntry>,
}

fn shape_error(stored: &Stored, rule: String) -> ConfigError {
    ConfigError::Experts {
        tensor: stored.name.clone(),
        found: format!("{} {:?}", stored.ty.name(), stored.shape),
        rule,
    }
}

fn entry(layer: u32, row: usize, dims: Vec<u64>, ty: TensorType) -> TensorEntry {
    let name = PROJECTIONS.get(row).map_or("", |row| row.1);
    TensorEntry {
        name: name.replace("{}", &layer.to_string()),
        dims,
        ty,
        stored: ty,
        ops: Vec::new(),
        offset: 0,
        bytes: 0,
        more: Vec::new(),
    }
}

impl Experts {
    /// Takes one tensor in. `experts` is the number that the configuration states.
    pub(super) fn add(
        &mut self,
        part: Part,
        stored: Stored,
        experts: u32,
    ) -> Result<(), ConfigError> {
        let [first, rest @ ..] = &stored.shape[..] else {
            return Err(shape_error(&stored, "a matrix".to_owned()));
        };
        let all = *first == u64::from(experts);
        match (part, rest) {
            (Part::One { layer, row, expert }, [_]) => {
                if expert >= experts {
                    let rule = format!("of an expert below num_experts {experts}");
                    return Err(shape_error(&stored, rule));
                }
                let of_row = self.single.entry((layer, row)).or_default();
                if let Some(first) = of_row.insert(expert, stored) {
                    return Err(shape_error(&first, "given once".to_owned()));
                }
            }
            (Part::All { layer, row }, [rows, columns]) if all => {
                let mut whole = entry(layer, row, vec![*columns, *rows, *first], stored.ty);
                (whole.offset, whole.bytes) = (stored.offset, stored.bytes);
                self.whole.push(whole);
            }
            (Part::Fused { layer }, [rows, columns]) if all && rows.is_multiple_of(2) => {
                let (rows, columns) = (rows / 2, *columns);
                // The reader has checked that the whole fits its bytes, so a half does.
                let piece = stored.ty.bytes(&[columns, rows]).unwrap_or_default();
                for (row, half) in [(0, 0), (1, piece)] {
                    let mut whole = entry(layer, row, vec![columns, rows, *first], stored.ty);
                    whole.offset = stored.offset + half;
                    whole.bytes = piece * first;
                    let offset = |expert| stored.offset + half + expert * 2 * piece;
                    whole.more = (1..*first).map(offset).collect();
                    self.whole.push(whole);
                }
            }
            _ => {
                let rule = format!("a matrix of one expert, or a stack of num_experts {experts}");
                return Err(shape_error(&stored, rule));
            }
        }
        Ok(())
    }

    /// The stacked tensors; every expert of a projection must be there and of one shape.
    pub(super) fn finish(mut self, experts: u32) -> Result<Vec<TensorEntry>, ConfigError> {
        for ((layer, row), of_row) in self.single {
            let name = PROJECTIONS.get(row).map_or("", |row| row.0);
            let missing = (0..experts).find(|expert| !of_row.contains_key(expert));
            if let Some(expert) = missing {
                return Err(ConfigError::Experts {
                    tensor: format!("layers.{layer}.mlp.experts.{expert}.{name}.weight"),
                    found: "missing".to_owned(),
                    rule: format!("there for each of num_experts {experts}"),
                });
            }
            let mut all = of_row.into_values();
            let Some(first) = all.next() else {
                continue;
            };
            let mut dims: Vec<u64> = first.shape.iter().rev().copied().collect();
            dims.push(experts.into());
            let mut whole = entry(layer, row, dims, first.ty);
            (whole.offset, whole.bytes) = (first.offset, first.bytes);
            for expert in all {
                if (expert.ty, &expert.shape) != (first.ty, &first.shape) {
                    let rule = format!("{} {:?} as expert 0", first.ty.name(), first.shape);
                    return Err(shape_error(&expert, rule));
                }
                whole.bytes += expert.bytes;
                whole.more.push(expert.offset);
            }
            self.whole.push(whole);
        }
        Ok(self.whole)
    }
}
